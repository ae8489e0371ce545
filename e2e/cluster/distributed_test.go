//go:build linux

package cluster_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// needs skips where a program cannot be had, and fails where it should be.
func needs(t *testing.T, engine string, words ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
		if strings.Contains(os.Getenv("BERTH_REQUIRE_ENGINES"), engine) {
			t.Fatalf("%s is required (BERTH_REQUIRE_ENGINES): %v: %s", engine, err, out)
		}
		t.Skipf("%v: %v", words, err)
	}
}

// two makes a cluster of up to two nodes that may be taken away.
func two(t *testing.T, name string) *story {
	t.Helper()
	s := start(t)
	s.cluster(name, "--size", "Standard_DS1_v2", "--max-instances", "2", "--tier", "low_priority")
	t.Cleanup(func() { s.run("compute", "delete", "-n", name, "--yes") })
	return s
}

func (s *story) log(job string, process int) string {
	s.t.Helper()
	return s.run("logs", job, "--file", fmt.Sprintf("user_logs/std_log_process_%d.txt", process))
}

// sums checks that each of four processes came to the right sum.
func (s *story) sums(job string) {
	s.t.Helper()
	if got := s.status(job); got != "Completed" {
		s.t.Fatalf("%s is %s: %s", job, got, s.reason(job))
	}
	for rank := range 4 {
		if log := s.log(job, rank); !strings.Contains(log, fmt.Sprintf("rank %d of 4 ", rank)) || !strings.Contains(log, "the sum is 10\n") {
			s.t.Errorf("process %d: %q", rank, log)
		}
	}
}

func TestMPIExample(t *testing.T) {
	t.Parallel()
	needs(t, "mpi", "mpicc", "--version")
	s := two(t, "cpu-cluster")
	s.run("job", "create", "-f", "../../examples/distributed/mpi_allreduce/job.yml", "-n", "mpi", "--stream")
	s.sums("mpi")
}

// TestTorchExample runs the program of the example with the Python of BERTH_TORCH_PYTHON, which has
// torch.
func TestTorchExample(t *testing.T) {
	t.Parallel()
	python := os.Getenv("BERTH_TORCH_PYTHON")
	if python == "" {
		python = "python3"
	}
	needs(t, "torch", python, "-c", "import torch.distributed")
	s := two(t, "cpu-cluster")
	code, err := filepath.Abs("../../examples/distributed/torch_allreduce")
	if err != nil {
		t.Fatal(err)
	}
	file := write(t, fmt.Sprintf(`
type: command
compute: azureml:cpu-cluster
code: %s
command: %s train.py
environment: {image: none}
properties: {berth.environment: host}
resources: {instance_count: 2}
distribution: {type: pytorch, process_count_per_instance: 2}
`, code, python))
	s.run("job", "create", "-f", file, "-n", "torch", "--stream")
	s.sums("torch")
}

// TestGang: one process of a job of two nodes fails, and its log is the one that is shown.
func TestGang(t *testing.T) {
	t.Parallel()
	s := two(t, "c")
	// The last one fails when all have said something.
	file := write(t, fmt.Sprintf(`
type: command
compute: azureml:c
command: |
  cd %s; echo process $RANK; touch $RANK
  if [ $RANK = 3 ]; then
    until [ -e 0 ] && [ -e 1 ] && [ -e 2 ]; do sleep 0.1; done
    echo bad news; exit 7
  fi
  sleep 600
environment: {image: none}
properties: {berth.environment: host}
resources: {instance_count: 2}
distribution: {type: pytorch, process_count_per_instance: 2}
`, t.TempDir()))
	// Who looks on sees the first process, and then the one that failed.
	out, err := s.try("job", "create", "-f", file, "-n", "fails", "-o", "none", "--stream")
	var code *exec.ExitError
	if !errors.As(err, &code) || code.ExitCode() != 7 || !strings.HasPrefix(out, "process 0\n") || strings.Count(out, "process 3\nbad news\n") != 1 {
		t.Errorf("streamed, with %v: %s", err, out)
	}
	if got := s.status("fails"); got != "Failed" {
		t.Errorf("status %s", got)
	}
	if got := s.reason("fails"); got != "process 3 (node 1) ended with exit code 7" {
		t.Errorf("reason %q", got)
	}
	if log := s.run("logs", "fails"); log != "process 3\nbad news\n" {
		t.Errorf("log %q", log)
	}
	if log := s.run("logs", "-f", "fails"); log != "process 3\nbad news\n" {
		t.Errorf("log, followed when it is over: %q", log)
	}
	if log := s.log("fails", 1); log != "process 1\n" {
		t.Errorf("log of another process %q", log)
	}
}

// TestMPIEviction: the ranks of an interrupted job have time to save their work, and each finds
// what all have saved.
func TestMPIEviction(t *testing.T) {
	t.Parallel()
	needs(t, "mpi", "mpirun", "--version")
	s := two(t, "c")
	file := write(t, `
type: command
compute: azureml:c
command: |
  trap 'sleep 2; echo saved by $OMPI_COMM_WORLD_RANK >outputs/$OMPI_COMM_WORLD_RANK; exit 3' TERM
  echo attempt $AZUREML_RUN_ATTEMPT: $(cat outputs/0 outputs/1)
  if [ $AZUREML_RUN_ATTEMPT = 1 ]; then sleep 600 & wait; fi
environment: {image: none}
properties: {berth.environment: host}
resources: {instance_count: 2}
distribution: {type: mpi}
`)
	s.run("job", "create", "-f", file, "-n", "mpi", "-o", "none")
	s.wait("both ranks run", func() bool {
		return strings.Contains(s.log("mpi", 0), "attempt 1") && strings.Contains(s.log("mpi", 1), "attempt 1")
	})
	s.run("compute", "evict", "c", "--node", s.nodes("c")[0])
	s.wait("the job has ended", func() bool { return s.status("mpi") == "Completed" })
	for rank := range 2 {
		if log := s.log("mpi", rank); !strings.Contains(log, "attempt 2: saved by 0 saved by 1\n") {
			t.Errorf("rank %d: %q", rank, log)
		}
	}
}
