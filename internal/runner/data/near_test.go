package data_test

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/runner/data"
)

// TestNear: what is in the server's storage is asked for over its socket, and nothing else of the
// server is, however it is written.
func TestNear(t *testing.T) {
	dir := t.TempDir()
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	const host = "https://127.0.0.1:1" // where nobody is
	root := data.Root(host + "/st.blob.berth/container/folder?sig=x")
	if root != host+"/st.blob.berth" {
		t.Fatalf("the root is %q", root)
	}
	c, err := data.New(data.Options{Socket: l.Addr().String(), Storage: root})
	if err != nil {
		t.Fatal(err)
	}
	c.Shrink(1<<20, 1<<20, 1)
	for path, want := range map[string]bool{
		"/st.blob.berth/container/file": true,
		"/tokens":                       false,
		"/st.blob.berth":                false,
		"/st.blob.berthx/container/f":   false,
		"/st.blob.berth/../tokens":      false,
		"/st.blob.berth/%2e%2e/tokens":  false,
		"/st.blob.berth/./tokens":       false,

		"/st.blob.berth/container/file?comp=file":                   false,
		"http://127.0.0.1:1/st.blob.berth/container/file":           false,
		"https://somebody@127.0.0.1:1/st.blob.berth/container/file": false,
	} {
		if strings.HasPrefix(path, "/") {
			path = host + path
		}
		err := c.File(t.Context(), path, filepath.Join(dir, "got"), new(data.Total))
		if (err == nil) != want {
			t.Errorf("%s over the socket: %v, want %v", path, err == nil, want)
		}
		_ = os.Remove(filepath.Join(dir, "got"))
	}
}
