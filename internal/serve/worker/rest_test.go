package worker_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// pids is a script whose answers name the process, and that imports a module which counts how often
// it was imported.
const pids = `
import os
import json, colorsys

def init():
    pass

def run(data):
    d = json.loads(data)
    if d == "hang":
        import signal, time
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        time.sleep(600)
    return os.getpid()
`

// ask sends a request on a connection of its own, so that no connection keeps a worker awake.
func ask(t *testing.T, at, body string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post(at+"/score", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.StatusCode, string(b), err)
	}
	return string(b)
}

func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "score.py")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "AZUREML_ENTRY_SCRIPT=" + path
}

// processState is the letter that Linux has for the state of a process; "" if there is none.
func processState(pid string) string {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[:1]
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never:", what)
		}
	}
}

// TestWorkerFreezes: a worker that nobody asks is stopped by itself, and the next request wakes the
// same process.
func TestWorkerFreezes(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("states of processes are read from /proc")
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	at, _ := start(t, "plain.py", script(t, pids), "BERTH_FREEZE=0.05")
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	first := ask(t, at[0], `1`)
	for range 3 {
		until(t, "the worker is stopped", func() bool { return processState(first) == "T" })
		if again := ask(t, at[0], `1`); again != first {
			t.Fatalf("process %s answers after %s", again, first)
		}
	}
}

// TestWorkerForks: a worker that nobody asks for longer ends, and the next request is answered by
// another, a fork of the process that imported its modules.
func TestWorkerForks(t *testing.T) {
	at, _ := start(t, "plain.py", script(t, pids), "BERTH_FORK=0.1", "BERTH_FREEZE=0.05")
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	first := ask(t, at[0], `1`)
	until(t, "the worker has ended", func() bool { return processState(first) == "" })
	if second := ask(t, at[0], `1`); second == first {
		t.Errorf("process %s answers", second)
	}
}

// TestForkHangs: a fork that hangs in its first request is killed, and workers are started cold
// from then on.
func TestForkHangs(t *testing.T) {
	at, _ := start(t, "plain.py", script(t, pids), "BERTH_FORK=30", "SCORING_TIMEOUT_MS=100")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if resp, err := client.Post(at[0]+"/score", "application/json", strings.NewReader(`"hang"`)); err == nil {
		resp.Body.Close()
		t.Errorf("it was answered with %d", resp.StatusCode)
	}
	ask(t, at[0], `1`)
}

// TestFrozenWorkerEnds: a worker that is stopped ends with its master, however that ends.
func TestFrozenWorkerEnds(t *testing.T) {
	at, master := start(t, "plain.py", script(t, pids), "BERTH_FREEZE=0.05")
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	pid := ask(t, at[0], `1`)
	until(t, "the worker is stopped", func() bool { return processState(pid) == "T" })
	if err := master.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the worker is gone", func() bool { s := processState(pid); return s == "" || s == "Z" || syscall.Kill(n, 0) != nil })
}

// TestContractOfForks: a worker that was forked answers as one that was started does.
func TestContractOfForks(t *testing.T) {
	for _, name := range []string{"raw", "headers"} {
		at, _ := start(t, name+".py", "BERTH_FORK=600")
		for _, x := range recorded(t, name) {
			x.check(t, at[0])
		}
	}
}
