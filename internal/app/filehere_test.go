package app_test

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/berthml/berth"
)

// TestFileHere: the server reads a file of its machine for who comes over its socket. A signature
// alone does not open files.
func TestFileHere(t *testing.T) {
	s := start(t, shortHome(t))
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	name, err := json.Marshal(berth.FileHere{Path: path, Size: info.Size(), Modified: info.ModTime()})
	if err != nil {
		t.Fatal(err)
	}
	_, store := s.do(http.MethodGet, s.ws+"/datastores/workspaceblobstore", nil)
	_, secrets := s.do(http.MethodPost, s.ws+"/datastores/workspaceblobstore/listSecrets", nil)
	container, _ := store["properties"].(map[string]any)["containerName"].(string)
	sas, _ := secrets["sasToken"].(string)
	far := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for base, x := range map[string]struct {
		by     *http.Client
		status int
	}{s.app.URL: {far, http.StatusForbidden}, "http://berth": {s.http, http.StatusOK}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, base+"/st.blob.berth/"+container+"/f?comp=file&"+sas, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(berth.FileHereHeader, string(name))
		resp, err := x.by.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != x.status || x.status == http.StatusOK && string(b) != "7\ndone\n" {
			t.Errorf("%s: %s %q %v", base, resp.Status, b, err)
		}
	}
}
