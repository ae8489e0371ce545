package storage

import (
	"strings"
	"testing"

	"github.com/berthml/berth/internal/runner/data/sharetest"
)

// TestShare: jobs read from and write to a file share of Azure's, as folders and files, by the name
// of the datastore and by the share's address, and one whose key is wrong fails with its name. The
// share is ours, made from the description of the protocol: there is no emulator of it.
func TestShare(t *testing.T) {
	s := sharetest.New(t)
	s.PageSize = 2
	s.Put(map[string]string{"in/a.txt": "alpha\n", "in/deep/b c+d.txt": "beta\n", "in/empty/": "", "in/x": "", "in/y": ""})
	y := begin(t, "")
	datastore := func(name, key string) string {
		return "type: azure_file\nname: " + name + "\naccount_name: " + sharetest.Account + "\nfile_share_name: " + sharetest.Share +
			"\nendpoint: " + strings.TrimPrefix(s.URL, "http://") + "\nprotocol: http\ncredentials: {account_key: \"" + key + "\"}\n"
	}
	y.berth("datastore", "create", "--file", y.file("ds.yaml", datastore("files", sharetest.Key)))
	told := y.completed("reads", strings.ReplaceAll(`
command: >-
  cat ${{inputs.folder}}/a.txt "${{inputs.folder}}/deep/b c+d.txt" ${{inputs.file}} && ls ${{inputs.folder}} | tr '\n' ' ' &&
  mkdir -p ${{outputs.o}}/sub/dir && echo written > "${{outputs.o}}/sub/dir/o p.txt" && head -c 9000000 /dev/zero > ${{outputs.o}}/large && echo one > ${{outputs.f}}
inputs:
  folder: {type: uri_folder, path: azureml://datastores/files/paths/in, mode: ro_mount}
  file: {type: uri_file, path: "ADDRESS/in/a.txt", mode: download}
outputs:
  o: {type: uri_folder, path: azureml://datastores/files/paths/new/out, mode: rw_mount}
  f: {type: uri_file, path: azureml://datastores/files/paths/new/one.txt}
`, "ADDRESS", s.URL+"/"+sharetest.Account+"/"+sharetest.Share))
	if !strings.Contains(told, "alpha\nbeta\nalpha\n") || !strings.Contains(told, "a.txt deep empty x y") {
		t.Errorf("the job saw\n%s", told)
	}
	all := s.All()
	if all["new/out/sub/dir/o p.txt"] != "written\n" || len(all["new/out/large"]) != 9000000 || all["new/one.txt"] != "one\n" {
		t.Errorf("the job left %q and a file of %d bytes", all["new/out/sub/dir/o p.txt"], len(all["new/out/large"]))
	}
	if told := y.completed("again", "command: wc -c < ${{inputs.i}}/large\ninputs:\n  i: {type: uri_folder, path: azureml://jobs/reads/outputs/o}\n"); !strings.Contains(told, "9000000") {
		t.Errorf("the output was read as\n%s", told)
	}
	y.berth("datastore", "create", "--file", y.file("ds.yaml", datastore("wrong", "d3Jvbmc=")))
	if status, told := y.job("refused", strings.ReplaceAll(copies, "lake", "wrong")); status != "Failed" || !strings.Contains(told, "datastore wrong") || !strings.Contains(told, "rejects the credentials") {
		t.Errorf("%s:\n%s", status, told)
	}
}
