package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
)

// What is scored: an echo, and a small model of scikit-learn.
const (
	echoScript = "import json\n\ndef init():\n    pass\n\ndef run(data):\n    return json.loads(data)\n"
	irisScript = `import json, os
import joblib
import numpy as np
import sklearn.linear_model

def init():
    global model
    model = joblib.load(os.path.join(os.environ.get("MODEL") or os.environ["AZUREML_MODEL_DIR"], "iris.joblib"))
    if os.environ.get("PIDFILE"):
        with open(os.environ["PIDFILE"], "w") as f:
            f.write(str(os.getpid()))

def run(data):
    return model.predict(np.asarray(json.loads(data)["data"], dtype=float)).tolist()
`
	irisTrain = `import sys, joblib
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

x, y = load_iris(return_X_y=True)
joblib.dump(LogisticRegression(max_iter=1000).fit(x, y), sys.argv[1])
`
	scoreBody = `{"data": [[5.1, 3.5, 1.4, 0.2]]}`
)

// scripts writes the scoring scripts into a folder, and trains the model.
func (b *bench) scripts() (python, dir string, err error) {
	if python, err = peer.ServingPython(b.ctx, filepath.Join(b.cache, "serving")); err != nil {
		return "", "", err
	}
	dir = filepath.Join(b.dir, "scripts")
	if _, err := os.Stat(dir); err == nil {
		return python, dir, nil
	}
	err = errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "echo.py"), []byte(echoScript), 0o600), os.WriteFile(filepath.Join(dir, "iris.py"), []byte(irisScript), 0o600))
	if err != nil {
		return "", "", err
	}
	if out, err := exec.CommandContext(b.ctx, python, "-c", irisTrain, filepath.Join(dir, "iris.joblib")).CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("training: %w: %s", err, out)
	}
	return python, dir, nil
}

// writeScript writes one more script.
func writeScript(dir, name, text string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
}

// scoreClient calls a scoring server over one connection, kept as long as the server keeps it.
type scoreClient struct {
	address string
	secure  bool
	request []byte
	conn    net.Conn
	in      *bufio.Reader
}

// newScoreClient returns a client that sends the same request again and again.
func newScoreClient(address string, secure bool, path, key, body string) *scoreClient {
	auth := ""
	if key != "" {
		auth = "Authorization: Bearer " + key + "\r\n"
	}
	return &scoreClient{address: address, secure: secure, request: []byte("POST " + path + " HTTP/1.1\r\nHost: " + address + "\r\n" + auth +
		"Content-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)}
}

var errRefused = errors.New("nobody answered the call")

// do sends the request and returns the answer.
func (c *scoreClient) do(ctx context.Context) (string, error) {
	if c.conn == nil {
		var err error
		if c.secure {
			c.conn, err = (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", c.address) //nolint:gosec // on this machine
		} else {
			c.conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", c.address)
		}
		if err != nil {
			c.conn = nil
			return "", fmt.Errorf("%w: %w", errRefused, err)
		}
		c.in = bufio.NewReader(c.conn)
	}
	body, last, err := c.exchange()
	if err != nil || last {
		c.close()
	}
	return body, err
}

func (c *scoreClient) exchange() (string, bool, error) {
	if err := c.conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return "", true, err
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return "", true, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return "", true, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.200s", resp.Status, b)
	}
	return string(b), resp.Close, err
}

func (c *scoreClient) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// scoreLoad has clients call for a while. It returns how long each request took in milliseconds.
func scoreLoad(ctx context.Context, clients []*scoreClient, d time.Duration) (took []float64, err error) {
	var group sync.WaitGroup
	all, errs := make([][]float64, len(clients)), make([]error, len(clients))
	end := time.Now().Add(d)
	for i, c := range clients {
		group.Go(func() {
			for time.Now().Before(end) && ctx.Err() == nil {
				at := time.Now()
				if _, errs[i] = c.do(ctx); errs[i] != nil {
					return
				}
				all[i] = append(all[i], peer.Ms(time.Since(at)))
			}
		})
	}
	group.Wait()
	for _, t := range all {
		took = append(took, t...)
	}
	return took, errors.Join(errs...)
}

// contender is a server under load.
type contender struct {
	name, version string
	clients       []*scoreClient
	cpu           func() time.Duration
	perRequest    []float64 // milliseconds of CPU, one for each round
	p50, p99      []float64
}

// turns is how often the contenders take turns in a round, so that a neighbour who is busy for a
// while costs all of them the same.
const turns = 5

// contest has contenders answer requests in turn, round after round.
func (b *bench) contest(all []*contender, d time.Duration) error {
	for range b.rounds {
		cpu, took := make([]time.Duration, len(all)), make([][]float64, len(all))
		for range turns {
			for i, c := range all {
				used, t, err := b.turn(c, d/turns)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				cpu[i] += used
				took[i] = append(took[i], t...)
			}
		}
		for i, c := range all {
			c.perRequest = append(c.perRequest, peer.Ms(cpu[i])/float64(max(len(took[i]), 1)))
			c.p50, c.p99 = append(c.p50, measure.Quantile(took[i], 0.5)), append(c.p99, measure.Quantile(took[i], 0.99))
		}
	}
	return nil
}

// turn has one contender answer for a while. It returns the CPU it used, and how long each request
// took in milliseconds.
func (b *bench) turn(c *contender, d time.Duration) (time.Duration, []float64, error) {
	defer func() {
		for _, s := range c.clients { // a server may close them before its next turn
			s.close()
		}
	}()
	if _, err := scoreLoad(b.ctx, c.clients, d/10); err != nil { // connections, caches
		return 0, nil, err
	}
	before := c.cpu()
	took, err := scoreLoad(b.ctx, c.clients, d)
	return c.cpu() - before, took, err
}

// compare writes how the first contender compares with each of the others.
func (b *bench) compare(name string, all []*contender, bound func(peer string) measure.Bound, note string) error {
	ours := all[0]
	for _, c := range all[1:] {
		row := measure.Row{
			Name: name, Unit: "µs of CPU per request", Value: 1000 * measure.Median(ours.perRequest), CPUPerOp: measure.Number(measure.Median(ours.perRequest)),
			Note: fmt.Sprintf("%s; p50 %.3g and %.3g ms, p99 %.3g and %.3g ms", note, measure.Median(ours.p50), measure.Median(c.p50), measure.Median(ours.p99), measure.Median(c.p99)),
		}
		row.Against(c.name, c.version, scaled(ours.perRequest, 1000), scaled(c.perRequest, 1000), false)
		row.PeerCPUPerOp = measure.Number(measure.Median(c.perRequest))
		row.Judge(bound(c.name))
		if err := b.write(row); err != nil {
			return err
		}
	}
	return nil
}

func scaled(v []float64, by float64) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = x * by
	}
	return out
}

// inNamespace runs a benchmark in a network namespace of its own: Azure's inference server listens
// on all addresses.
func inNamespace(name string, run func(*bench) error) func(*bench) error {
	return func(b *bench) error {
		if os.Getenv("BENCH_NAMESPACE") != "" || os.Getuid() != 0 {
			return run(b)
		}
		if _, err := peer.ServingPython(b.ctx, filepath.Join(b.cache, "serving")); err != nil { // while there is a network
			return err
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(b.ctx, "unshare", "-n", "sh", "-c", `ip link set lo up && exec "$0" "$@"`, self, name)
		cmd.Env = append(os.Environ(), "BENCH_NAMESPACE=1", "BENCH_FORCE=1")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		err = cmd.Run()
		var failed *exec.ExitError
		switch {
		case errors.As(err, &failed) && failed.ExitCode() == 1:
			b.held = false // it has said why
			return nil
		case errors.As(err, &failed) && failed.ExitCode() == exitUnscored:
			b.scored = false
			return nil
		}
		return err
	}
}
