package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/api"
)

// TestNoSilentSuccess: a request that was cut off before it was carried out is never answered with 200.
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
