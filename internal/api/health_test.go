package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/api"
)

// TestHealthAsksTheDatabase: a server whose database cannot be used is not healthy, and does not
// tell everybody why; one that stops is not ready.
func TestHealthAsksTheDatabase(t *testing.T) {
	probe := func(x *house, path string) (int, string) {
		w := httptest.NewRecorder()
		x.h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code, w.Body.String()
	}
	x := open(t)
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, body := probe(x, path); code != http.StatusOK || body != "ok\n" {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if err := x.h.(*api.Server).Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code, body := probe(x, "/healthz"); code != http.StatusOK {
		t.Errorf("healthz of one that stops: %d %s", code, body)
	}
	if code, body := probe(x, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "stopping") {
		t.Errorf("readyz of one that stops: %d %s", code, body)
	}
	x = open(t)
	x.db.Close()
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, body := probe(x, path); code != http.StatusServiceUnavailable || !strings.Contains(body, "the database cannot be reached") || strings.Contains(body, "closed") {
			t.Errorf("%s without a database: %d %s", path, code, body)
		}
	}
}
