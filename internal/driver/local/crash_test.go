//go:build linux

package local_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/driver/local"
	"github.com/berthml/berth/internal/runner/host"
)

// victim says which processes of a host are killed.
type victim string

const (
	worker victim = "worker"
	reaper victim = "reaper"
	both   victim = "both"
)

// kills is how often each is killed. A task is lost when both processes were killed that were there
// when it began, one after the other or at once; the reaper alone can be killed only once for that.
var kills = map[victim]int{worker: 4, reaper: 1, both: 2}

// TestKill kills parts of the host at random times while tasks run. Each task must run once, end
// once, and keep its whole log, and as long as one of the two processes lives it must be known how
// it ended.
func TestKill(t *testing.T) {
	for _, v := range []victim{worker, reaper, both} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s/%d", v, seed), func(t *testing.T) {
				t.Parallel()
				killRound(t, v, rand.New(rand.NewPCG(seed, 1)))
			})
		}
	}
}

func killRound(t *testing.T, v victim, rnd *rand.Rand) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	d, dir := open(t)
	h := newHome(t, dir)
	out := t.TempDir()
	if _, err := d.Probe(ctx); err != nil {
		t.Fatal(err)
	}
	const n = 24
	codes := map[berth.TaskID]int{}
	next := time.NewTimer(time.Duration(rnd.IntN(60)) * time.Millisecond)
	killed := 0
	for i := range n {
		id := berth.TaskID(fmt.Sprintf("t%d.1", i))
		codes[id] = rnd.IntN(4)
		l := berth.Launch{
			Task: id, Job: string(id), Attempt: 1, LogFile: filepath.Join(out, string(id)+".log"), Home: berth.Home{URL: h.url, Token: "x"},
			Command: fmt.Sprintf("echo begin >>%s/%s; sleep 0.%02d; echo out; echo end >>%s/%s; exit %d", out, id, rnd.IntN(60), out, id, codes[id]),
		}
		// As the control loop does: again until it is accepted.
		for {
			if _, err := d.Start(ctx, l); err == nil {
				break
			} else if berth.CodeOf(err) != berth.Unavailable || ctx.Err() != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-next.C:
			if killed < kills[v] {
				kill(ctx, t, dir, v)
				killed++
				next.Reset(time.Duration(10+rnd.IntN(120)) * time.Millisecond)
			}
		case <-time.After(time.Duration(rnd.IntN(30)) * time.Millisecond):
		}
	}
	for id, code := range codes {
		o := drivertest.Wait(ctx, t, retrying{d}, id)
		check(t, v, id, o.Exit, code, out)
		r := <-h.await(id)
		if diff := cmp.Diff(o.Exit, r.Exit); diff != "" {
			t.Errorf("%s: observed and reported ends differ: %s", id, diff)
		}
	}
}

func check(t *testing.T, v victim, id berth.TaskID, exit *berth.Exit, code int, out string) {
	t.Helper()
	marks, _ := os.ReadFile(filepath.Join(out, string(id)))
	switch exit.Cause {
	case "":
		log, _ := os.ReadFile(filepath.Join(out, string(id)+".log"))
		if exit.Code != code || string(marks) != "begin\nend\n" || string(log) != "out\n" {
			t.Errorf("%s: exit %+v, want code %d; it left %q and logged %q", id, exit, code, marks, log)
		}
	case "lost":
		if bytes.Count(marks, []byte("begin")) > 1 {
			t.Errorf("%s ran twice: %q", id, marks)
		}
		if v != both && !strings.Contains(exit.Reason, "while it started") {
			t.Errorf("%s was lost although one of the host's processes lived: %s", id, exit.Reason)
		}
	default:
		t.Errorf("%s: exit %+v", id, exit)
	}
}

// kill kills processes of the host of dir that is there now.
func kill(ctx context.Context, t *testing.T, dir string, v victim) {
	t.Helper()
	c := host.NewClient(dir)
	defer c.Close()
	info, err := c.Info(ctx)
	if err != nil {
		return // between two lives
	}
	if v == both || v == reaper {
		_ = syscall.Kill(info.Reaper, syscall.SIGKILL)
	}
	if v == both || v == worker {
		_ = syscall.Kill(info.PID, syscall.SIGKILL)
	}
}

// retrying asks again while the host is between two lives.
type retrying struct {
	*local.Driver
}

func (r retrying) Observe(ctx context.Context) (all []driver.Observed, err error) {
	for {
		if all, err = r.Driver.Observe(ctx); berth.CodeOf(err) != berth.Unavailable || ctx.Err() != nil {
			return all, err
		}
	}
}
