//go:build engines

package slurm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/driver/slurm"
	"github.com/berthml/berth/internal/driver/slurm/slurmtest"
)

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// with is a driver of the fixture's cluster with properties of its own.
func (f *fixture) with(t *testing.T, properties string) driver.Driver {
	t.Helper()
	d, err := slurm.Open(driver.Config{
		Name: "site", Dir: t.TempDir(), Home: filepath.Join(f.dir, "none"), Program: programHash,
		Properties: []byte(`{"properties":{"computeType":"Slurm","properties":` + properties + `}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.(io.Closer).Close() })
	f.answers(d)
	return d
}

// begin starts a task and waits until its command has written "ready".
func (f *fixture) begin(ctx context.Context, t *testing.T, d driver.Driver, l berth.Launch) {
	t.Helper()
	if _, err := d.Start(ctx, l); err != nil {
		t.Fatal(err)
	}
	for f.log(l) != "ready\n" {
		if seen, err := d.Observe(ctx); err != nil || ctx.Err() != nil {
			t.Fatalf("%v, %v: %+v", err, ctx.Err(), seen)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// why waits until a task that waits has a reason with a word in it.
func why(ctx context.Context, t *testing.T, d driver.Driver, id berth.TaskID, word string) {
	t.Helper()
	for {
		seen, err := d.Observe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range seen {
			if o.Task == id && o.State == berth.TaskPlaced && strings.Contains(o.Why, word) {
				return
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("no reason with %q: %+v", word, seen)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestEnds has Slurm end jobs in each of its ways, which are told apart: the time limit,
// preemption, the loss of a node, out of memory. A task that waits for a drained node says so.
func TestEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	f := openOn(t, slurmtest.Start(t, 2, 2, slurmtest.Cgroup, "PreemptType=preempt/partition_prio", "PreemptMode=CANCEL", "OverTimeLimit=0",
		"PartitionName=urgent Nodes=n1 PriorityTier=10 MaxTime=INFINITE State=UP"))
	const sleep = "echo ready; exec sleep 600"

	limited := f.with(t, `{"timeLimit":"PT1M","options":["--nodelist=n2"]}`)
	late := f.launch(1, sleep)
	f.begin(ctx, t, limited, late) // and takes a minute, beside the rest

	on1 := f.with(t, `{"options":["--nodelist=n1"]}`)
	hungry := f.launch(2, "echo ready; exec python3 -c 'x = bytearray(1 << 30)'")
	hungry.Memory = 200 << 20
	if _, err := on1.Start(ctx, hungry); err != nil {
		t.Fatal(err)
	}
	if o := drivertest.Wait(ctx, t, on1, hungry.Task); !o.Exit.OOM && o.Exit.Code != 137 {
		t.Errorf("out of memory: exit %+v", o.Exit)
	}

	evicted := f.launch(3, sleep)
	f.begin(ctx, t, on1, evicted)
	command(t, "sbatch", "--partition=urgent", "--exclusive", "--nodes=1", "--output=/dev/null", "--wrap=sleep 2")
	if o := drivertest.Wait(ctx, t, on1, evicted.Task); o.Exit.Cause != "evicted" || !strings.Contains(o.Exit.Reason, "preempted") {
		t.Errorf("preempted: exit %+v", o.Exit)
	}

	lost := f.launch(4, sleep)
	f.begin(ctx, t, on1, lost)
	command(t, "scontrol", "update", "nodename=n1", "state=down", "reason=lost")
	if o := drivertest.Wait(ctx, t, on1, lost.Task); o.Exit.Cause != "lost" || !strings.Contains(o.Exit.Reason, "failed") {
		t.Errorf("on a node that is lost: exit %+v", o.Exit)
	}
	_ = exec.Command("scontrol", "update", "nodename=n1", "state=resume").Run() // it may have come back by itself
	command(t, "scontrol", "update", "nodename=n1", "state=drain", "reason=repair")
	waits := f.launch(5, "true")
	if _, err := on1.Start(ctx, waits); err != nil {
		t.Fatal(err)
	}
	why(ctx, t, on1, waits.Task, "drained")
	command(t, "scontrol", "update", "nodename=n1", "state=resume")
	if o := drivertest.Wait(ctx, t, on1, waits.Task); !o.Exit.OK() {
		t.Errorf("after the node was drained: exit %+v", o.Exit)
	}

	if o := drivertest.Wait(ctx, t, limited, late.Task); o.Exit.Cause != "timeout" {
		t.Errorf("out of time: exit %+v", o.Exit)
	}
}

// TestNodeSilent: tasks that Slurm gives to a node which does not answer are not canceled: those of
// an array, of which nothing has run, start again, and one with a job of its own has failed for
// that reason.
func TestNodeSilent(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	f := openOn(t, slurmtest.Start(t, 1, 4, "MessageTimeout=3"))
	thaw := f.Freeze(t, "slurmd-n1")
	all := []berth.Launch{f.launch(1, "sleep 600"), f.launch(2, "sleep 600"), f.launch(3, "sleep 600"), f.launch(4, "sleep 600")}
	f.startAll(ctx, t, all[:1])
	f.startAll(ctx, t, all[1:]) // the first of them by itself, and then the rest
	files, err := filepath.Glob(filepath.Join(f.dir, "tasks", "*.array"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no array was submitted: %v", err)
	}
	want := map[berth.TaskID]string{}
	for _, l := range all {
		want[l.Task] = "lost"
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		var array struct{ Tasks []berth.TaskID }
		if err == nil {
			err = json.NewDecoder(bytes.NewReader(b)).Decode(&array)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range array.Tasks {
			want[id] = "evicted"
		}
	}
	if want[all[0].Task] != "lost" {
		t.Fatalf("the task that was started by itself is in an array: %v", want)
	}
	for { // until Slurm has given them up
		out, err := exec.CommandContext(ctx, "squeue", "--noheader", "--states=COMPLETING", "--array").Output()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(out), "\n") == len(all) {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	thaw()
	for _, l := range all {
		o := drivertest.Wait(ctx, t, f.d, l.Task)
		if o.Exit.Cause != want[l.Task] || !strings.Contains(o.Exit.Reason, "did not answer") {
			t.Errorf("%s, of %v: %+v", l.Task, want, o.Exit)
		}
	}
}
