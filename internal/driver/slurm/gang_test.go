//go:build engines

package slurm_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/drivertest"
)

// gang is a gang of the fixture's.
func (f *fixture) gang(n int, commands ...string) []berth.Launch {
	return drivertest.Fixture{Launch: func(command string) berth.Launch { return f.launch(n, command) }}.Gang(commands...)
}

// running starts a gang and waits until all its commands have written "ready".
func (f *fixture) running(ctx context.Context, t *testing.T, all []berth.Launch) []driver.Handle {
	t.Helper()
	hs, err := f.d.(driver.Ganger).StartGang(ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		for f.log(l) != "ready\n" {
			if seen, err := f.d.Observe(ctx); err != nil || ctx.Err() != nil {
				t.Fatalf("%v, %v: %+v", err, ctx.Err(), seen)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return hs
}

// TestGangNodes: the tasks of a gang know where the others are, and each is on a node of its own.
func TestGangNodes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	f := open(t)
	const command = `echo "$NODE_RANK $MASTER_ADDR $AZUREML_NODE_COUNT $AZ_BATCH_HOST_LIST $SLURMD_NODENAME"`
	all := f.gang(1, command, command)
	if _, err := f.d.(driver.Ganger).StartGang(ctx, all); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"0 127.0.0.1 2 127.0.0.1,127.0.0.1", "1 127.0.0.1 2 127.0.0.1,127.0.0.1"} {
		if o := drivertest.Wait(ctx, t, f.d, all[i].Task); !o.Exit.OK() {
			t.Errorf("task %d: exit %+v", i, o.Exit)
		}
		if got := f.log(all[i]); !strings.HasPrefix(got, want) {
			t.Errorf("task %d wrote %q, want %q", i, got, want)
		}
	}
}

// TestGangLoses: a gang of which the runner of one task is killed, or a node is lost, ends as a
// whole with a reason.
func TestGangLoses(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	f := open(t)
	all := f.gang(1, "echo ready; sleep 600", "echo ready; sleep 600")
	f.running(ctx, t, all)
	killed := 0
	found, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range found {
		pid := filepath.Base(filepath.Dir(path))
		line, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		env, _ := os.ReadFile(path)
		if bytes.Contains(line, []byte("_task\x00")) && bytes.Contains(line, []byte("--member")) && bytes.Contains(env, []byte("SLURM_PROCID=1\x00")) && bytes.Contains(env, []byte(f.Conf)) {
			n := 0
			for _, c := range pid {
				n = 10*n + int(c-'0')
			}
			if err := syscall.Kill(n, syscall.SIGKILL); err == nil {
				killed++
			}
		}
	}
	if killed != 1 {
		t.Fatalf("killed %d runners", killed)
	}
	for _, l := range all {
		if o := drivertest.Wait(ctx, t, f.d, l.Task); o.Exit.OK() || o.Exit.Reason == "" {
			t.Errorf("%s, of a gang that lost a runner: exit %+v", l.Task, o.Exit)
		}
	}

	all = f.gang(2, "echo ready; sleep 600", "echo ready; sleep 600")
	f.running(ctx, t, all)
	if out, err := exec.Command("scontrol", "update", "nodename=n2", "state=down", "reason=lost").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, l := range all {
		if o := drivertest.Wait(ctx, t, f.d, l.Task); o.Exit.Cause != "lost" || !strings.Contains(o.Exit.Reason, "failed") {
			t.Errorf("%s, of a gang that lost a node: exit %+v", l.Task, o.Exit)
		}
	}

	// There is one node left: a gang of two waits, and can be stopped while it does.
	if out, err := exec.Command("scontrol", "update", "nodename=n2", "state=drain", "reason=test").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	all = f.gang(3, "true", "true")
	hs, err := f.d.(driver.Ganger).StartGang(ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	for why := ""; why == ""; time.Sleep(20 * time.Millisecond) {
		seen, err := f.d.Observe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range seen {
			if o.Task == all[1].Task && o.State != berth.TaskPlaced {
				t.Fatalf("without a second node: %+v", o)
			} else if o.Task == all[1].Task {
				why = o.Why
			}
		}
	}
	if err := f.d.Stop(ctx, hs[1], driver.Stop{Grace: time.Second}); err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		if o := drivertest.Wait(ctx, t, f.d, l.Task); o.Exit.Cause != "canceled" {
			t.Errorf("%s, of a gang that waited: exit %+v", l.Task, o.Exit)
		}
	}
}
