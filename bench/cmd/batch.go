package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
)

// scoreIris is the scoring script of the deployment: what the peer's script does with a file.
const scoreIris = `import os
import joblib
import pandas

def init():
    global model
    model = joblib.load(os.path.join(os.environ["AZUREML_MODEL_DIR"], "model", "iris.joblib"))

def run(mini_batch):
    parts = []
    for path in mini_batch:
        data = pandas.read_csv(path)
        parts.append(pandas.DataFrame({"file": os.path.basename(path), "species": model.predict(data)}))
    return pandas.concat(parts)
`

// batch scores a million rows of irises with a batch deployment, from the request to the job's end,
// against a script with joblib that has as many processes. Both results must be the same bytes.
func batch(b *bench) error {
	const files = 40
	rows, processes := b.size(1_000_000, 100_000), runtime.NumCPU()
	s, err := world.Start(b.ctx, b.group, b.bin, filepath.Join(b.dir, "batch"))
	if err != nil {
		return err
	}
	defer s.Stop()
	j, err := peer.NewJoblib(b.ctx, b.cache, b.dir)
	if err != nil {
		return err
	}
	model, input, err := j.Make(b.ctx, rows, files)
	if err != nil {
		return err
	}
	d := &deployed{b: b, s: s, rows: rows}
	if err := d.create(j.Python, model, input, processes); err != nil {
		return err
	}
	if _, _, _, err := d.score("warm"); err != nil {
		return err
	}
	var ours, theirs, own, all, peerCPU []float64
	for round := range b.rounds {
		rate, cpu, with, err := d.score(fmt.Sprintf("round-%d", round))
		if err != nil {
			return err
		}
		r, want, err := j.Score(b.ctx, b.group, model, input, rows, processes)
		if err != nil {
			return err
		}
		got, err := d.result(fmt.Sprintf("round-%d", round))
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("the results differ: %d bytes, and %d of the peer", len(got), len(want))
		}
		ours, own, all, theirs, peerCPU = append(ours, rate), append(own, cpu), append(all, with), append(theirs, r.PerSecond), append(peerCPU, r.CPU)
	}
	row := measure.Row{
		Name: "batch", Unit: "rows/s", Value: measure.Median(ours), CPUPerOp: measure.Number(measure.Median(own)), PeerCPUPerOp: measure.Number(measure.Median(peerCPU)),
		Durable: "ours yes: each mini-batch is synced before it counts; the peer keeps nothing until its end",
		Note: fmt.Sprintf("%d rows in %d files, %d processes, logistic regression; CPU for 1,000 rows: ours is server and runner host, %.3g ms with the scoring, the peer's is all",
			rows, files, processes, measure.Median(all)),
	}
	row.Against("joblib script", peer.JoblibVersion, ours, theirs, true)
	row.Judge(measure.Bound{Of: "ratio", Least: true, Limit: 0.8})
	return b.write(row)
}

// deployed is the batch deployment.
type deployed struct {
	b    *bench
	s    *world.Server
	rows int
	uri  string
}

func (d *deployed) create(python, model, input string, processes int) error {
	code := filepath.Join(d.b.dir, "score")
	if err := os.MkdirAll(code, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(code, "score.py"), []byte(scoreIris), 0o600); err != nil {
		return err
	}
	text := fmt.Sprintf("name: one\nendpoint_name: irises\ntype: model\nmodel: azureml:iris:1\ncode_configuration: {code: %s, scoring_script: score.py}\ncompute: local\n"+
		"settings:\n  mini_batch_size: 1\n  max_concurrency_per_instance: %d\n  environment_variables: {PATH: '%s'}\n",
		code, processes, filepath.Dir(python)+":"+os.Getenv("PATH"))
	file := filepath.Join(d.b.dir, "deployment.yml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"model", "create", "-n", "iris", "-v", "1", "-t", "custom_model", "-p", model},
		{"data", "create", "-n", "irises", "-v", "1", "-t", "uri_folder", "-p", input},
		{"batch-endpoint", "create", "-n", "irises"},
		{"batch-deployment", "create", "-f", file, "--set-default"},
	} {
		if out, err := d.s.CLI(d.b.ctx, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("berth %s: %w: %s", args[0], err, out)
		}
	}
	out, err := d.s.CLI(d.b.ctx, "batch-endpoint", "show", "-n", "irises", "--query", "scoring_uri", "-o", "tsv").Output()
	if err != nil {
		return err
	}
	u, err := url.Parse(strings.TrimSpace(string(out)))
	if err != nil {
		return err
	}
	d.uri = u.Path
	return nil
}

// score invokes the endpoint and waits for the end of the job. own is the CPU of the server and the
// runner host for a thousand rows in milliseconds, and all has the scoring too.
func (d *deployed) score(name string) (rate, own, all float64, err error) {
	w, err := d.s.Watch(d.b.ctx)
	if err != nil {
		return 0, 0, 0, err
	}
	defer w.Close()
	c, err := d.s.Dial(d.b.ctx, false)
	if err != nil {
		return 0, 0, 0, err
	}
	defer c.Close()
	body, err := json.Marshal(map[string]any{"properties": map[string]any{
		"name": name, "inputData": map[string]any{"UriFolder": map[string]any{"jobInputType": "UriFolder", "uri": "azureml:irises:1"}},
	}})
	if err != nil {
		return 0, 0, 0, err
	}
	before, with := d.s.Own(), usage(d.s)
	begin := time.Now()
	if err := c.Post(d.uri, body); err != nil {
		return 0, 0, 0, err
	}
	limit := time.AfterFunc(10*time.Minute, w.Close)
	defer limit.Stop()
	for {
		e, err := w.Next()
		if err != nil {
			return 0, 0, 0, err
		}
		if e.Job == name && e.Done() {
			if e.Status != "Completed" {
				return 0, 0, 0, fmt.Errorf("job %s: %s", name, e.Status)
			}
			break
		}
	}
	wall, thousands := time.Since(begin), float64(d.rows)/1000
	return float64(d.rows) / wall.Seconds(), peer.Ms(d.s.Own().Since(before)) / thousands, (usage(d.s) - with) / thousands, nil
}

// result is the file of a job's rows.
func (d *deployed) result(name string) ([]byte, error) {
	to := filepath.Join(d.b.dir, "got-"+name)
	if out, err := d.s.CLI(d.b.ctx, "job", "download", "-n", name, "--output-name", "score="+to).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("berth job download: %w: %s", err, out)
	}
	return os.ReadFile(filepath.Join(to, "predictions.csv"))
}
