package peer

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/internal/serve/worker"
)

// Packages are those that the peers of the scoring worker need, and their model.
var Packages = []string{"azureml-inference-server-http==1.5.1", "fastapi", "uvicorn[standard]", "scikit-learn", "joblib", "numpy"}

// Scoring is a server that runs a scoring script.
type Scoring struct {
	Name, Address string
	Addresses     []string // of a worker of ours with several processes
	d             daemons
}

// A Script is a scoring script in a folder, and the Python that has what it imports.
type Script struct {
	Python, Dir, Name string // Name is without .py
}

// fastAPI serves a scoring script as an application of FastAPI.
const fastAPI = `import importlib, os
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

s = importlib.import_module(os.environ["SCRIPT"])
s.init()
app = FastAPI()

@app.post("/score")
async def score(r: Request):
    return JSONResponse(s.run(await r.body()))
`

// StartAzmlinfsrv runs Azure's inference server with one worker. It listens on all addresses.
func StartAzmlinfsrv(ctx context.Context, group *measure.Group, s Script, dir string) (*Scoring, error) {
	return startScoring(ctx, group, "azmlinfsrv", dir, s, func(port string) []string {
		return []string{filepath.Join(filepath.Dir(s.Python), "azmlinfsrv"), "--entry_script", filepath.Join(s.Dir, s.Name+".py"), "--port", port, "--health_port", port, "--model_dir", s.Dir}
	})
}

// StartFastAPI runs uvicorn with one worker.
func StartFastAPI(ctx context.Context, group *measure.Group, s Script, dir string) (*Scoring, error) {
	if err := os.WriteFile(filepath.Join(s.Dir, "fastapp.py"), []byte(fastAPI), 0o600); err != nil {
		return nil, err
	}
	return startScoring(ctx, group, "FastAPI", dir, s, func(port string) []string {
		return []string{s.Python, "-m", "uvicorn", "fastapp:app", "--app-dir", s.Dir, "--host", "127.0.0.1", "--port", port, "--no-access-log", "--log-level", "warning"}
	})
}

func startScoring(ctx context.Context, group *measure.Group, name, dir string, s Script, args func(port string) []string) (*Scoring, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(address)
	x := &Scoring{Name: name, Address: address, Addresses: []string{address}, d: daemons{logs: dir, group: group.Sub(filepath.Base(dir))}}
	// gunicorn has a socket in its home, so that each server needs one.
	env := []string{"-C", dir, "HOME=" + dir, "SCRIPT=" + s.Name, "AZUREML_MODEL_DIR=" + s.Dir, "OMP_NUM_THREADS=1"}
	_, err = x.d.start(ctx, "env", append(env, args(port)...)...)
	return x, err
}

// StartWorker runs our worker by itself, with so many processes.
func StartWorker(ctx context.Context, group *measure.Group, s Script, dir string, workers int) (*Scoring, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	x := &Scoring{Name: "berth worker", d: daemons{logs: dir, group: group.Sub(filepath.Base(dir))}}
	_, err := x.d.start(ctx, "env", "-C", dir, worker.SourceVariable+"="+worker.Source(), fmt.Sprintf("WORKER_COUNT=%d", workers), "AZUREML_MODEL_DIR="+s.Dir, "OMP_NUM_THREADS=1",
		"AZUREML_ENTRY_SCRIPT="+filepath.Join(s.Dir, s.Name+".py"), s.Python, "-c", worker.Boot)
	if err != nil {
		return nil, err
	}
	err = x.d.wait(ctx, x.Name, func(context.Context) bool {
		log, _ := os.ReadFile(x.d.log("env"))
		line, _, whole := strings.Cut(string(log), "\n")
		ports, ok := strings.CutPrefix(line, "berth-worker: ports ")
		if !ok || !whole {
			return false
		}
		for _, p := range strings.Fields(ports) {
			x.Addresses = append(x.Addresses, net.JoinHostPort("127.0.0.1", p))
		}
		x.Address = x.Addresses[0]
		return true
	})
	if err != nil {
		x.Stop()
	}
	return x, err
}

// Ready asks until ok says that it answers.
func (s *Scoring) Ready(ctx context.Context, ok func(context.Context) bool) error {
	return s.d.wait(ctx, s.Name, ok)
}

// Usage is the CPU time of its processes.
func (s *Scoring) Usage() (time.Duration, bool) { return s.d.group.Usage() }

// Stop ends it.
func (s *Scoring) Stop() { s.d.stopAll() }

// ServingPython is a Python with the packages, installed once into dir.
func ServingPython(ctx context.Context, dir string) (string, error) {
	python := filepath.Join(dir, "bin", "python")
	done := filepath.Join(dir, "ready")
	if _, err := os.Stat(done); err == nil {
		return python, nil
	}
	for _, args := range [][]string{{"python3", "-m", "venv", dir}, append([]string{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, Packages...)} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %.400s", strings.Join(args, " "), err, out)
		}
	}
	return python, os.WriteFile(done, nil, 0o600)
}
