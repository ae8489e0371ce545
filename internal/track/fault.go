package track

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track/points"
)

// A fault is an error as MLflow's clients know it.
type fault struct {
	Code    string `json:"error_code"`
	Message string `json:"message"`
}

func (f *fault) Error() string { return f.Code + ": " + f.Message }

// The codes that are answered. "Already exists" is 400: clients go by the code.
const (
	invalidParameter = "INVALID_PARAMETER_VALUE"
	badRequest       = "BAD_REQUEST"
	alreadyExists    = "RESOURCE_ALREADY_EXISTS"
	doesNotExist     = "RESOURCE_DOES_NOT_EXIST"
	noEndpoint       = "ENDPOINT_NOT_FOUND"
	denied           = "PERMISSION_DENIED"
	unauthenticated  = "UNAUTHENTICATED"
	notImplemented   = "NOT_IMPLEMENTED"
	unavailable      = "TEMPORARILY_UNAVAILABLE"
	internal         = "INTERNAL_ERROR"
	invalidState     = "INVALID_STATE"
	exhausted        = "RESOURCE_EXHAUSTED" // the workspace is full
	crowded          = "REQUEST_LIMIT_EXCEEDED"
)

var statuses = map[string]int{
	invalidParameter: http.StatusBadRequest, badRequest: http.StatusBadRequest, alreadyExists: http.StatusBadRequest,
	doesNotExist: http.StatusNotFound, noEndpoint: http.StatusNotFound, denied: http.StatusForbidden,
	unauthenticated: http.StatusUnauthorized, notImplemented: http.StatusNotImplemented, unavailable: http.StatusServiceUnavailable,
	internal: http.StatusInternalServerError, crowded: http.StatusTooManyRequests,
	// MLflow answers 500 and 429 to these, which its clients try again for two minutes.
	invalidState: http.StatusBadRequest, exhausted: http.StatusBadRequest,
}

func refuse(code, format string, args ...any) error {
	return &fault{Code: code, Message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error { return refuse(invalidParameter, format, args...) }

// interrupted is the error of a request whose context ended: its client has gone, which reads no
// answer, or the server is stopping.
func interrupted() error { return refuse(unavailable, "The request was interrupted; send it again") }

func missing(format string, args ...any) error { return refuse(doesNotExist, format, args...) }

var codes = map[berth.Code]string{
	berth.Invalid: invalidParameter, berth.NotFound: doesNotExist, berth.Conflict: alreadyExists, berth.Precondition: badRequest,
	berth.Unauthenticated: unauthenticated, berth.Denied: denied, berth.Limit: exhausted, berth.Gone: doesNotExist,
	berth.Unsupported: notImplemented, berth.Unavailable: unavailable,
}

// faultOf gives any error MLflow's shape. known is false for errors of the server, whose text goes
// to its log only.
func faultOf(err error) (f *fault, known bool) {
	if errors.As(err, &f) {
		return f, true
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return faultOf(interrupted())
	case isDiskFull(err):
		return &fault{Code: unavailable, Message: "The server's disk is full: free some space and try again"}, false
	case errors.Is(err, points.ErrClosed), errors.Is(err, os.ErrClosed), errors.Is(err, store.ErrClosed):
		return &fault{Code: unavailable, Message: "The server is stopping, or the workspace was deleted; send the request again"}, true
	case errors.Is(err, points.ErrBehind):
		return &fault{Code: unavailable, Message: "Points come faster than they are read; send the request again"}, true
	}
	var e *berth.Error
	if errors.As(err, &e) {
		if code := codes[e.Code]; code != "" {
			return &fault{Code: code, Message: e.Error()}, true
		}
	}
	return &fault{Code: internal, Message: "internal error; see the server's log"}, false
}

func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// diskFullPause is how long it is not said again that the disk is full: the log is on a disk, too.
const diskFullPause = time.Minute

// report writes to the log why a request failed that is not the client's to mend.
func (s *Service) report(what string, r *http.Request, err error) {
	if isDiskFull(err) {
		now, last := time.Now().UnixNano(), s.saidFull.Load()
		if now-last < int64(diskFullPause) || !s.saidFull.CompareAndSwap(last, now) {
			return
		}
	}
	s.Log.Error(what, "method", r.Method, "path", r.URL.Path, "err", err)
}

// Fail answers with an error in MLflow's shape.
func Fail(w http.ResponseWriter, err error) {
	f, _ := faultOf(err)
	b, err := json.Marshal(f)
	if err != nil {
		b = []byte(`{"error_code": "INTERNAL_ERROR"}`)
	}
	status := statuses[f.Code]
	if status == 0 {
		status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(b) //nolint:errcheck // the client has gone
}
