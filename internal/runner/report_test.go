//go:build linux

package runner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
)

// server is a home that keeps what it is told.
type server struct {
	mu      sync.Mutex
	away    bool
	refuse  map[berth.TaskID]int // status to refuse a task's reports with
	reports []berth.Report
	calls   int
	log     []byte
	got     chan struct{}
}

func newServer() *server {
	return &server{got: make(chan struct{}, 1000), refuse: map[berth.TaskID]int{}}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.got <- struct{}{} }()
	s.calls++
	if s.away {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	b, _ := io.ReadAll(r.Body)
	if r.URL.Path != "/runner/v1/reports" {
		at, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		if r.URL.Query().Get("name") != "user_logs/std_log.txt" || r.Header.Get("Authorization") != "Bearer token" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if at != len(s.log) {
			w.WriteHeader(http.StatusConflict)
		} else {
			s.log = append(s.log, b...)
		}
		_ = json.NewEncoder(w).Encode(map[string]int{"size": len(s.log)})
		return
	}
	var rs []berth.Report
	if err := json.Unmarshal(b, &rs); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, rep := range rs {
		if code := s.refuse[rep.Task]; code != 0 {
			w.WriteHeader(code)
			return
		}
	}
	s.reports = append(s.reports, rs...)
	_, _ = io.WriteString(w, `{"stop":["halt.1"]}`)
}

func (s *server) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// serve is the address of s over TCP.
func serve(t *testing.T, s *server) string {
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return srv.URL
}

// eachHome tests over TCP and over a unix socket.
func eachHome(t *testing.T, f func(t *testing.T, s *server, h *runner.HTTPHome)) {
	t.Run("tcp", func(t *testing.T) {
		s := newServer()
		h, err := runner.NewHTTPHome(serve(t, s), "")
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		f(t, s, h)
	})
	t.Run("unix", func(t *testing.T) {
		s := newServer()
		dir, err := os.MkdirTemp("", "br")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "s")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: s}}
		srv.Start()
		defer srv.Close()
		h, err := runner.NewHTTPHome("unix://"+path, "")
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		f(t, s, h)
	})
}

// drive runs a reporter until the test ends.
func drive(t *testing.T, h runner.Home, o runner.ReporterOptions) *runner.Reporter {
	r := runner.NewReporter(h, o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return r
}

func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("waiting for %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestReporter(t *testing.T) {
	eachHome(t, func(t *testing.T, s *server, h *runner.HTTPHome) {
		delivered := make(chan berth.Report, 10)
		stops := make(chan berth.TaskID, 10)
		r := drive(t, h, runner.ReporterOptions{
			Delivered: func(r berth.Report) { delivered <- r }, Stop: func(id berth.TaskID) { stops <- id },
		})
		want := berth.Report{Task: "a.1", Token: "token", Seq: 2, State: berth.TaskDone, Exit: &berth.Exit{Code: 1}}
		r.Send(t.Context(), berth.Report{Task: "a.1", Token: "token", Seq: 1, State: berth.TaskRunning, Warning: "w"})
		r.Send(t.Context(), want)
		// The first may be on its way already, or have been merged into the second: the end comes
		// last, the warning once.
		warnings := 0
		for got := (berth.Report{}); got.State != berth.TaskDone; {
			got = <-delivered
			if got.Warning == "w" {
				warnings++
			}
			if got.State == berth.TaskDone {
				got.Warning = ""
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			}
		}
		if warnings != 1 {
			t.Errorf("the warning came %d times", warnings)
		}
		if id := <-stops; id != "halt.1" {
			t.Errorf("stop %s", id)
		}
	})
}

// TestReporterAway sends while the server is away: when it is back, the newest state of each task
// arrives, in order.
func TestReporterAway(t *testing.T) {
	eachHome(t, func(t *testing.T, s *server, h *runner.HTTPHome) {
		s.set(func() { s.away = true })
		r := drive(t, h, runner.ReporterOptions{MaxWait: 5 * time.Millisecond})
		for i := 1; i <= 100; i++ {
			r.Send(t.Context(), berth.Report{Task: "a.1", Seq: i, State: berth.TaskRunning})
			r.Send(t.Context(), berth.Report{Task: "b.1", Seq: i, State: berth.TaskRunning})
		}
		<-s.got // it was asked at least once
		r.Send(t.Context(), berth.Report{Task: "a.1", Seq: 101, State: berth.TaskDone, Exit: &berth.Exit{}})
		s.set(func() { s.away = false })
		wait(t, "the queue to empty", r.Idle)
		s.set(func() {
			last := map[berth.TaskID]berth.Report{}
			for _, rep := range s.reports {
				if rep.Seq <= last[rep.Task].Seq {
					t.Errorf("report %d after %d", rep.Seq, last[rep.Task].Seq)
				}
				last[rep.Task] = rep
			}
			if last["a.1"].State != berth.TaskDone || last["b.1"].Seq != 100 {
				t.Errorf("%+v", last)
			}
			if len(s.reports) > 4 {
				t.Errorf("%d reports", len(s.reports))
			}
		})
	})
}

// calls is a home that notes when it was called with how many reports.
type calls struct {
	mu    sync.Mutex
	sizes []int
	at    []time.Time
}

func (c *calls) Report(_ context.Context, rs []berth.Report) (runner.Reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sizes, c.at = append(c.sizes, len(rs)), append(c.at, time.Now())
	return runner.Reply{}, nil
}

func (c *calls) SignStorage(context.Context, runner.Task, string, []berth.OutsideRequest) ([]string, error) {
	return nil, berth.Errorf(berth.Unsupported, "nothing is signed here")
}

func (c *calls) AppendLog(context.Context, runner.Task, string, int64, []byte) (int64, error) {
	return 0, errors.New("not here")
}

// TestReporterGathers ends a task each millisecond: while there is enough to do the ends go
// together and none waits for long, and otherwise each goes at once.
func TestReporterGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var home calls
		var busy atomic.Bool
		busy.Store(true)
		r := drive(t, &home, runner.ReporterOptions{Busy: busy.Load})
		end := func(id string) {
			r.Send(t.Context(), berth.Report{Task: berth.TaskID(id), Seq: 1, At: time.Now(), State: berth.TaskDone})
		}
		began := time.Now()
		for i := range 100 {
			end("busy." + strconv.Itoa(i))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait() // for what was noted to be seen here
		sum := 0
		for i, n := range home.sizes {
			sum += n
			if i > 0 && home.at[i].Sub(home.at[i-1]) > 45*time.Millisecond {
				t.Errorf("nothing was sent between %v and %v", home.at[i-1].Sub(began), home.at[i].Sub(began))
			}
		}
		if n := len(home.sizes); sum != 100 || n < 3 || n > 10 {
			t.Errorf("%d reports in %d calls: %v", sum, n, home.sizes)
		}
		busy.Store(false)
		home.sizes = nil
		for i := range 10 {
			end("idle." + strconv.Itoa(i))
		}
		synctest.Wait()
		if len(home.sizes) != 10 {
			t.Errorf("with time to spare the ends went as %v", home.sizes)
		}
	})
}

// absent is a home that is away for the first call.
type absent struct {
	calls
	was atomic.Bool
}

func (a *absent) Report(ctx context.Context, rs []berth.Report) (runner.Reply, error) {
	if !a.was.Swap(true) {
		return runner.Reply{}, berth.Errorf(berth.Unavailable, "not yet")
	}
	return a.calls.Report(ctx, rs)
}

// TestReporterAwayWhileBusy: a report that could not be sent, and is so young that it may wait for
// others, is sent later, as are all that come after it.
func TestReporterAwayWhileBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var home absent
		r := drive(t, &home, runner.ReporterOptions{Busy: func() bool { return true }})
		for _, id := range []berth.TaskID{"a.1", "b.1"} {
			r.Send(t.Context(), berth.Report{Task: id, Seq: 1, At: time.Now(), State: berth.TaskDone})
			time.Sleep(time.Minute)
			if !r.Idle() {
				t.Errorf("the end of %s was not sent within a minute", id)
			}
		}
	})
}

// TestReporterRefused sends a report the server refuses among others: it is dropped, the others
// arrive.
func TestReporterRefused(t *testing.T) {
	for _, code := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound} {
		eachHome(t, func(t *testing.T, s *server, h *runner.HTTPHome) {
			s.set(func() { s.refuse["bad.1"] = code })
			r := drive(t, h, runner.ReporterOptions{})
			for _, id := range []berth.TaskID{"a.1", "bad.1", "b.1"} {
				r.Send(t.Context(), berth.Report{Task: id, Seq: 1, State: berth.TaskDone})
			}
			wait(t, "the queue to empty", r.Idle)
			s.set(func() {
				if len(s.reports) != 2 || s.reports[0].Task == "bad.1" || s.reports[1].Task == "bad.1" {
					t.Errorf("%+v", s.reports)
				}
			})
		})
	}
}

// TestShip sends the log of a task whose node does not share the server's disk.
func TestShip(t *testing.T) {
	eachHome(t, func(t *testing.T, s *server, h *runner.HTTPHome) {
		b := newBench(t, "echo first; head -c 3000000 /dev/zero; echo last")
		b.launch.LogFile = ""
		b.launch.Home.Token = "token"
		b.options.Home = h
		s.set(func() { s.log = []byte("fir") }) // an earlier runner got this far
		if exit := b.run(); !exit.OK() {
			t.Fatalf("exit %+v", exit)
		}
		want := append(append([]byte("first\n"), make([]byte, 3000000)...), "last\n"...)
		if !bytes.Equal(s.log, want) {
			t.Errorf("%d bytes arrived, want %d", len(s.log), len(want))
		}
	})
}

// TestEmptyAnswerIsNoReceipt: a report that was answered with 200 and nothing, or with what no
// server of ours says, is sent again.
func TestEmptyAnswerIsNoReceipt(t *testing.T) {
	for _, body := range []string{"", "null", "ok", "[]"} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, body) }))
		defer srv.Close()
		h, err := runner.NewHTTPHome(srv.URL, "")
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		if _, err := h.Report(t.Context(), []berth.Report{{Task: "a.1"}}); berth.CodeOf(err) != berth.Unavailable {
			t.Errorf("Report answered %q: %v", body, err)
		}
		if _, err := h.AppendLog(t.Context(), runner.Task{ID: "a.1"}, "user_logs/std_log.txt", 0, []byte("x")); berth.CodeOf(err) != berth.Unavailable {
			t.Errorf("AppendLog answered %q: %v", body, err)
		}
	}
}

func TestHomeErrors(t *testing.T) {
	for _, u := range []string{"", "ftp://x", "https://", "::"} {
		if _, err := runner.NewHTTPHome(u, ""); berth.CodeOf(err) != berth.Invalid {
			t.Errorf("%q: %v", u, err)
		}
	}
	if _, err := runner.NewHTTPHome("https://x", "not PEM"); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("%v", err)
	}
	h, err := runner.NewHTTPHome("unix:///nowhere/s", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Report(t.Context(), nil); berth.CodeOf(err) != berth.Unavailable || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestTurn: the next task is what the server says, and an answer that does not say it is none.
func TestTurn(t *testing.T) {
	var answer string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); r.URL.Path != "/runner/v1/tasks/a.1/turn" || string(b) != `{"array":"x","runner":2}` || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s %s, %v", r.URL.Path, b, r.Header)
		}
		io.WriteString(w, answer)
	}))
	defer srv.Close()
	h, err := runner.NewHTTPHome(srv.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, tt := range []struct {
		answer string
		want   int
		code   berth.Code
	}{
		{`{"task":0}`, 0, ""},
		{`{"task":7}`, 7, ""},
		{`{"task":-1}`, berth.NoTurn, ""},
		{`{}`, berth.NoTurn, berth.Unavailable},
		{`{"task":null}`, berth.NoTurn, berth.Unavailable},
		{`{"task":-5}`, berth.NoTurn, berth.Unavailable},
		{`<html>`, berth.NoTurn, berth.Unavailable},
	} {
		answer = tt.answer
		got, err := h.Turn(t.Context(), runner.Task{ID: "a.1", Token: "secret"}, berth.Turn{Array: "x", Runner: 2})
		if got != tt.want || berth.CodeOf(err) != tt.code {
			t.Errorf("%s: %d, %v", tt.answer, got, err)
		}
	}
}
