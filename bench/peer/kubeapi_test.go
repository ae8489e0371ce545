package peer

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A watch that a server cuts off goes on after the last event that came, and its errors are errors.
func TestWatchGoesOn(t *testing.T) {
	answers := map[string]string{
		"4": `{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"5"}}}`,
		"5": `{"type":"ADDED","object":{"metadata":{"name":"b","resourceVersion":"9"}}}{"type":"MOD`,
		"9": `{"type":"ERROR","object":{"message":"too old"}}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("watch") == "" {
			fmt.Fprint(w, `{"metadata":{"resourceVersion":"4"}}`)
			return
		}
		fmt.Fprint(w, answers[r.FormValue("resourceVersion")])
	}))
	defer s.Close()
	a := &kubeAPI{url: s.URL, http: s.Client()}
	w, err := a.watch(t.Context(), "/pods", "", true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { w.close() }()
	for _, want := range []string{"a", "b"} {
		e, err := w.next(t.Context())
		if err != nil || e.Object.Metadata.Name != want {
			t.Fatalf("%+v, %v, want %s", e, err, want)
		}
	}
	if e, err := w.next(t.Context()); err == nil || err.Error() != "too old" {
		t.Errorf("%+v, %v", e, err)
	}
}
