package runner_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/cache"
)

// signs is a server that sends all requests to one address.
type signs struct {
	calls
	to string
}

func (s *signs) SignStorage(_ context.Context, _ runner.Task, _ string, rs []berth.OutsideRequest) ([]string, error) {
	urls := make([]string, len(rs))
	for i := range urls {
		urls[i] = s.to + "?secret"
	}
	return urls, nil
}

// TestOutsideStaysAway: storage elsewhere that does not answer for longer than the runner is
// patient fails the task, which says which one it is.
func TestOutsideStaysAway(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer s.Close()
	b := newBench(t, "cat ${{inputs.i}}/a")
	c, err := cache.Open(t.TempDir(), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b.options.Cache, b.options.Home, b.options.Patience = c, &signs{to: s.URL}, time.Nanosecond
	b.launch.Inputs = map[string]berth.LaunchInput{
		"i": {Type: "uri_folder", URL: "s3://data/in", URI: "s3://data/in", Outside: &berth.Outside{Protocol: berth.OutsideS3, Datastore: "lake", At: "s3://data/in", Scope: "x"}},
	}
	exit := b.run()
	if exit.Cause != "staging" || !strings.Contains(exit.Reason, "input i: listing: datastore lake (s3://data/in) does not answer: the server answered 503") ||
		strings.Contains(exit.Reason, "secret") {
		t.Errorf("%+v", exit)
	}
}

// TestOutsideFileDeleted: a file that was deleted after it was listed does not fail the job: the
// storage is listed again.
func TestOutsideFileDeleted(t *testing.T) {
	t.Parallel()
	var lists atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Has("list"):
			more := ""
			if lists.Add(1) == 1 {
				more = "<Contents><Key>gone</Key><Size>1</Size><ETag>1</ETag></Contents>"
			}
			fmt.Fprintf(w, "<ListBucketResult><Contents><Key>a</Key><Size>1</Size><ETag>1</ETag></Contents>%s</ListBucketResult>", more)
		case r.URL.Path == "/a":
			fmt.Fprint(w, "a")
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer s.Close()
	b := newBench(t, "ls ${{inputs.i}}")
	c, err := cache.Open(t.TempDir(), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b.options.Cache, b.options.Home = c, &signsNames{signs{to: s.URL}}
	b.launch.Inputs = map[string]berth.LaunchInput{
		"i": {Type: "uri_folder", URL: "s3://data", URI: "s3://data", Outside: &berth.Outside{Protocol: berth.OutsideS3, Datastore: "lake", At: "s3://data", Scope: "x"}},
	}
	if exit := b.run(); !exit.OK() || b.log() != "a\n" || lists.Load() != 2 {
		t.Errorf("%+v, log %q, listed %d times", exit, b.log(), lists.Load())
	}
	if !strings.Contains(b.warnings(), "gone: it was deleted after it was listed") {
		t.Errorf("warnings %s", b.warnings())
	}
}

// signsNames is a server that sends each request to the name that it is about.
type signsNames struct{ signs }

func (s *signsNames) SignStorage(_ context.Context, _ runner.Task, _ string, rs []berth.OutsideRequest) ([]string, error) {
	urls := make([]string, len(rs))
	for i, r := range rs {
		if urls[i] = s.to + "/" + r.Name; r.Do == berth.OutsideList {
			urls[i] = s.to + "/?list"
		}
	}
	return urls, nil
}
