package data_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/runner/data"
)

// TestAddressIsNotShown: errors do not say what opens an address, nor does a server learn it that
// another one redirects to.
func TestAddressIsNotShown(t *testing.T) {
	referer := ""
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		referer = r.Header.Get("Referer")
		http.NotFound(w, r)
	}))
	defer other.Close()
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "hunter2" {
			t.Errorf("asked with the password %q", password)
		}
		http.Redirect(w, r, other.URL+"/y", http.StatusFound)
	}))
	defer first.Close()
	for _, at := range []string{first.URL, "http://127.0.0.1:1"} {
		address := strings.Replace(at, "//", "//user:hunter2@", 1) + "/a/b/c?sig=hunter2"
		err := client(t).File(t.Context(), address, filepath.Join(t.TempDir(), "f"), new(data.Total))
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), at+"/a/b/c") {
			t.Errorf("%s: %v", at, err)
		}
		if err := client(t).Folder(t.Context(), address, t.TempDir(), new(data.Total)); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", at, err)
		}
	}
	if referer != "" {
		t.Errorf("the other server is told %s", referer)
	}
}
