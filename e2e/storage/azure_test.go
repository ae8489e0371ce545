//go:build engines

package storage

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/storage"
)

const azurite = "azurite@3.35.0"

// The account of development that Azure's emulator has, as its documentation gives it.
const (
	azureAccount = "devstoreaccount1"
	azureKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// startAzure is an emulator of Azure's Blob service with the container "box", and its address.
func startAzure(t *testing.T) (p *proxy, endpoint string) {
	t.Helper()
	tool, address, dir := filepath.Join(world.Package(t, azurite), "node_modules", ".bin", "azurite-blob"), world.FreeAddress(t), t.TempDir()
	host, port, _ := strings.Cut(address, ":")
	world.Serve(t, address, func() *exec.Cmd {
		return program(tool, nil, "--silent", "--location", dir, "--blobHost", host, "--blobPort", port, "--disableTelemetry", "--skipApiVersionCheck")
	})
	p = startProxy(t, "http://"+address)
	return p, strings.TrimPrefix(p.URL, "http://")
}

// TestAzure: jobs read from and write to Azure's storage, with the key of an account and with a
// signature of somebody else's making, by every name that a file there has.
func TestAzure(t *testing.T) {
	p, endpoint := startAzure(t)
	box := p.URL + "/" + azureAccount + "/box"
	sas, err := storage.AccountSAS(azureAccount, azureKey, "https,http", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	send(t, http.MethodPut, box+sas+"&restype=container", "")
	key := open(t, map[string]any{"datastoreType": "AzureBlob", "accountName": azureAccount, "containerName": "box", "endpoint": endpoint, "protocol": "http"},
		map[string]any{"credentialsType": "AccountKey"}, map[string]any{"key": azureKey})
	put(t, key, "in/a.txt", "alpha\n")
	put(t, key, "in/deep/b c+d.txt", "beta\n")
	y := begin(t, "")
	for name, text := range map[string]string{
		"bykey":       "type: azure_blob\ncontainer_name: box\ncredentials: {account_key: \"" + azureKey + "\"}\n",
		"bysignature": "type: azure_blob\ncontainer_name: box\ncredentials: {sas_token: \"" + strings.TrimPrefix(sas, "?") + "\"}\n",
	} {
		text += "name: " + name + "\naccount_name: " + azureAccount + "\nendpoint: " + endpoint + "\nprotocol: http\n"
		y.berth("datastore", "create", "--file", y.file("ds.yaml", text))
		told := y.completed(name, strings.ReplaceAll(`
command: >-
  cat ${{inputs.folder}}/a.txt "${{inputs.folder}}/deep/b c+d.txt" ${{inputs.file}} &&
  echo written > "${{outputs.o}}/o p.txt" && head -c 70000000 /dev/zero > "${{outputs.o}}/large"
inputs:
  folder: {type: uri_folder, path: azureml://datastores/NAME/paths/in}
  file: {type: uri_file, path: azureml://datastores/NAME/paths/in/a.txt, mode: download}
outputs:
  o: {type: uri_folder, path: azureml://datastores/NAME/paths/out/NAME}
`, "NAME", name))
		if !strings.Contains(told, "alpha\nbeta\nalpha\n") {
			t.Errorf("%s: the job saw\n%s", name, told)
		}
		if got := send(t, http.MethodGet, box+"/out/"+name+"/o%20p.txt"+sas, ""); got != "written\n" {
			t.Errorf("%s: the output is %q", name, got)
		}
		if got := len(send(t, http.MethodGet, box+"/out/"+name+"/large"+sas, "")); got != 70000000 {
			t.Errorf("%s: the large file has %d bytes", name, got)
		}
	}
	told := y.completed("large", `
command: wc -c < ${{inputs.i}}/large
inputs:
  i: {type: uri_folder, path: azureml://datastores/bykey/paths/out/bykey}
`)
	if !strings.Contains(told, "70000000") {
		t.Errorf("the large file came as\n%s", told)
	}
	y.removed("bykey", func(name string) bool {
		return strings.Contains(send(t, http.MethodGet, box+sas+"&restype=container&comp=list", ""), "<Name>"+name+"</Name>")
	})
	// Two datastores open it: which one is meant has to be said. With one left, its address is
	// enough.
	out, err := y.command("job", "create", "--file", y.file("two.yaml", y.yaml("two", strings.ReplaceAll(copies, "azureml://datastores/lake/paths", box)))).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "is in several datastores") {
		t.Errorf("of two datastores one was taken: %v\n%s", err, out)
	}
	y.berth("datastore", "delete", "-n", "bysignature", "--yes")
	if told := y.completed("address", strings.ReplaceAll(copies, "azureml://datastores/lake/paths", box)); !strings.Contains(told, "alpha") {
		t.Errorf("by its address:\n%s", told)
	}
}
