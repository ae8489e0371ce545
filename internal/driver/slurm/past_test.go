package slurm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// TestPast: a job that the controller has forgotten ended as the accounts say. They may be behind
// for a while; where there are none, it is lost.
func TestPast(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for _, x := range []struct {
		name, sacct   string
		gone          time.Duration
		cause, reason string // both empty: it is not over
	}{
		{"no accounts", "echo 'Slurm accounting storage is disabled' >&2; exit 1", 10 * time.Second, "lost", "has no accounts"},
		{"behind", "exit 0", 10 * time.Second, "", ""},
		{"unknown", "exit 0", 2 * time.Minute, "lost", "does not know"},
		{"not over there", "echo 'RUNNING|0:0|n1'", 2 * time.Minute, "", ""},
		{"a moment ago", "echo 'TIMEOUT|0:0|n1'", time.Second, "", ""},
		{"timeout", "echo 'TIMEOUT|0:0|n1'", 10 * time.Second, "timeout", "time limit"},
		{"canceled", "echo 'CANCELLED by 1000|0:15|n1'", 10 * time.Second, "canceled", "canceled there"},
		{"preempted", "echo 'PREEMPTED|0:0|n1'", 10 * time.Second, "evicted", "preempted"},
		{"node", "echo 'NODE_FAIL|1:0|n1'", 10 * time.Second, "lost", "node n1"},
		{"memory", "echo 'OUT_OF_MEMORY|0:125|n1'", 10 * time.Second, "", "out of memory"},
		{"failed", "echo 'FAILED|9:0|n1'", 10 * time.Second, "", "exit code 9 or 137"},
		{"killed", "echo 'FAILED|0:9|n1'", 10 * time.Second, "", "exit code 137"},
	} {
		if err := os.WriteFile(filepath.Join(dir, "sacct"), []byte("#!/bin/sh\n"+x.sacct+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		d := openArrays(t, t.TempDir())
		d.mu.Lock()
		err := d.load()
		r := &record{Task: "a.1", Name: driver.Key("a.1"), Job: "7", gone: time.Now().Add(-x.gone)}
		if err == nil {
			err = d.missing(t.Context(), r, time.Now())
		}
		d.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		e := r.Exit
		if e == nil {
			e = new(berth.Exit)
		}
		if (r.Exit == nil) != (x.reason == "") || e.Cause != x.cause || !strings.Contains(e.Reason, x.reason) {
			t.Errorf("%s: exit %+v", x.name, r.Exit)
		}
	}
}
