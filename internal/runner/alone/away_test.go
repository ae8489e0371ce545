//go:build unix

package alone

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
)

// TestServerAway: a process that is to run a task of an array and cannot ask its server which gives
// its node back after a while, and runs nothing; those after it on the node wait less, until one
// has heard of the server. One whose task has ended says so before it asks for the next.
func TestServerAway(t *testing.T) {
	var away atomic.Bool
	var ends, turns atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		switch {
		case away.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case strings.HasSuffix(r.URL.Path, "/turn"):
			if turns.Add(1) > 1 { // it goes once the first task has ended
				away.Store(true)
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			fmt.Fprint(w, `{"task":0}`)
		case strings.HasSuffix(r.URL.Path, "/log"):
			fmt.Fprintf(w, `{"size":%d}`, len(b))
		default:
			if strings.Contains(string(b), `"done"`) {
				ends.Add(1)
			}
			fmt.Fprint(w, "{}")
		}
	}))
	defer srv.Close()
	t.Setenv("TMPDIR", t.TempDir())
	ran := filepath.Join(t.TempDir(), "ran")
	var all []berth.Launch
	for i := range 2 {
		all = append(all, berth.Launch{
			Task: berth.TaskID(fmt.Sprintf("a%d.1", i)), Job: "a", Attempt: 1, Command: "echo $0 >> " + ran, Home: berth.Home{URL: srv.URL, Token: "x"},
		})
	}
	script, err := berth.AppendLaunches(nil, all)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	p := newPatience(srv.URL, log)
	if p.left() != awayTime {
		t.Errorf("the first waits %v", p.left())
	}
	p.first, p.again = 50*time.Millisecond, 51*time.Millisecond
	run := func(index int) int {
		return array{name: "b-1", script: script, index: index, dir: t.TempDir(), origin: runner.NewOrigin(), log: log, patience: p}.run(t.Context())
	}
	if code := run(0); code != berth.ExitAway || ends.Load() != 1 {
		t.Errorf("after its task the process ends with code %d, and %d ends were reported", code, ends.Load())
	}
	if p.left() != p.again {
		t.Errorf("the second waits %v", p.left())
	}
	if code := run(1); code != berth.ExitAway {
		t.Errorf("the second ends with code %d", code)
	}
	if b, err := os.ReadFile(ran); err != nil || strings.Count(string(b), "\n") != 1 {
		t.Errorf("%q has run, %v", b, err)
	}
	away.Store(false)
	turns.Store(0)
	run(0)
	away.Store(false)
	if b, err := os.ReadFile(ran); err != nil || strings.Count(string(b), "\n") != 2 {
		t.Errorf("%q has run, %v", b, err)
	}
	p.answered()
	if p.left() != p.first {
		t.Errorf("once the server has answered, %v is waited for it", p.left())
	}
	if err := os.WriteFile(p.file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * awayKept)
	if err := os.Chtimes(p.file, old, old); err != nil || p.left() != p.first {
		t.Errorf("long after that %v is waited for it, %v", p.left(), err)
	}
	for code, want := range map[int]int{0: 0, 3: 3, berth.ExitAway: 1, berth.ExitAway + 128: 1} {
		if got := ofCommand(code); got != want {
			t.Errorf("a command that ends with %d ends the process with %d", code, got)
		}
	}
}
