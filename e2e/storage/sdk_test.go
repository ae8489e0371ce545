//go:build engines

package storage

import (
	"context"
	"errors"
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

// sdkTable is a table of the rows.csv beside it.
const sdkTable = `
paths: [{file: rows.csv}]
transformations:
  - read_delimited: {delimiter: ",", encoding: utf8, header: all_files_same_headers}
  - filter: 'col("n") > 1'
  - keep_columns: [name]
`

// TestAzureSDKPrincipal tells principal.py: a datastore that a service principal opens, made and
// used with the SDK.
func TestAzureSDKPrincipal(t *testing.T) {
	python := world.Python(t, "azure-ai-ml==1.35.2", "azure-identity==1.27.0", "six==1.17.0")
	y := beginPrincipal(t)
	cmd := exec.CommandContext(context.Background(), python, "principal.py", y.endpoint, azureAccount, y.authority, "the-secret-of-the-app")
	cmd.Env = y.s.Environ()
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "seen: a job reads and writes what a service principal opens") || !strings.Contains(string(out), "seen: a principal that is refused is told") {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := send(t, http.MethodGet, y.box+"/out/o.txt"+y.sas, ""); got != "alpha\n" {
		t.Errorf("the output is %q", got)
	}
}

// TestAzureSDK tells storage.py with each version of the SDK.
func TestAzureSDK(t *testing.T) {
	for _, version := range []string{"1.35.2", "1.34.1"} {
		t.Run(version, func(t *testing.T) {
			python := world.Python(t, "azure-ai-ml=="+version, "azure-identity==1.27.0", "six==1.17.0")
			p, endpoint := startAzure(t)
			sas, err := storage.AccountSAS(azureAccount, azureKey, "https,http", time.Now().Add(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			box := p.URL + "/" + azureAccount + "/box"
			send(t, http.MethodPut, box+sas+"&restype=container", "")
			s := startS3(t)
			key := s.key(t)
			files := sharetest.New(t)
			disk := t.TempDir()
			set := map[string]string{"in/a.txt": "alpha\n", "table/MLTable": sdkTable, "table/rows.csv": "n,name\n1,one\n2,two\n3,three\n"}
			for name, text := range set {
				send(t, http.MethodPut, box+"/"+name+sas, text)
				put(t, key, name, text)
				if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(disk, name)), 0o755), os.WriteFile(filepath.Join(disk, name), []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			files.Put(set)
			y := begin(t, "")
			y.berth("datastore", "create", "--file", y.file("ds.yaml", "type: folder\nname: disk\npath: "+disk+"\n"))
			y.berth("datastore", "create", "--file", y.file("ds.yaml", s.datastore("lake", s3Secret)))
			cmd := exec.CommandContext(context.Background(), python, "storage.py", endpoint, azureAccount, azureKey,
				strings.TrimPrefix(files.URL, "http://"), sharetest.Account, sharetest.Key, sharetest.Share)
			cmd.Env = y.s.Environ()
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range []string{
				"datastores of each kind: create, get, list", "a job reads from blobs and writes to them, its output is an asset", "the same by a file system", "the same by S3", "the same by a file share",
				"the same by a folder", "a table of blobs in every mode", "a table of files in every mode", "a table of lake in every mode", "a table of share in every mode", "a table of disk in every mode",
				"what cannot be reached is told",
			} {
				if !strings.Contains(string(out), "seen: "+want) {
					t.Errorf("not seen: %s\n%s", want, out)
				}
			}
			for _, job := range []string{"byblob", "bylake"} {
				if got := send(t, http.MethodGet, box+"/out/"+job+"/both.txt"+sas, ""); got != "alpha\nalpha\n" {
					t.Errorf("%s wrote %q", job, got)
				}
			}
			if got := s.get(t, "out/bys3/both.txt"); got != "alpha\nalpha\n" {
				t.Errorf("bys3 wrote %q", got)
			}
			onDisk := func(name string) string {
				text, _ := os.ReadFile(filepath.Join(disk, name))
				return string(text)
			}
			if got := onDisk("out/bydisk/both.txt"); got != "alpha\nalpha\n" {
				t.Errorf("bydisk wrote %q", got)
			}
			all := files.All()
			for name, get := range map[string]func(string) string{
				"blobs": func(name string) string { return send(t, http.MethodGet, box+"/"+name+sas, "") },
				"files": func(name string) string { return send(t, http.MethodGet, box+"/"+name+sas, "") },
				"lake":  func(name string) string { return s.get(t, name) }, "share": func(name string) string { return all[name] }, "disk": onDisk,
			} {
				at := "out/table" + name
				for file, want := range map[string]string{
					at + "/mounted": "name\ntwo\nthree\n", at + "/own": "name\ntwo\nthree\n", at + "/whole": set["table/rows.csv"], at + ".txt": "one\n",
					"in/a.txt": "alpha\n", "table/rows.csv": set["table/rows.csv"],
				} {
					if name == "disk" && file == "in/a.txt" {
						want = "changed\n" // mounted for writing, a folder is the folder itself
					}
					if got := get(file); got != want {
						t.Errorf("%s: %s is %q, want %q", name, file, got, want)
					}
				}
				if got := get(at + "/uri"); !strings.Contains(got, "datastores/"+name+"/paths/table") {
					t.Errorf("%s: directly it got %q", name, got)
				}
			}
			if got := all["out/byshare/both.txt"]; got != "alpha\nalpha\n" {
				t.Errorf("byshare wrote %q", got)
			}
			if got := all["out/byshare/direct.txt"]; !strings.Contains(got, "datastores/share/paths/in") {
				t.Errorf("directly it got %q", got)
			}
			if got := all["in/a.txt"]; got != "alpha\n" {
				t.Errorf("a copy was written back: %q", got)
			}
		})
	}
}
