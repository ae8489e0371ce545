//go:build engines

package storage

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/runner/data/sharetest"
	"github.com/berthml/berth/internal/storage"
)

// azScript is the life of a datastore as a script of az's has it. Its arguments are a secret that
// nothing may show, and the type that the datastore has.
const azScript = `
set -euo pipefail
secret=$1
same() { test "$1" = "$2" || { echo "got '$1', want '$2'" >&2; exit 1; }; }
az ml datastore create --file store.yml > said
az ml datastore show --name store >> said
az ml datastore show --name store -o yaml >> said
az ml datastore list >> said
az ml datastore list -o table >> said
az ml datastore update --name store --set description="a lake" >> said
same "$(az ml datastore show --name store --query '[type, description]' -o tsv | tr '\n' ' ')" "$2 a lake "
same "$(az ml datastore list --query "[?name=='store'].type" -o tsv)" "$2"
if grep -qF -- "$secret" said; then echo "a secret is shown: $(cat said)" >&2; exit 1; fi

az ml data create --name rows --version 1 --type uri_file --path azureml://datastores/store/paths/in/rows.csv > /dev/null
az ml data create --file table.yml > /dev/null
az ml job create --file job.yml --name first --stream
same "$(az ml job show --name first --query status -o tsv)" Completed
az ml job create --file job.yml --name second --set inputs.rows.path=azureml:made:1 inputs.rows.type=uri_folder command='cat ${{inputs.rows}}/all > ${{outputs.o}}/all' outputs.o.name=again outputs.o.path=azureml://datastores/store/paths/out/again --stream
same "$(az ml job show --name second --query status -o tsv)" Completed
same "$(az ml data show --name made --version 1 --query path -o tsv | sed 's:.*/datastores/::')" store/paths/out/first/

az ml datastore delete --name store --yes
code=0; az ml datastore show --name store 2> said || code=$?
same $code 3
code=0; az ml job create --file job.yml --name third 2> said || code=$?
same $code 1
grep -q 'datastore.*store' said
`

const azJob = `
command: cat ${{inputs.rows}} ${{inputs.table}}/*.csv ${{inputs.folder}}/rows.csv > ${{outputs.o}}/all
environment: {image: none}
properties: {berth.environment: host}
inputs:
  rows: {type: uri_file, path: "azureml:rows:1"}
  table: {type: mltable, path: "azureml:table:1", mode: eval_mount}
  folder: {type: uri_folder, path: azureml://datastores/store/paths/in, mode: download}
outputs:
  o: {type: uri_folder, name: made, version: 1, path: "azureml://datastores/store/paths/out/${{name}}"}
`

const azTable = `
$schema: https://azuremlschemas.azureedge.net/latest/data.schema.json
name: table
version: 1
type: mltable
path: azureml://datastores/store/paths/in
`

// TestAzStories: a datastore of each kind is made of its YAML file, listed and shown without its
// secret, used for data assets, tables, inputs and outputs, changed and deleted, by what people
// write with az.
func TestAzStories(t *testing.T) {
	p, endpoint := startAzure(t)
	sas, err := storage.AccountSAS(azureAccount, azureKey, "https,http", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	box := p.URL + "/" + azureAccount + "/box"
	send(t, http.MethodPut, box+sas+"&restype=container", "")
	s, files, disk := startS3(t), sharetest.New(t), t.TempDir()
	google, googleKey, quoted := startGoogle(t)
	web := startWeb(t)
	set := map[string]string{"in/rows.csv": "n,name\n1,one\n2,two\n", "in/MLTable": sdkTable}
	files.Put(set)
	for name, text := range set {
		send(t, http.MethodPut, box+"/"+name+sas, text)
		put(t, s.key(t), name, text)
		put(t, googleKey, name, text)
		web.put(t, "pub/"+name, text)
		if err := os.MkdirAll(filepath.Join(disk, "in"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(disk, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	azure := "account_name: " + azureAccount + "\nendpoint: " + endpoint + "\nprotocol: http\n"
	blob := func(name string) string { return send(t, http.MethodGet, box+"/"+name+sas, "") }
	token := strings.TrimPrefix(sas, "?")
	_, signature, _ := strings.Cut(token, "sig=")
	for name, k := range map[string]struct {
		kind, yaml, secret string
		get                func(string) string
	}{
		"key":   {"azure_blob", azure + "container_name: box\ncredentials: {account_key: \"" + azureKey + "\"}\n", azureKey, blob},
		"token": {"azure_blob", azure + "container_name: box\ncredentials: {sas_token: \"" + token + "\"}\n", signature, blob},
		"lake":  {"azure_data_lake_gen2", azure + "filesystem: box\ncredentials: {account_key: \"" + azureKey + "\"}\n", azureKey, blob},
		"share": {
			"azure_file", "account_name: " + sharetest.Account + "\nendpoint: " + strings.TrimPrefix(files.URL, "http://") + "\nprotocol: http\nfile_share_name: " + sharetest.Share +
				"\ncredentials: {account_key: \"" + sharetest.Key + "\"}\n", sharetest.Key,
			func(name string) string { return files.All()[name] },
		},
		"s3": {"s3", strings.ReplaceAll(s.datastore("store", s3Secret), "type: s3\nname: store\n", ""), s3Secret, func(name string) string { return s.get(t, name) }},
		"google": {
			"google_storage", "bucket: data\nendpoint: " + google + "\ncredentials:\n  service_account_key: " + quoted + "\n", "PRIVATE KEY",
			func(name string) string { return send(t, http.MethodGet, google+"/data/"+name, "") },
		},
		"web": {"http", "url: " + web.url + "\ncredentials: {username: ann, password: " + webPassword + "}\n", webPassword, func(name string) string { return web.get(t, "pub/"+name) }},
		"folder": {"folder", "path: " + disk + "\n", "no secret", func(name string) string {
			b, err := os.ReadFile(filepath.Join(disk, name))
			if err != nil {
				t.Error(err)
			}
			return string(b)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			y := begin(t, web.allowed())
			if err := os.Symlink(world.Binary(t), filepath.Join(y.dir, "az")); err != nil {
				t.Fatal(err)
			}
			y.file("store.yml", "name: store\ntype: "+k.kind+"\n"+k.yaml)
			y.file("table.yml", azTable)
			y.file("job.yml", azJob)
			cmd := exec.CommandContext(t.Context(), "bash", "-c", azScript, "story", k.secret, k.kind)
			cmd.Dir = y.dir
			cmd.Env = append(y.command().Env, "PATH="+y.dir+":"+os.Getenv("PATH"), "AZURE_CONFIG_DIR="+t.TempDir())
			if out, err := cmd.CombinedOutput(); err != nil {
				said, _ := os.ReadFile(filepath.Join(y.dir, "said"))
				t.Fatalf("%v\n%s\n%s", err, out, said)
			}
			want := set["in/rows.csv"] + "name\ntwo\n" + set["in/rows.csv"]
			if got := k.get("out/first/all"); got != want {
				t.Errorf("the output is %q, want %q", got, want)
			}
			if got := k.get("out/again/all"); got != want {
				t.Errorf("what a second job made of it is %q", got)
			}
		})
	}
}
