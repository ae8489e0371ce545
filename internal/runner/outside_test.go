package runner_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
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
