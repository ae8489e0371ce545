package migrate

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestNoOtherHost: a server that redirects to another host or port is not followed there, and the
// rest is imported; one that redirects within itself is.
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
		case "/beside": // another port of the same host
			http.Redirect(w, r, other.URL, http.StatusFound)
		case "/here":
			http.Redirect(w, r, at.URL+"/there", http.StatusFound)
		}
	}))
	defer at.Close()
	s, err := Server(at.URL, "", nil, Patience)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/away", "/beside"} {
		resp, err := s.(*server).send(t.Context(), http.MethodGet, path, nil)
		if err == nil || !strings.Contains(err.Error(), "is not followed") || !leaves(err) {
			t.Errorf("%s: %v, %v", path, resp, err)
		}
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

// TestRedirects: what is followed and what is not.
func TestRedirects(t *testing.T) {
	for _, c := range []struct {
		from, to string
		follows  bool
	}{
		{"http://mlflow:5000/a", "http://mlflow:5000/b", true},
		{"http://mlflow/a", "https://mlflow/a", true},
		{"http://mlflow:80/a", "https://MLflow:443/a", true},
		{"https://mlflow/a", "http://mlflow/a", false},
		{"http://mlflow:5000/a", "https://mlflow:5000/a", false},
		{"http://mlflow:5000/a", "http://mlflow:5001/a", false},
		{"http://mlflow/a", "http://other/a", false},
	} {
		ask := func(at string) *http.Request {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if err := sameHost(ask(c.to), []*http.Request{ask(c.from)}); (err == nil) != c.follows {
			t.Errorf("%s to %s: %v", c.from, c.to, err)
		}
	}
}

// TestAddressesWithSecrets: an address that is refused is told without what may be a password, and
// one with a query is refused: the calls would come after it.
func TestAddressesWithSecrets(t *testing.T) {
	for _, address := range []string{"http://user:pw 123@mlflow", "http://mlflow/?token=pw123", "http://mlflow/#pw123", "ftp://user:pw123@mlflow"} {
		if _, err := Server(address, "", nil, Patience); err == nil || strings.Contains(err.Error(), "pw") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
