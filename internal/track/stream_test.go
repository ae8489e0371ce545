package track_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/track"
)

// TestMetricsArePushed: a stream has the points that a run has, then those that are logged, and
// says when the run has ended.
func TestMetricsArePushed(t *testing.T) {
	s := start(t, t.TempDir())
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.s.Serve(w, r, s.ws, s.who, r.URL.EscapedPath()) }))
	defer web.Close()
	run := at(s.must("POST", "runs/create", obj{"experiment_id": "0"}), "run", "info", "run_id").(string)
	log := func(key string, value any) {
		t.Helper()
		s.must("POST", "runs/log-metric", obj{"run_id": run, "key": key, "value": value, "timestamp": 7, "step": 1})
	}
	log("loss", 0.5)
	res, err := http.Get(web.URL + "/api/2.0/berth/metrics/stream?run_id=" + run)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", res.StatusCode, res.Header)
	}
	lines := bufio.NewScanner(res.Body)
	next := func(want string) {
		t.Helper()
		for lines.Scan() {
			if lines.Text() != "" {
				if lines.Text() != want {
					t.Fatalf("got %s\nwant %s", lines.Text(), want)
				}
				return
			}
		}
		t.Fatalf("the stream ended before %s: %v", want, lines.Err())
	}
	next(`data: {"key":"loss","value":0.5,"timestamp":7,"step":1}`)
	log("acc", 1)
	next(`data: {"key":"acc","value":1.0,"timestamp":7,"step":1}`)
	log("acc", "NaN")
	next(`data: {"key":"acc","value":"NaN","timestamp":7,"step":1}`)
	log("loss", 0.25)
	s.must("POST", "runs/update", obj{"run_id": run, "status": "FAILED"})
	next(`data: {"key":"loss","value":0.25,"timestamp":7,"step":1}`)
	next(`event: ended`)
	next(`data: {"status":"FAILED"}`)
	if lines.Scan() && lines.Text() != "" || lines.Scan() {
		t.Fatalf("after the end: %s", lines.Text())
	}
}

// TestStreamEndsWithTheService: the stream of an active run ends with an error when the tracking
// service is closed. A run that does not exist cannot be watched.
func TestStreamEndsWithTheService(t *testing.T) {
	s := start(t, t.TempDir())
	if code, m := s.do("GET", "/api/2.0/berth/metrics/stream?run_id=none", nil); code != http.StatusNotFound || at(m, "error_code") != "RESOURCE_DOES_NOT_EXIST" {
		t.Fatalf("%d %v", code, m)
	}
	run := at(s.must("POST", "runs/create", obj{"experiment_id": "0"}), "run", "info", "run_id").(string)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.s.Serve(w, r, s.ws, s.who, r.URL.EscapedPath()) }))
	defer web.Close()
	res, err := http.Get(web.URL + "/api/2.0/berth/metrics/stream?run_id=" + run)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	s.stop()
	lines := bufio.NewScanner(res.Body)
	var last []string
	for lines.Scan() {
		last = append(last, lines.Text())
	}
	if len(last) < 2 || last[0] != "event: error" || last[1] != `data: {"message":"The server is stopping, or the workspace was deleted; send the request again"}` {
		t.Fatalf("the stream ended with %q", last)
	}
}

// TestStreamsOfUserAreBounded: one user watches so many runs at a time, whoever else does, and may
// watch another once one of these streams has ended.
func TestStreamsOfUserAreBounded(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	s.must("POST", "runs/log-metric", obj{"run_id": run, "key": "loss", "value": 1, "timestamp": 7})
	const path = "/api/2.0/berth/metrics/stream?run_id="
	began, ended := make(chan struct{}), make(chan struct{})
	leave := make([]context.CancelFunc, 32)
	watch := func(i int) {
		ctx, cancel := context.WithCancel(t.Context())
		leave[i] = cancel
		go func() {
			r := httptest.NewRequestWithContext(ctx, "GET", "http://h"+path+run, nil)
			s.s.Serve(&begun{ResponseRecorder: httptest.NewRecorder(), began: began}, r, s.ws, s.who, r.URL.EscapedPath())
			ended <- struct{}{}
		}()
		<-began
	}
	for i := range leave {
		watch(i)
	}
	code, m := s.do("GET", path+run+"x", nil) // there is none
	if code != http.StatusNotFound {
		t.Errorf("%d %v", code, m)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	over := httptest.NewRequestWithContext(gone, "GET", "http://h"+path+run, nil)
	w := httptest.NewRecorder()
	s.s.Serve(w, over, s.ws, s.who, over.URL.EscapedPath())
	if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "REQUEST_LIMIT_EXCEEDED") || !strings.Contains(w.Body.String(), "metrics of 32 runs") {
		t.Errorf("one more: %d %s", w.Code, w.Body)
	}
	other := *s
	other.who.User = "other"
	w = httptest.NewRecorder()
	other.s.Serve(w, over, s.ws, other.who, over.URL.EscapedPath())
	if w.Code != http.StatusOK {
		t.Errorf("of another user: %d %s", w.Code, w.Body)
	}
	leave[3]()
	<-ended
	watch(3)
	for _, l := range leave {
		l()
		<-ended
	}
}

// begun says that the headers of an answer were written.
type begun struct {
	*httptest.ResponseRecorder
	began chan struct{}
}

func (w *begun) WriteHeader(code int) {
	w.ResponseRecorder.WriteHeader(code)
	w.began <- struct{}{}
}

// TestBusyRunIsWatched: who watches a run from the beginning gets all of it, though more is logged
// while the past is sent than waits for those who take nothing.
func TestBusyRunIsWatched(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	log := func(batch int) {
		var points []obj
		for i := range 1000 {
			points = append(points, obj{"key": "loss", "value": 1, "timestamp": batch, "step": i})
		}
		s.must("POST", "runs/log-batch", obj{"run_id": run, "metrics": points})
	}
	const past, meanwhile = 20, 8
	for i := range past {
		log(i)
	}
	w := &logging{ResponseRecorder: httptest.NewRecorder(), every: 3000, log: log, next: past, end: past + meanwhile}
	w.ended = func() { s.must("POST", "runs/update", obj{"run_id": run, "status": "FINISHED"}) }
	r := httptest.NewRequest("GET", "http://h/api/2.0/berth/metrics/stream?run_id="+run, nil)
	s.s.Serve(w, r, s.ws, s.who, r.URL.EscapedPath())
	got, body := map[string]bool{}, w.Body.String()
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, `data: {"key"`) {
			got[line] = true
		}
	}
	if len(got) != 1000*(past+meanwhile) || !strings.HasSuffix(body, "event: ended\ndata: {\"status\":\"FINISHED\"}\n\n") {
		t.Errorf("%d points, the end is %q", len(got), body[max(0, len(body)-100):])
	}
}

// logging logs a batch each time so many points have been sent to it.
type logging struct {
	*httptest.ResponseRecorder
	every, sent, next, end int
	log                    func(batch int)
	ended                  func()
}

func (w *logging) Write(p []byte) (int, error) {
	if w.sent++; w.sent%w.every == 0 && w.next < w.end {
		w.log(w.next)
		if w.next++; w.next == w.end {
			w.ended()
		}
	}
	return w.ResponseRecorder.Write(p)
}

// TestPrimaryMetric: it is the one that the run's tag names, or else, also if it was never logged,
// the one that was logged last, what the machine measured aside.
func TestPrimaryMetric(t *testing.T) {
	s := start(t, t.TempDir())
	named := at(s.must("POST", "runs/create", obj{"experiment_id": "0", "tags": []obj{{"key": "berth.metric", "value": "acc"}}}), "run", "info", "run_id").(string)
	other := at(s.must("POST", "runs/create", obj{"experiment_id": "0"}), "run", "info", "run_id").(string)
	wrong := at(s.must("POST", "runs/create", obj{"experiment_id": "0", "tags": []obj{{"key": "berth.metric", "value": "accuracy"}}}), "run", "info", "run_id").(string)
	none := at(s.must("POST", "runs/create", obj{"experiment_id": "0"}), "run", "info", "run_id").(string)
	for _, run := range []string{named, other, wrong} {
		s.must("POST", "runs/log-batch", obj{"run_id": run, "metrics": []obj{
			{"key": "acc", "value": 0.9, "timestamp": 1, "step": 1},
			{"key": "loss", "value": 0.3, "timestamp": 2, "step": 4},
			{"key": "system/cpu", "value": 50, "timestamp": 9, "step": 1},
		}})
	}
	got := s.must("POST", "/api/2.0/berth/metrics/primary", obj{"run_ids": []string{named, other, wrong, none, "unknown"}})
	if at(got, "metrics", 0, "run_id") != named || at(got, "metrics", 0, "key") != "acc" || at(got, "metrics", 0, "value") != 0.9 ||
		at(got, "metrics", 1, "run_id") != other || at(got, "metrics", 1, "key") != "loss" ||
		at(got, "metrics", 2, "run_id") != wrong || at(got, "metrics", 2, "key") != "loss" || at(got, "metrics", 3) != nil {
		t.Errorf("got %v", got)
	}
}

// TestOnlyTheStreamGoesOn: a file may be named like the stream of metrics.
func TestOnlyTheStreamGoesOn(t *testing.T) {
	const stream = "2.0/berth/metrics/stream"
	for _, c := range []struct {
		method, path string
		streams      bool
	}{
		{"GET", "/api/" + stream, true},
		{"GET", "/ajax-api/" + stream, true},
		{"POST", "/api/" + stream, false},
		{"GET", "/" + stream, false},
		{"PUT", "/api/2.0/mlflow-artifacts/artifacts/0/r/artifacts/" + stream, false},
		{"GET", "/api/2.0/mlflow-artifacts/artifacts/0/r/artifacts/" + stream, false},
	} {
		if got := track.Streams(c.method, c.path); got != c.streams {
			t.Errorf("%s %s: %v", c.method, c.path, got)
		}
	}
}
