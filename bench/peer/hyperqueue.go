package peer

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// HyperQueueVersion is the release compared with.
const HyperQueueVersion = "0.27.0"

//go:embed source/hyperqueue.py
var hyperqueuePy []byte

// HyperQueue is a running server with a worker of two cores.
type HyperQueue struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	log string
}

// StartHyperQueue installs HyperQueue into cache where it is missing, and starts it in dir.
func StartHyperQueue(ctx context.Context, cache, dir string) (*HyperQueue, error) {
	python, err := venv(ctx, cache, "hyperqueue=="+HyperQueueVersion)
	if err != nil {
		return nil, err
	}
	script := filepath.Join(dir, "peer_hyperqueue.py") // the library's own name would hide it
	if err := os.WriteFile(script, hyperqueuePy, 0o600); err != nil {
		return nil, err
	}
	args := []string{python, script, dir}
	if os.Getuid() == 0 {
		// It listens at all addresses: give it a network of its own.
		if _, err := exec.LookPath("unshare"); err == nil {
			args = append([]string{"unshare", "-n", "sh", "-c", `ip link set lo up; exec "$@"`, "sh"}, args...)
		}
	}
	h := &HyperQueue{cmd: exec.CommandContext(context.WithoutCancel(ctx), args[0], args[1:]...), log: filepath.Join(dir, "hyperqueue.log")}
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, err := os.Create(h.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	h.cmd.Stderr = log
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	h.out = bufio.NewReaderSize(out, 1<<20)
	if err := h.cmd.Start(); err != nil {
		return nil, err
	}
	var ready struct{ Ready bool }
	if err := h.answer(&ready, time.Minute); err != nil {
		h.Stop()
		return nil, fmt.Errorf("hyperqueue does not start: %w", err)
	}
	return h, nil
}

// Latency is milliseconds from submit to the first instruction on an idle worker, connection kept
// open.
func (h *HyperQueue) Latency(n int, stamp, pipe string) ([]float64, error) {
	var v struct{ Ms []float64 }
	err := h.ask(fmt.Sprintf("latency %d %s %s", n, stamp, pipe), &v)
	return v.Ms, err
}

// Tasks runs /bin/true n times as one job. own is the control plane's CPU per task.
func (h *HyperQueue) Tasks(n int) (r Result, own float64, err error) {
	var v struct {
		PerSecond float64 `json:"per_second"`
		Own       float64 `json:"own_cpu_ms"`
		CPU       float64 `json:"cpu_ms"`
	}
	err = h.ask(fmt.Sprintf("tasks %d", n), &v)
	return Result{PerSecond: v.PerSecond, CPU: v.CPU}, v.Own, err
}

func (h *HyperQueue) ask(line string, v any) error {
	if _, err := fmt.Fprintln(h.in, line); err != nil {
		return err
	}
	return h.answer(v, 3*time.Minute)
}

func (h *HyperQueue) answer(v any, limit time.Duration) error {
	t := time.AfterFunc(limit, func() { _ = syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL) })
	defer t.Stop()
	line, err := h.out.ReadBytes('\n')
	if err != nil {
		log, _ := os.ReadFile(h.log)
		return fmt.Errorf("hyperqueue: %w: %s", err, log[max(0, len(log)-500):])
	}
	return json.Unmarshal(line, v)
}

// Stop ends it.
func (h *HyperQueue) Stop() {
	h.in.Close()
	t := time.AfterFunc(5*time.Second, func() { _ = syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL) })
	defer t.Stop()
	_ = h.cmd.Wait()
}

// venv is the interpreter of a virtual environment with some packages, made once.
func venv(ctx context.Context, cache string, packages ...string) (string, error) {
	dir := filepath.Join(cache, strings.Join(packages, "+"))
	python := filepath.Join(dir, "bin", "python")
	if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil {
		return python, nil
	}
	if _, err := exec.LookPath("python3"); err != nil {
		return "", errors.New("there is no python3")
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"python3", "-m", "venv", "--clear", dir},
		append([]string{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, packages...),
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("install %s: %w: %s", strings.Join(packages, " "), err, out[max(0, len(out)-300):])
		}
	}
	return python, os.WriteFile(filepath.Join(dir, "ready"), nil, 0o600)
}
