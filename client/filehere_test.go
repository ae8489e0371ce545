package client_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// openLocal returns a client of a server on this machine.
func openLocal(t *testing.T, handlers map[string]http.HandlerFunc) *client.Client {
	t.Helper()
	home, err := os.MkdirTemp("", "b") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	ws := berth.Workspace{Subscription: "s", Group: "g", Name: "w"}
	info, err := json.Marshal(client.Server{Workspace: ws})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(home, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "run", "server.json"), info, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(home, "run", "api.sock"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: mux(handlers)}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	c, err := client.Open(t.Context(), client.Config{Home: home})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestLargeFileIsNamed: a server on this machine reads a large file itself; one that does not, or
// fails on the way, is sent it.
func TestLargeFileIsNamed(t *testing.T) {
	large := file(t, "large", bytes.Repeat([]byte("x"), 65<<20))
	for what, x := range map[string]struct {
		status int
		answer string
		sent   bool
	}{
		"kept":     {http.StatusOK, "33554432\n68157440\ndone\n", false},
		"refused":  {http.StatusConflict, "", true},
		"unknown":  {http.StatusBadRequest, "", true},
		"fails":    {http.StatusOK, "33554432\n", true},
		"nonsense": {http.StatusOK, "33554432\nwell\n", true},
	} {
		b := &blobs{}
		h := b.handlers()
		var named berth.FileHere
		h["PUT /st.blob.berth/"] = func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("comp") != "file" {
				b.put(w, r)
				return
			}
			if err := json.Unmarshal([]byte(r.Header.Get(berth.FileHereHeader)), &named); err != nil {
				t.Error(err)
			}
			w.WriteHeader(x.status)
			io.WriteString(w, x.answer)
		}
		c := openLocal(t, h)
		var told atomic.Int64
		u := &client.Upload{Folder: "f", Hash: "h", Single: true, Files: []client.File{large}, Progress: func(n, _ int64) { told.Store(n) }}
		if _, err := c.Data(t.Context(), "workspaceblobstore", u); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if named.Path != large.Path || named.Size != large.Size || named.Modified.IsZero() {
			t.Errorf("%s: named as %+v", what, named)
		}
		got := 0
		for path, body := range b.files {
			if strings.HasSuffix(path, "/large") {
				got = len(body)
			}
		}
		if x.sent != (got == 65<<20) || told.Load() != large.Size {
			t.Errorf("%s: %d bytes were sent, %d told", what, got, told.Load())
		}
	}
}
