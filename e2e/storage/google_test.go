package storage

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/storage"
)

const fakeGCS = "github.com/fsouza/fake-gcs-server@v1.56.1"

// keyFile is the key of a service account, as Google hands it out.
func keyFile(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "story@example.iam.gserviceaccount.com",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// startGoogle is a server of Google's storage with the bucket "data", and what opens it: the key of
// an account, and the same as YAML.
func startGoogle(t *testing.T) (endpoint string, key *storage.Key, quoted string) {
	t.Helper()
	tool, address := world.Tool(t, fakeGCS), world.FreeAddress(t)
	host, port, _ := strings.Cut(address, ":")
	world.Serve(t, address, func() *exec.Cmd {
		return program(tool, nil, "-scheme", "http", "-host", host, "-port", port, "-backend", "memory", "-public-host", address)
	})
	file := keyFile(t)
	b, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	endpoint = "http://" + address
	send(t, http.MethodPost, endpoint+"/storage/v1/b", `{"name":"data"}`)
	key = open(t, map[string]any{"datastoreType": "GoogleStorage", "bucket": "data", "endpoint": endpoint},
		map[string]any{"credentialsType": "ServiceAccount"}, map[string]any{"serviceAccountKey": file})
	return endpoint, key, string(b)
}

// TestGoogle: jobs read from and write to Google's storage. The server of this story checks no
// signatures; TestV4 and TestServiceAccount of internal/storage do.
func TestGoogle(t *testing.T) {
	endpoint, key, quoted := startGoogle(t)
	put(t, key, "in/a.txt", "alpha\n")
	put(t, key, "in/deep/b c.txt", "beta\n")
	y := begin(t, "")
	y.berth("datastore", "create", "--file", y.file("ds.yaml",
		"type: google_storage\nname: lake\nbucket: data\nendpoint: "+endpoint+"\ncredentials:\n  service_account_key: "+quoted+"\n"))
	if got := y.berth("datastore", "show", "-n", "lake", "-o", "json"); strings.Contains(got, "PRIVATE") {
		t.Errorf("the datastore is shown as\n%s", got)
	}
	told := y.completed("reads", strings.ReplaceAll(`
command: cat ${{inputs.folder}}/a.txt "${{inputs.folder}}/deep/b c.txt" ${{inputs.file}} && echo written > ${{outputs.o}}/o.txt
inputs:
  folder: {type: uri_folder, path: azureml://datastores/lake/paths/in}
  file: {type: uri_file, path: "ENDPOINT/data/in/a.txt", mode: download}
outputs:
  o: {type: uri_folder, path: "ENDPOINT/data/out"}
`, "ENDPOINT", endpoint))
	if !strings.Contains(told, "alpha\nbeta\nalpha\n") {
		t.Errorf("the job saw\n%s", told)
	}
	if got := send(t, http.MethodGet, endpoint+"/data/out/o.txt", ""); got != "written\n" {
		t.Errorf("the output is %q", got)
	}
}
