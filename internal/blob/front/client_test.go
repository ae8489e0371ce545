package front_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/berthml/berth/internal/blob/front"
)

const clientVersion = "12.31.1"

// TestAzureClient lets Azure's own Python client use the endpoint.
func TestAzureClient(t *testing.T) {
	if testing.Short() {
		t.Skip("installs azure-storage-blob the first time")
	}
	packages := clientPackages(t)
	s := serve(t)
	folder := s.signer.Sign(front.Grant{Container: "box", Prefix: "tree/0", Perm: "rwl", Expiry: all.Expiry})
	cmd := exec.CommandContext(t.Context(), "python3", "testdata/client.py", s.server.URL+"/st.blob.berth", s.sas,
		s.server.URL+"/st.blob.berth/box?"+folder)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// clientPackages is a folder with the client, installed once for all runs.
func clientPackages(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(cache, "berth-test", "azure-storage-blob-"+clientVersion)
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Skip(err)
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), "new-")
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(fresh)
	out, err := exec.CommandContext(t.Context(), "python3", "-m", "pip", "install", "-q", "--target", fresh, "azure-storage-blob=="+clientVersion).CombinedOutput()
	if err != nil {
		t.Skipf("azure-storage-blob cannot be installed: %v\n%s", err, out)
	}
	if err := os.Rename(fresh, dir); err != nil { // another run may have been first
		if _, err := os.Stat(dir); err != nil {
			t.Skip(err)
		}
	}
	return dir
}
