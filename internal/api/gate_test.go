package api_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/api"
)

// TestNoSilentSuccess: a request that was cut off before it was carried out is never answered with
// 200.
func TestNoSilentSuccess(t *testing.T) {
	x := open(t)
	ctx, cut := context.WithCancel(t.Context())
	cut()
	for _, path := range []string{x.ws + "/jobs/j?api-version=1", "/st.blob.berth/" + "c/b"} {
		r := httptest.NewRequestWithContext(ctx, "PUT", path, strings.NewReader(`{"properties":{"jobType":"Command","command":"true"}}`))
		r.Header.Set("Authorization", "Bearer "+x.admin)
		w := httptest.NewRecorder()
		x.h.ServeHTTP(w, r)
		if w.Code < 400 || w.Body.Len() == 0 {
			t.Errorf("PUT %s: %d with %q", path, w.Code, w.Body)
		}
	}
}

// TestStopRefuses: once a server stops, requests are refused in a way that clients come back after.
func TestStopRefuses(t *testing.T) {
	x := open(t)
	if err := x.h.(*api.Server).Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{x.ws + "/jobs/j", "/runner/v1/reports", "/st.blob.berth/c/b"} {
		w := httptest.NewRecorder()
		x.h.ServeHTTP(w, httptest.NewRequest("PUT", path, strings.NewReader("{}")))
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), `"code":"ServiceUnavailable"`) {
			t.Errorf("PUT %s: %d %v %s", path, w.Code, w.Header(), w.Body)
		}
	}
}

// TestStopCutsLogs: the log of a job that has not ended does not end in good order when the server
// stops, or it would look whole.
func TestStopCutsLogs(t *testing.T) {
	x := open(t)
	srv := httptest.NewServer(x.h)
	defer srv.Close()
	x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "true")).want(201)
	req, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL+x.ws+"/jobs/j/logs?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+x.admin)
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := x.h.(*api.Server).Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the log ended in good order, with %q", b)
	}
}
