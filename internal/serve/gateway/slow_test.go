package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// hasty has read deadlines of the future come at once.
type hasty struct {
	http.ResponseWriter
	mu   sync.Mutex
	last time.Time
	soon bool
}

func (h *hasty) Unwrap() http.ResponseWriter { return h.ResponseWriter }

func (h *hasty) SetReadDeadline(at time.Time) error {
	h.mu.Lock()
	h.last = at
	h.mu.Unlock()
	if h.soon && at.After(time.Now()) {
		at = time.Now().Add(50 * time.Millisecond)
	}
	return http.NewResponseController(h.ResponseWriter).SetReadDeadline(at)
}

// TestSlowBody: a client that stops sending a body does not keep the worker, over HTTP/1 and 2.
func TestSlowBody(t *testing.T) {
	worker := httptest.NewServer(prover("right", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, r.Body)
	}))
	defer worker.Close()
	h := through(t, worker.URL, nil)
	var last *hasty
	slow := func(w http.ResponseWriter, r *http.Request) {
		last = &hasty{ResponseWriter: w, soon: r.Header.Get("X-Slow") != ""}
		h.ServeHTTP(last, r)
	}
	plain := httptest.NewServer(http.HandlerFunc(slow))
	defer plain.Close()
	for _, srv := range []*httptest.Server{plain, secure(t, http.HandlerFunc(slow))} {
		body, send := io.Pipe()
		defer send.Close()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/score", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Slow", "1")
		go io.WriteString(send, "a part of it")
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(b), "nothing of it came for 1m0s") {
			t.Errorf("%d %q %v", resp.StatusCode, b, err)
		}

		// The only worker is there for the next one, whose deadline ends with its body.
		req, err = http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/score", io.MultiReader(strings.NewReader("whole")))
		if err != nil {
			t.Fatal(err)
		}
		resp, err = srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || string(b) != "whole" {
			t.Errorf("next: %d %q %v", resp.StatusCode, b, err)
		}
		last.mu.Lock()
		if !last.last.IsZero() {
			t.Errorf("a read deadline is left: %v", last.last)
		}
		last.mu.Unlock()
	}
}
