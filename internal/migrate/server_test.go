package migrate

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestNoOtherHost: a server that redirects to another host is not followed there; one that
// redirects within itself is.
func TestNoOtherHost(t *testing.T) {
	var reached bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer other.Close()
	elsewhere := strings.Replace(other.URL, "127.0.0.1", "localhost", 1)
	var at *httptest.Server
	at = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, elsewhere, http.StatusFound)
		case "/here":
			http.Redirect(w, r, at.URL+"/there", http.StatusFound)
		}
	}))
	defer at.Close()
	s, err := Server(at.URL, "", nil, Patience)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := s.(*server).send(t.Context(), http.MethodGet, "/away", nil); err == nil || !strings.Contains(err.Error(), "is not followed") {
		t.Errorf("%v, %v", resp, err)
	}
	resp, err := s.(*server).send(t.Context(), http.MethodGet, "/here", nil)
	if err != nil || resp.Request.URL.Path != "/there" {
		t.Fatalf("%v, %v", resp, err)
	}
	resp.Body.Close()
	if reached {
		t.Error("the other host was asked")
	}
}
