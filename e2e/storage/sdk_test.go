//go:build engines

package storage

import (
	"context"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/storage"
)

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
			send(t, http.MethodPut, box+"/in/a.txt"+sas, "alpha\n")
			s := startS3(t)
			put(t, s.key(t), "in/a.txt", "alpha\n")
			y := begin(t, "")
			y.berth("datastore", "create", "--file", y.file("ds.yaml", s.datastore("lake", s3Secret)))
			cmd := exec.CommandContext(context.Background(), python, "storage.py", endpoint, azureAccount, azureKey)
			cmd.Env = y.s.Environ()
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range []string{
				"datastores of each kind: create, get, list", "a job reads from blobs and writes to them, its output is an asset", "the same by a file system", "the same by S3",
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
		})
	}
}
