//go:build linux

// Package attached runs jobs on a machine that connects to the server by itself, and kills
// everything in between that could be killed.
package attached_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth/e2e/world"
)

// machine is an agent with a folder of its own; it shares nothing with the server's home.
type machine struct {
	t      *testing.T
	server *world.Server
	dir    string
	join   string
	cmd    *exec.Cmd
	log    *bytes.Buffer
}

// attach names a machine and starts its agent.
func attach(t *testing.T, s *world.Server, name string) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "ba")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, server: s, dir: dir, join: filepath.Join(t.TempDir(), "join.json")}
	t.Cleanup(func() {
		m.kill()
		for _, pid := range m.hosts() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if t.Failed() {
			t.Logf("the agent's folder is kept: %s\n%s", dir, m.log)
			return
		}
		os.RemoveAll(dir)
	})
	run(t, s, "compute", "attach", "-n", name, "--type", "agent")
	run(t, s, "agent", "join", name, "-f", m.join)
	return m
}

// start starts the agent, which joins the first time.
func (m *machine) start() {
	m.t.Helper()
	args := []string{"agent", "run", "--dir", filepath.Join(m.dir, "agent"), "--slots", "2"}
	if _, err := os.Stat(filepath.Join(m.dir, "agent", "join.json")); err != nil {
		args = append(args, "--join", m.join)
	}
	m.log = new(bytes.Buffer)
	m.cmd = exec.Command(m.server.Bin, args...)
	m.cmd.Env = append(os.Environ(), "BERTH_HOME="+filepath.Join(m.dir, "home"), "HOME="+m.dir)
	m.cmd.Stderr = m.log
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) kill() {
	if m.cmd != nil {
		m.cmd.Process.Kill()
		m.cmd.Wait()
		m.cmd = nil
	}
}

// hosts are the processes of the machine's runner host.
func (m *machine) hosts() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range all {
		b, err := os.ReadFile(f)
		var pid int
		if err == nil && bytes.Contains(b, []byte(m.dir+"/agent/host")) {
			fmt.Sscanf(f, "/proc/%d/", &pid)
			pids = append(pids, pid)
		}
	}
	return pids
}

func try(s *world.Server, args ...string) (string, error) {
	out, err := s.Command(args...).CombinedOutput()
	return string(out), err
}

func run(t *testing.T, s *world.Server, args ...string) string {
	t.Helper()
	out, err := try(s, args...)
	if err != nil {
		t.Fatalf("berth %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// until waits for a command to say something.
func until(t *testing.T, s *world.Server, want string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		out, err := try(s, args...)
		if err == nil && strings.Contains(out, want) {
			return out
		}
		select {
		case <-ctx.Done():
			t.Fatalf("berth %s does not say %q: %v\n%s", strings.Join(args, " "), want, err, out)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// untilSays waits for a function to say something.
func untilSays(t *testing.T, want string, f func() (string, error)) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		out, err := f()
		if err == nil && strings.Contains(out, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not say %q: %v\n%s", want, err, out)
		}
	}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// find is the content of the file of a name below a folder.
func find(t *testing.T, dir, name string) (text string) {
	t.Helper()
	_ = filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() && info.Name() == name {
			b, _ := os.ReadFile(path)
			text = string(b)
		}
		return nil
	})
	return text
}

// job writes a job with code, an input, an output and an artifact, that waits for a gate and ends
// with a code.
func job(t *testing.T, gate string, code int) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "code", "work.sh"), `set -e
echo begin
cat "$1/words.txt"
mkdir -p "$2" outputs
cp "$1/words.txt" "$2/copy.txt"
echo kept > outputs/kept.txt
while ! test -e `+gate+`; do sleep 0.05; done
echo end
exit `+fmt.Sprint(code)+"\n")
	write(t, filepath.Join(dir, "data", "words.txt"), "some words\n")
	return write(t, filepath.Join(dir, "job.yml"), `type: command
code: ./code
command: sh work.sh ${{inputs.words}} ${{outputs.copy}}
compute: azureml:laptop
environment: {image: "python:3.12"}
properties: {berth.environment: host}
inputs:
  words: {type: uri_folder, path: ./data}
outputs:
  copy: {type: uri_folder}
`)
}

// serverPID is the process of the server.
func serverPID(t *testing.T, s *world.Server) int {
	t.Helper()
	var v struct{ PID int }
	b, err := os.ReadFile(filepath.Join(s.Home, "run", "server.json"))
	if err != nil || json.Unmarshal(b, &v) != nil || v.PID <= 1 {
		t.Fatalf("server.json: %s, %v", b, err)
	}
	return v.PID
}

// TestStory attaches a machine, runs a job on it, and while it runs kills the agent, cuts the
// connection, and kills the server.
func TestStory(t *testing.T) {
	s := world.Start(t)
	m := attach(t, s, "laptop")
	gate := filepath.Join(t.TempDir(), "gate")
	run(t, s, "job", "create", "-f", job(t, gate, 0), "-n", "first")
	until(t, s, "has not connected yet", "explain", "first")
	m.start()
	until(t, s, "Running", "job", "show", "-n", "first", "-o", "json")
	until(t, s, "some words", "logs", "first")
	if out := run(t, s, "explain", "laptop"); !strings.Contains(out, "has been connected since") {
		t.Errorf("explain: %s", out)
	}

	m.kill()
	until(t, s, "has not been connected since", "explain", "laptop")
	run(t, s, "job", "create", "-f", job(t, gate, 3), "-n", "second") // while the machine is away
	until(t, s, "has not been connected since", "explain", "second")
	m.start()
	until(t, s, "Running", "job", "show", "-n", "second", "-o", "json")

	syscall.Kill(serverPID(t, s), syscall.SIGKILL)
	write(t, gate, "") // they end while there is no server
	run(t, s, "up")
	until(t, s, "Completed", "job", "show", "-n", "first", "-o", "json")
	until(t, s, "Failed", "job", "show", "-n", "second", "-o", "json")
	if out := run(t, s, "explain", "second"); !strings.Contains(out, "code 3") {
		t.Errorf("explain second: %s", out)
	}
	for _, name := range []string{"first", "second"} {
		if out, _ := try(s, "logs", name); out != "begin\nsome words\nend\n" {
			t.Errorf("log of %s: %q", name, out)
		}
	}
	to := t.TempDir()
	run(t, s, "job", "download", "-n", "first", "--all", "-p", to)
	for name, want := range map[string]string{"copy.txt": "some words\n", "kept.txt": "kept\n"} {
		if got := find(t, to, name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(s.Home, "host", "tasks", "*")); len(left) > 0 {
		t.Errorf("tasks ran on the server's own machine: %v", left)
	}

	until(t, s, "has been connected since", "explain", "laptop")
	run(t, s, "compute", "detach", "-n", "laptop", "--yes")
	if out, err := try(s, "compute", "show", "-n", "laptop"); err == nil {
		t.Errorf("it is still there: %s", out)
	}
	if err := m.cmd.Wait(); err == nil || !strings.Contains(m.log.String(), "detached") {
		t.Errorf("the agent of a compute that was detached: %v, %s", err, m.log)
	}
	m.cmd = nil
}

// TestOneMachine has a second machine with the same file, and a new file: one machine at a time is
// a compute's.
func TestOneMachine(t *testing.T) {
	s := world.Start(t)
	m := attach(t, s, "laptop")
	m.start()
	until(t, s, "has been connected since", "explain", "laptop")
	other := &machine{t: t, server: s, dir: t.TempDir(), join: m.join}
	other.start()
	if err := other.cmd.Wait(); err == nil || !strings.Contains(other.log.String(), "belongs to another machine") {
		t.Errorf("a second machine: %v, %s", err, other.log)
	}
	gate := filepath.Join(t.TempDir(), "gate")
	run(t, s, "job", "create", "-f", job(t, gate, 0), "-n", "busy")
	until(t, s, "Running", "job", "show", "-n", "busy", "-o", "json")
	if out, err := try(s, "agent", "join", "laptop"); err == nil || !strings.Contains(out, "has jobs (busy)") {
		t.Errorf("another machine for a compute with jobs: %v, %s", err, out)
	}
	if out, err := try(s, "compute", "detach", "-n", "laptop"); err == nil {
		t.Errorf("detached with a job: %s", out)
	}
	b, err := os.ReadFile(m.join)
	if err != nil {
		t.Fatal(err)
	}
	var j struct{ Token string }
	if err := json.Unmarshal(b, &j); err != nil || j.Token == "" {
		t.Fatalf("%v in %s", err, b)
	}
	cmd := s.Command("ps")
	cmd.Env = append(cmd.Env, "BERTH_HOME=", "BERTH_URL="+s.URL, "BERTH_TOKEN="+j.Token, "BERTH_CA="+s.CABundle)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "does not know this token") {
		t.Errorf("an agent's token opens the API: %v, %s", err, out)
	}

	// The machine is lost with its job: detaching it ends the job.
	m.kill()
	until(t, s, "has not been connected since", "explain", "laptop")
	run(t, s, "compute", "detach", "-n", "laptop", "--yes")
	until(t, s, "Failed", "job", "show", "-n", "busy", "-o", "json")
	if out := run(t, s, "explain", "busy"); !strings.Contains(out, "was detached while its machine was not connected") {
		t.Errorf("explain: %s", out)
	}
	write(t, gate, "")
}

// TestRefused: what it is not known that a machine can do is refused when the job is submitted.
func TestRefused(t *testing.T) {
	s := world.Start(t)
	run(t, s, "compute", "attach", "-n", "laptop", "--type", "agent")
	for add, want := range map[string]string{
		"distribution: {type: pytorch, process_count_per_instance: 2}\n": "has not been connected yet",
		"resources: {instance_count: 2}\n":                               "has not been connected yet",
	} {
		file := job(t, "/nowhere", 0)
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		write(t, file, string(b)+add)
		if out, err := try(s, "job", "create", "-f", file); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, %s", add, err, out)
		}
	}
}
