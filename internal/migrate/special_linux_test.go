package migrate_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/berthml/berth/internal/migrate"
)

// TestSpecialFiles: links, pipes, sockets and devices in a folder are named, wherever they are, and
// nothing behind a link is read. The rest is imported, and they are tried again.
func TestSpecialFiles(t *testing.T) {
	const (
		run   = "0123456789abcdef0123456789abcdef"
		other = "abcdef0123456789abcdef0123456789"
		model = "m-0123456789abcdef0123456789abcdef"
	)
	dir, here := filepath.Join(t.TempDir(), "mlruns"), newSpace(t)
	in := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, text := range map[string]string{
		"1/meta.yaml":                               "experiment_id: '1'\nname: e\n",
		"1/" + run + "/meta.yaml":                   "run_id: '" + run + "'\nstatus: 3\n",
		"1/" + run + "/metrics/loss":                "1 0.5 1\n",
		"1/" + run + "/artifacts/a/good":            "good",
		"1/" + other + "/meta.yaml":                 "run_id: '" + other + "'\nstatus: 3\n",
		"1/models/" + model + "/meta.yaml":          "model_id: " + model + "\nname: x\n",
		"models/M/meta.yaml":                        "name: M\n",
		"models/M/version-1/meta.yaml":              "source: x/" + run + "/artifacts/a\nrun_id: '" + run + "'\n",
		"../secret":                                 "secret",
		"../2/meta.yaml":                            "experiment_id: '2'\nname: secret\n",
		"../2/fedcba9876543210fedcba9876543210/foo": "secret",
	} {
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const link, pipe, socket = "a symbolic link, which is not followed; put a copy of what it points to in its place", "a pipe; only files and folders are imported", "a socket; only files and folders are imported"
	var want []string
	add := func(what, name, kind string) {
		want = append(want, what+": "+name+" is "+kind)
	}
	symlink := func(what, to, name string) {
		t.Helper()
		if err := os.Symlink(to, in(name)); err != nil {
			t.Fatal(err)
		}
		add(what, name, link)
	}
	special := func(what, name string, mode uint32, kind string) {
		t.Helper()
		if err := syscall.Mknod(in(name), mode|0o600, 0); err != nil {
			t.Fatal(err)
		}
		add(what, name, kind)
	}
	symlink("experiment 2", "../2", "2")
	symlink("experiment 3", "1", "3")
	symlink("experiment 4", "nowhere", "4/meta.yaml")
	special("experiment s", "s", syscall.S_IFSOCK, socket)
	symlink("experiment e", "/etc/hosts", "1/tags/hosts")
	symlink("run twin", run, "1/twin")
	special("run pipe", "1/pipe", syscall.S_IFIFO, pipe)
	symlink("file a/link of run "+run, "good", "1/"+run+"/artifacts/a/link")
	symlink("file out of run "+run, "../../../../secret", "1/"+run+"/artifacts/out")
	symlink("file all of run "+run, "a", "1/"+run+"/artifacts/all")
	special("file pipe of run "+run, "1/"+run+"/artifacts/pipe", syscall.S_IFIFO, pipe)
	special("file socket of run "+run, "1/"+run+"/artifacts/socket", syscall.S_IFSOCK, socket)
	symlink("run "+run, "loss", "1/"+run+"/metrics/twin")
	special("run "+run, "1/"+run+"/metrics/pipe", syscall.S_IFIFO, pipe)
	symlink("run "+run, "nowhere", "1/"+run+"/params")
	special("run "+run, "1/"+run+"/tags/pipe", syscall.S_IFIFO, pipe)
	symlink("files of run "+other, "../"+run+"/artifacts", "1/"+other+"/artifacts")
	symlink("logged model m-link", model, "1/models/m-link")
	symlink("logged model "+model, "x", "1/models/"+model+"/params/x")
	special("files of logged model "+model, "1/models/"+model+"/artifacts", syscall.S_IFIFO, pipe)
	symlink("model N", "M", "models/N")
	symlink("model M", "x", "models/M/tags/x")
	symlink("version 2 of model M", "version-1", "models/M/version-2")
	special("version 1 of model M", "models/M/version-1/tags/pipe", syscall.S_IFIFO, pipe)
	if err := syscall.Mknod(in("1/"+run+"/artifacts/null"), syscall.S_IFCHR|0o600, 1<<8|3); err == nil { // it takes a privilege
		add("file null of run "+run, "1/"+run+"/artifacts/null", "a device; only files and folders are imported")
	}
	slices.Sort(want)

	for range 2 {
		from, err := migrate.Folder(dir)
		if err != nil {
			t.Fatal(err)
		}
		n, _, err := here.bring(from)
		slices.Sort(n.NotImported)
		if err != nil || !slices.Equal(n.NotImported, want) {
			t.Errorf("%v, not imported:\n%s\nwant:\n%s", err, strings.Join(n.NotImported, "\n"), strings.Join(want, "\n"))
		}
		if n.Experiments != 1 || n.Runs != 2 || n.Unchanged != 0 || n.Points != 1 || n.Logged != 1 || n.Models != 1 {
			t.Errorf("%+v", n)
		}
		files := here.must("GET", "artifacts/list?path=a&run_id="+run, nil)
		if at(files, "files", 0, "path") != "a/good" || at(files, "files", 1) != nil {
			t.Errorf("the files are %v", files)
		}
	}
}
