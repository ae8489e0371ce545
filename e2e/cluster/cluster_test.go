//go:build linux

// Package cluster_test tells stories of managed clusters with real processes as nodes: growing and
// shrinking, evictions, limits, and everything that can be killed. At the end nothing of them is
// left.
package cluster_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/driver/cluster"
	"github.com/berthml/berth/internal/driver/drivertest"
)

type story struct {
	t *testing.T
	s *world.Server
}

func start(t *testing.T) *story {
	t.Helper()
	s := world.Start(t)
	st := &story{t, s}
	t.Cleanup(func() {
		st.run("down")
		drivertest.Leaks(t, filepath.Join(s.Home, "nodes"), "berth-node-"+cluster.GroupName(filepath.Join(s.Home, "nodes")))
	})
	return st
}

// try runs the program.
func (s *story) try(args ...string) (string, error) {
	cmd := s.s.Command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil {
		return out.String() + errs.String(), err
	}
	return out.String(), nil
}

func (s *story) run(args ...string) string {
	s.t.Helper()
	out, err := s.try(args...)
	if err != nil {
		s.t.Errorf("berth %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// refused runs something that must fail, and say why.
func (s *story) refused(want string, args ...string) {
	s.t.Helper()
	out, err := s.try(args...)
	if err == nil || !strings.Contains(out, want) {
		s.t.Errorf("berth %s: %v, want an error with %q:\n%s", strings.Join(args, " "), err, want, out)
	}
}

// example runs a script of examples/.
func (s *story) example(name string, args ...string) string {
	s.t.Helper()
	cmd := s.s.Command()
	cmd.Path, cmd.Args = "/bin/bash", append([]string{"bash", filepath.Join("..", "..", "examples", name)}, args...)
	cmd.Env = append(cmd.Env, "BERTH="+s.s.Bin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// cluster makes a cluster.
func (s *story) cluster(name string, settings ...string) {
	s.t.Helper()
	s.run(append([]string{"compute", "create", "--type", "amlcompute", "-n", name, "-o", "none"}, settings...)...)
}

// wait asks again until f holds.
func (s *story) wait(what string, f func() bool) {
	s.t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if f() {
			return
		}
	}
	s.t.Fatalf("never: %s\n%s", what, s.run("ps", "--all"))
}

func (s *story) status(job string) string {
	out, _ := s.try("job", "show", "-n", job, "--query", "status", "-o", "tsv")
	return strings.TrimSpace(out)
}

// reason is why a job is where it is.
func (s *story) reason(job string) string {
	var v struct{ Reason string }
	if err := json.Unmarshal([]byte(s.run("explain", job, "-o", "json")), &v); err != nil {
		s.t.Error(err)
	}
	return v.Reason
}

func (s *story) nodes(compute string) (names []string) {
	out := s.run("compute", "list-nodes", "-n", compute, "--query", "[].node_id", "-o", "tsv")
	return strings.Fields(out)
}

// processes are those of a node: its runner host, and what runs on it.
func (s *story) processes(node string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		environ, _ := os.ReadFile(dir + "/environ")
		if strings.Contains(string(cmdline)+string(environ), s.s.Home+"/nodes/"+node) {
			if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func (s *story) kill(node string) {
	s.t.Helper()
	pids := s.processes(node)
	if len(pids) == 0 {
		s.t.Fatalf("node %s has no process", node)
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func TestAutoscaleExample(t *testing.T) {
	t.Parallel()
	s := start(t)
	out := s.example("autoscale/run.sh")
	for _, want := range []string{"nodes before: 0", "nodes at most: 4", "nodes after: 0"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

func TestEvictionExample(t *testing.T) {
	t.Parallel()
	s := start(t)
	out := s.example("eviction/run.sh", "ev")
	m := regexp.MustCompile(`attempt 2 begins at step (\d+)`).FindStringSubmatch(out)
	if m == nil || m[1] == "0" || !strings.Contains(out, "attempt 1 begins at step 0") || !strings.Contains(out, "trained 30 steps") {
		t.Errorf("%v in:\n%s", m, out)
	}
	if log := s.run("logs", "ev", "--file", "user_logs/attempt_1/std_log.txt"); !strings.Contains(log, "attempt 1") || strings.Contains(log, "attempt 2") {
		t.Errorf("the log of the first attempt: %q", log)
	}
	dir := t.TempDir()
	s.run("job", "download", "-n", "ev", "--all", "-p", dir)
	found := ""
	_ = filepath.WalkDir(dir, func(p string, _ os.DirEntry, _ error) error {
		if filepath.Base(p) == "step.txt" {
			b, _ := os.ReadFile(p)
			found = string(b)
		}
		return nil
	})
	if found != "30" {
		t.Errorf("the checkpoint that was kept says %q", found)
	}
}

// TestKilled: whatever is killed, jobs have true ends and the cluster goes on.
func TestKilled(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.cluster("cpu", "--size", "Standard_D2_v2", "--min-instances", "2", "--max-instances", "3", "--idle-time-before-scale-down", "600")
	s.wait("two nodes", func() bool { return len(s.nodes("cpu")) == 2 })
	for _, j := range []string{"a", "b"} {
		s.run("run", "--on", "cpu", "--name", j, "--no-code", "--no-wait", "--", "sleep 600")
		s.wait(j+" runs", func() bool { return s.status(j) == "Running" })
	}

	// Every process of every node at once.
	for _, n := range s.nodes("cpu") {
		s.kill(n)
	}
	for _, j := range []string{"a", "b"} {
		s.wait(j+" is over", func() bool { return s.status(j) == "Failed" })
		if why := s.reason(j); !strings.Contains(why, "SIGKILL") && !strings.Contains(why, "killed") {
			t.Errorf("%s failed because %q", j, why)
		}
	}
	if out := s.run("run", "--on", "cpu", "--name", "c", "--no-code", "--", "echo still here"); !strings.Contains(out, "still here") {
		t.Errorf("after that: %q", out)
	}

	// The server, in the middle of a resize: two of these wait for nodes.
	for i := range 3 {
		s.run("run", "--on", "cpu", "--name", fmt.Sprint("d", i), "--no-code", "--no-wait", "--", "sleep 2")
	}
	s.killServer()
	s.run("up")
	for i := range 3 {
		s.wait(fmt.Sprint("d", i), func() bool { return s.status(fmt.Sprint("d", i)) == "Completed" })
	}
	s.run("compute", "delete", "-n", "cpu", "--yes")
	s.refused("cpu", "compute", "show", "-n", "cpu")
}

func (s *story) killServer() {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.s.Home, "run", "server.json"))
	var v struct{ PID int }
	if err != nil || json.Unmarshal(b, &v) != nil || v.PID == 0 {
		s.t.Fatalf("%v %s", err, b)
	}
	_ = syscall.Kill(v.PID, syscall.SIGKILL)
	s.wait("server gone", func() bool { return world.Gone(v.PID) })
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := start(t)
	create := func(name string, more ...string) []string {
		return append([]string{"compute", "create", "--type", "amlcompute", "-n", name}, more...)
	}
	s.refused("min_instances (3) is more than max_instances (2)", create("x", "--size", "Standard_D2_v2", "--min-instances", "3", "--max-instances", "2")...)
	s.refused("Standard_DS3_v2", create("x", "--size", "Standard_DS3_v9")...)
	s.refused("always there", create("local", "--size", "Standard_D2_v2")...)
	s.cluster("cpu", "--size", "Standard_D2_v2", "--max-instances", "2")
	s.refused("cannot change", create("cpu", "--size", "Standard_DS3_v2")...)
	s.refused("at most 2 nodes", "job", "create", "-f", write(t, "command: hostname\nenvironment: {image: \"ubuntu:24.04\"}\ncompute: azureml:cpu\nresources:\n  instance_count: 3\n"))
	s.refused("there is no compute", "run", "--on", "nowhere", "--no-code", "--", "true")
	s.run("run", "--on", "cpu", "--name", "busy", "--no-code", "--no-wait", "--", "sleep 30")
	s.refused("use --yes", "compute", "delete", "-n", "cpu")
	s.run("job", "cancel", "-n", "busy")
	s.wait("canceled", func() bool { return s.status("busy") == "Canceled" })
	s.run("compute", "delete", "-n", "cpu", "--yes")
}

func write(t *testing.T, text string) string {
	t.Helper()
	f := filepath.Join(t.TempDir(), "f.yml")
	if err := os.WriteFile(f, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}
