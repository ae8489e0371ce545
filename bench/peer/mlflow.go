package peer

import (
	"bytes"
	"context"
	_ "embed"
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

//go:embed source/mlflow.py
var fillMLflow string

// MLflow is a real `mlflow server`.
type MLflow struct {
	Version          string
	python, database string
	d                daemons
	base             string
	http             *http.Client
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
	m := &MLflow{Version: strings.TrimSpace(string(out)), python: python, database: database, base: "http://" + address, http: web, d: daemons{logs: dir, group: group.Sub(filepath.Base(dir))}}
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

// Fill writes runs and the points of a curve to the database, as requests would: copies of a run
// with a metric "acc" and a parameter "lr", and the metric "curve" of another run.
func (m *MLflow) Fill(ctx context.Context, template string, runs int, curve string, points int) error {
	cmd := exec.CommandContext(ctx, m.python, "-c", fillMLflow, m.database, template, strconv.Itoa(runs), curve, strconv.Itoa(points))
	cmd.Env = append(os.Environ(), "GIT_PYTHON_REFRESH=quiet", "MLFLOW_DISABLE_TELEMETRY=true")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("filling the database of mlflow: %w: %s", err, out[max(0, len(out)-600):])
	}
	return nil
}

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
