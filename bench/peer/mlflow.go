package peer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth/bench/measure"
)

// MLflow is a real `mlflow server`.
type MLflow struct {
	Version string
	Workers int
	d       daemons
	base    string
	http    *http.Client
}

// StartMLflow starts the server of the mlflow that a Python has, with workers of which each is a
// process. The database is a URL, or empty for SQLite in dir.
func StartMLflow(ctx context.Context, group *measure.Group, python, dir string, workers int, database string) (*MLflow, error) {
	out, err := exec.CommandContext(ctx, python, "-c", "import mlflow; print(mlflow.__version__)").Output()
	if err != nil {
		return nil, fmt.Errorf("%s has no mlflow: %w", python, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	l.Close()
	if database == "" {
		database = "sqlite:///" + filepath.Join(dir, "db")
	}
	// Each client keeps its connection, as a client of mlflow's does.
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	m := &MLflow{Version: strings.TrimSpace(string(out)), Workers: workers, base: "http://" + address, http: web, d: daemons{logs: dir, group: group.Sub(filepath.Base(dir))}}
	_, port, _ := strings.Cut(address, ":")
	_, err = m.d.start(ctx, "env", "-C", dir, "MLFLOW_DISABLE_TELEMETRY=true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false", "GIT_PYTHON_REFRESH=quiet", python, "-m", "mlflow", "server",
		"--backend-store-uri", database, "--artifacts-destination", filepath.Join(dir, "artifacts"), "--host", "127.0.0.1", "--port", port, "--workers", strconv.Itoa(workers))
	if err != nil {
		return nil, err
	}
	err = m.d.wait(ctx, "mlflow server", func(ctx context.Context) bool {
		_, err := m.Do(ctx, http.MethodGet, "/health", nil)
		return err == nil
	})
	if err != nil {
		m.Stop()
		return nil, err
	}
	return m, nil
}

// Do sends a request and reads the answer.
func (m *MLflow) Do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, m.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := m.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, b)
	}
	return b, err
}

// Usage is the CPU of the server and its workers.
func (m *MLflow) Usage() (time.Duration, bool) { return m.d.group.Usage() }

// Processes are the server and its workers.
func (m *MLflow) Processes() []int {
	var pids []int
	for _, x := range m.d.all {
		pids = append(pids, family(x.cmd.Process.Pid)...)
	}
	return pids
}

// family is a process and all that it started.
func family(pid int) []int {
	out := []int{pid}
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, t := range threads {
		b, _ := os.ReadFile(t)
		for _, f := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(f); err == nil {
				out = append(out, family(child)...)
			}
		}
	}
	return out
}

// Stop ends the server.
func (m *MLflow) Stop() {
	m.http.CloseIdleConnections()
	m.d.stopAll()
}
