package track

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/berthml/berth"
)

// TestEndOfStream: why a stream ends is said in words for clients; those of the server stay in its
// log.
func TestEndOfStream(t *testing.T) {
	var log strings.Builder
	for _, c := range []struct {
		err    error
		says   string
		logged bool
	}{
		{errors.New("open /var/lib/berth/tracking: permission denied"), `{"message":"internal error; see the server's log"}`, true},
		{berth.Errorf(berth.Internal, "mlflow/runs r of the tracking store cannot be read"), `{"message":"internal error; see the server's log"}`, true},
		{fmt.Errorf("read: %w", context.Canceled), `{"message":"The request was interrupted; send it again"}`, false},
		{noRun("r"), `{"message":"Run with id=r not found"}`, false},
	} {
		log.Reset()
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/x", nil)
		s := New(Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err := (&call{workspace: &workspace{s: s}, w: w, r: r, ctx: t.Context()}).endStream(c.err); err != nil {
			t.Fatal(err)
		}
		if got := w.Body.String(); got != "event: error\ndata: "+c.says+"\n\n" || strings.Contains(log.String(), c.err.Error()) != c.logged {
			t.Errorf("%v: %s; the log: %s", c.err, got, log.String())
		}
	}
}

// TestFaultOf: what the server cannot do now is 503, which clients try again; the paths of its
// files are not in the answer.
func TestFaultOf(t *testing.T) {
	path := func(err error) error {
		return &os.PathError{Op: "write", Path: "/var/lib/berth/tracking/1.log", Err: err}
	}
	for _, c := range []struct {
		err    error
		status int
		says   string
		known  bool
	}{
		{path(syscall.ENOSPC), http.StatusServiceUnavailable, "disk is full", false},
		{path(syscall.EDQUOT), http.StatusServiceUnavailable, "disk is full", false},
		{path(os.ErrClosed), http.StatusServiceUnavailable, "stopping", true},
		{path(syscall.EIO), http.StatusInternalServerError, "internal error", false},
		{fmt.Errorf("a search: %w", context.Canceled), http.StatusServiceUnavailable, "interrupted", true},
		{context.DeadlineExceeded, http.StatusServiceUnavailable, "interrupted", true},
		{interrupted(), http.StatusServiceUnavailable, "interrupted", true},
		{noRun("r"), http.StatusNotFound, "not found", true},
	} {
		f, known := faultOf(c.err)
		w := httptest.NewRecorder()
		Fail(w, c.err)
		if known != c.known || w.Code != c.status || !strings.Contains(f.Message, c.says) || strings.Contains(w.Body.String(), "/var/lib") {
			t.Errorf("%v: %d %s, known %v", c.err, w.Code, w.Body, known)
		}
	}
}
