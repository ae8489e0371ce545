package api

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
)

// TestProgram: the program is given out by its hash only, to a few at a time, and not at all where
// no compute needs it.
func TestProgram(t *testing.T) {
	path := t.TempDir() + "/program"
	if err := os.WriteFile(path, []byte("binary"), 0o600); err != nil {
		t.Fatal(err)
	}
	find := func(hash string) (io.ReadSeekCloser, error) {
		if hash != "right" {
			return nil, errors.New("another")
		}
		return os.Open(path)
	}
	get := func(p programs, hash string) (int, string) {
		s := &runnerService{log: slog.New(slog.DiscardHandler), programs: p}
		r := httptest.NewRequest(http.MethodGet, "/runner/v1/programs/"+hash, nil)
		r.SetPathValue("hash", hash)
		w := httptest.NewRecorder()
		s.program(w, r)
		return w.Code, w.Body.String()
	}
	free := make(chan struct{}, 1)
	busy := make(chan struct{}, 1)
	busy <- struct{}{}
	for _, tt := range []struct {
		name string
		p    programs
		hash string
		code int
	}{
		{"right", programs{find: find, turns: free}, "right", http.StatusOK},
		{"again", programs{find: find, turns: free}, "right", http.StatusOK}, // its turn was given back
		{"wrong hash", programs{find: find, turns: free}, "wrong", http.StatusNotFound},
		{"not offered", programs{turns: free}, "right", http.StatusNotFound},
		{"too many", programs{find: find, turns: busy}, "right", http.StatusServiceUnavailable},
	} {
		code, body := get(tt.p, tt.hash)
		if code != tt.code || (code == http.StatusOK) != (body == "binary") {
			t.Errorf("%s: %d %q", tt.name, code, body)
		}
	}
}
