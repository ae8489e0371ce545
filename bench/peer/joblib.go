package peer

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth/bench/measure"
)

// JoblibVersion and the packages beside it are what both sides of the comparison score with.
const JoblibVersion = "1.5.2"

const joblibPackages = "joblib==" + JoblibVersion + " scikit-learn==1.7.2 pandas==2.3.3 numpy==2.3.4"

//go:embed source/joblib.py
var joblibPy []byte

// Joblib scores files with a plain script.
type Joblib struct {
	Python string
	dir    string
	script string
}

// NewJoblib installs the packages into cache where they are missing.
func NewJoblib(ctx context.Context, cache, dir string) (*Joblib, error) {
	python, err := venv(ctx, cache, strings.Fields(joblibPackages)...)
	if err != nil {
		return nil, err
	}
	j := &Joblib{Python: python, dir: dir, script: filepath.Join(dir, "peer_joblib.py")}
	return j, os.WriteFile(j.script, joblibPy, 0o600)
}

// Make trains a model and writes rows to so many files; it returns the folders of both.
func (j *Joblib) Make(ctx context.Context, rows, files int) (model, input string, err error) {
	model, input = filepath.Join(j.dir, "model"), filepath.Join(j.dir, "irises")
	out, err := exec.CommandContext(ctx, j.Python, j.script, "make", model, input, strconv.Itoa(rows), strconv.Itoa(files)).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("make irises: %w: %s", err, out)
	}
	return model, input, err
}

// Score scores the files with so many processes and returns the rows per second, the CPU in
// milliseconds for a thousand rows, and the result.
func (j *Joblib) Score(ctx context.Context, group *measure.Group, model, input string, rows, processes int) (r Result, text []byte, err error) {
	g := group.Sub("joblib")
	defer g.Close()
	to := filepath.Join(j.dir, "joblib.csv")
	begin := time.Now()
	out, err := g.Command(ctx, j.Python, j.script, "score", model, input, to, strconv.Itoa(processes)).CombinedOutput()
	wall := time.Since(begin)
	if err != nil {
		return r, nil, fmt.Errorf("joblib: %w: %s", err, out)
	}
	used, _ := g.Usage()
	text, err = os.ReadFile(to)
	return Result{PerSecond: float64(rows) / wall.Seconds(), CPU: Ms(used) / float64(rows) * 1000}, text, err
}
