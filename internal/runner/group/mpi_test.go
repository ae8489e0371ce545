package group_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/group"
)

// needMPI skips where there is no Open MPI, and fails where there should be.
func needMPI(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range append(programs, "mpirun") {
		if _, err := exec.LookPath(p); err != nil {
			if strings.Contains(os.Getenv("BERTH_REQUIRE_ENGINES"), "mpi") {
				t.Fatalf("%s is required (BERTH_REQUIRE_ENGINES): %v", p, err)
			}
			t.Skipf("%s is not installed (apt install openmpi-bin libopenmpi-dev)", p)
		}
	}
}

// TestMPI: a real all-reduce over two nodes, each rank in the directory and with the log of its
// node.
func TestMPI(t *testing.T) {
	needMPI(t, "mpicc")
	program := filepath.Join(t.TempDir(), "allreduce")
	if out, err := exec.Command("mpicc", "-o", program, "testdata/allreduce.c").CombinedOutput(); err != nil {
		t.Fatalf("mpicc: %v: %s", err, out)
	}
	t.Setenv("TMPDIR", os.TempDir())
	j := start(t, "mpi", program+`; code=$?; echo NODE_RANK=$NODE_RANK; echo PWD=$PWD; echo TMPDIR=$TMPDIR; echo GROUP=$BERTH_GROUP; exit $code`, []int{2, 2})
	for i, e := range j.wait() {
		if d := cmp.Diff(berth.Exit{}, e); d != "" {
			t.Errorf("node %d: %s", i, d)
		}
	}
	for rank := range 4 {
		node := rank / 2
		log := j.log(node, rank%2)
		if want := fmt.Sprintf("rank %d of 4: the sum is 10\n", rank); !strings.Contains(log, want) {
			t.Errorf("rank %d: %q", rank, log)
		}
		got := vars(log)
		if got["NODE_RANK"] != fmt.Sprint(node) || got["PWD"] != filepath.Join(j.nodes[node].dir, "wd") || got["TMPDIR"] != os.TempDir() || got["GROUP"] != "" {
			t.Errorf("rank %d: %v", rank, got)
		}
	}
	j.clean()
}

// idle goes on for ever, in steps. A child that a shell has only just forked may miss the signal
// that its group is sent, so that one long sleep could outlive the shell; the runner, which ends
// what a launcher leaves, is not here.
const idle = `while :; do sleep 0.1 & wait; done`

// clean checks that nothing is left of a job.
func (j *job) clean() {
	j.t.Helper()
	for i, n := range j.nodes {
		if _, err := os.Stat(filepath.Join(n.dir, "group.sock")); err == nil {
			j.t.Errorf("node %d left its socket", i)
		}
		var left []string
		if !eventually(j.t, func() bool { left = n.processes(); return len(left) == 0 }) {
			j.t.Errorf("node %d left %q", i, left)
		}
		if left, _ := filepath.Glob(filepath.Join(n.dir, "mpi", "*")); len(left) > 0 {
			j.t.Errorf("node %d left %v", i, left)
		}
	}
}

// processes are those of a node that have not ended.
func (n *nodeRun) processes() (words []string) {
	all, _ := os.ReadDir("/proc")
	for _, p := range all {
		env, err := os.ReadFile(filepath.Join("/proc", p.Name(), "environ"))
		if err != nil || !strings.Contains(string(env), group.TaskDir+"="+n.dir+"\x00") {
			continue
		}
		if w, _ := os.ReadFile(filepath.Join("/proc", p.Name(), "cmdline")); len(w) > 0 { // it is not a zombie
			words = append(words, string(w))
		}
	}
	return words
}

func TestMPIFails(t *testing.T) {
	needMPI(t)
	j := start(t, "mpi", `trap 'echo asked; sleep 1.5; echo saved; exit 9' TERM; if [ $OMPI_COMM_WORLD_RANK = 2 ]; then until [ -e ready ]; do sleep 0.01; done; exit 5; fi; >ready; `+idle, []int{2, 2})
	exits := j.wait()
	want := berth.Exit{Code: 5, Process: 2, Log: "user_logs/std_log_process_2.txt", Reason: "process 2 (node 1) ended with exit code 5"}
	if d := cmp.Diff(want, exits[0]); d != "" {
		t.Error(d)
	}
	if e := exits[1]; e.Cause != "peer" || !strings.Contains(e.Reason, "process 2 (node 1)") {
		t.Errorf("the other node: %+v", e)
	}
	// It was given longer than mpirun's one second.
	if got := j.log(1, 1); got != "asked\nsaved\n" {
		t.Errorf("rank 3: %q", got)
	}
	j.clean()
}

// TestMPIStop: a rank that saves its work when asked to end is not cut short because the others are
// faster.
func TestMPIStop(t *testing.T) {
	needMPI(t)
	j := start(t, "mpi", `trap 'if [ $OMPI_COMM_WORLD_RANK = 0 ]; then sleep 2; echo saved; fi; exit 3' TERM; echo ready; `+idle, []int{1, 1})
	j.until(0, 0, "ready")
	j.until(1, 0, "ready")
	// It is enough that one node is asked.
	_ = j.nodes[1].cmd.Process.Signal(syscall.SIGTERM)
	exits := j.wait()
	if exits[0].Code != 3 || exits[1].Cause != "peer" || !strings.Contains(j.log(0, 0), "saved\n") {
		t.Errorf("%+v, log %q", exits, j.log(0, 0))
	}
	j.clean()
}

func TestMPIAbort(t *testing.T) {
	needMPI(t, "mpicc")
	program := filepath.Join(t.TempDir(), "abort")
	if out, err := exec.Command("mpicc", "-o", program, "testdata/allreduce.c", "-DABORT=1").CombinedOutput(); err != nil {
		t.Fatalf("mpicc: %v: %s", err, out)
	}
	j := start(t, "mpi", program, []int{1, 2})
	want := berth.Exit{Code: 6, Process: 1, Log: "user_logs/std_log_process_1.txt", Reason: "process 1 (node 1) called MPI_Abort with error code 6"}
	if d := cmp.Diff(want, j.wait()[0]); d != "" {
		t.Errorf("%s; log %s", d, j.log(0, 0))
	}
	j.clean()
}

// TestMPINodeGone: a node whose launcher is killed ends the job on the others.
func TestMPINodeGone(t *testing.T) {
	needMPI(t)
	for victim := range 2 {
		j := start(t, "mpi", `echo ready; sleep 600`, []int{1, 1})
		j.until(0, 0, "ready")
		j.until(1, 0, "ready")
		_ = j.nodes[victim].cmd.Process.Kill()
		e := <-result(j, 1-victim)
		if e.Cause != "peer" || !strings.Contains(e.Reason, fmt.Sprintf("node %d (127.0.0.1) is gone", victim)) {
			t.Errorf("node %d was killed: %+v", victim, e)
		}
	}
}

// TestMPIStranger: who does not know the secret has nothing run.
func TestMPIStranger(t *testing.T) {
	needMPI(t)
	port := 0
	j := start(t, "mpi", `echo ready`, []int{1, 1}, func(s *group.Spec) {
		port = s.Group.Port
		if s.Group.Node == 0 {
			s.Group.Secret = "a guess"
		}
	})
	j.until(1, 0, "it does not know the secret of the job")
	for _, n := range j.nodes {
		_ = n.cmd.Process.Signal(syscall.SIGTERM)
	}
	for i, e := range j.wait() {
		if e.Code != 143 {
			t.Errorf("node %d: %+v", i, e)
		}
	}
	if c, err := net.DialTimeout("tcp", fmt.Sprint("127.0.0.1:", port+1), time.Second); err == nil {
		c.Close()
		t.Error("somebody still listens")
	}
}

func TestNoMPI(t *testing.T) {
	empty := t.TempDir()
	t.Setenv("PATH", empty)
	j := start(t, "mpi", "true", []int{1})
	if e := j.wait()[0]; e.Code != 127 || e.Cause != "command" || !strings.Contains(e.Reason, "apt install openmpi-bin") {
		t.Errorf("%+v", e)
	}
	other := filepath.Join(empty, "mpirun")
	if err := os.WriteFile(other, []byte("#!/bin/sh\necho HYDRA build details:\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	j = start(t, "mpi", "true", []int{1})
	if e := j.wait()[0]; e.Code != 127 || !strings.Contains(e.Reason, "is not Open MPI's (HYDRA build details:)") {
		t.Errorf("%+v", e)
	}
}
