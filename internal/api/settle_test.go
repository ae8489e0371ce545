package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// lateBody is a request body that arrives after its header.
type lateBody struct {
	wait <-chan time.Time
	sent atomic.Bool
}

func (b *lateBody) Read(p []byte) (int, error) {
	if b.sent.Load() {
		return 0, io.EOF
	}
	<-b.wait
	b.sent.Store(true)
	return copy(p, "{}"), nil
}

// TestAnswersWaitForTheBody: over HTTP/2 an answer that overtakes the request's body resets the
// stream, and curl then drops the answer.
func TestAnswersWaitForTheBody(t *testing.T) {
	x := open(t)
	srv := httptest.NewUnstartedServer(x.h)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	for _, tt := range []struct {
		path, token string
		status      int
	}{
		{x.ws + "/codes/c/versions/1/startPendingUpload", x.admin, 200},
		{x.ws + "/jobs/none/cancel", x.admin, 404},
		{x.ws + "/codes/c/versions/1/startPendingUpload", "", 401},
	} {
		body := &lateBody{wait: time.After(50 * time.Millisecond)}
		req, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL+tt.path, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+tt.token)
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		first := !body.sent.Load()
		resp.Body.Close()
		if resp.ProtoMajor != 2 || resp.StatusCode != tt.status || first {
			t.Errorf("%s: %s %s, before the body: %v", tt.path, resp.Proto, resp.Status, first)
		}
	}
}
