package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
)

// trackForm is a way to run both servers.
type trackForm struct {
	name             string // of its rows
	peer             string
	workers, clients int
	postgres         bool
}

var trackForms = []trackForm{
	{name: "track", peer: "mlflow server, 1 worker, SQLite", workers: 1, clients: 1},
	{name: "track.pg", peer: "mlflow server, 2 workers, PostgreSQL", workers: 2, clients: 8, postgres: true},
}

// tracker is one of two tracking servers with its clients.
type tracker struct {
	// do makes one request over the connection of a client.
	do        func(client int, method, path string, body []byte) ([]byte, error)
	usage     func() (time.Duration, bool)
	ready     func() error // before a series of calls
	processes func() []int
	runs      []string // of each client
	calls     []int    // batches sent by each client
}

func (k *tracker) call(client int, path, body string) ([]byte, error) {
	return k.do(client, http.MethodPost, "/api/2.0/mlflow/"+path, []byte(body))
}

// create makes a run.
func (k *tracker) create(client int) (string, error) {
	out, err := k.call(client, "runs/create", `{"experiment_id": "0", "start_time": 1}`)
	var v struct {
		Run struct {
			Info struct {
				ID string `json:"run_id"`
			} `json:"info"`
		} `json:"run"`
	}
	return v.Run.Info.ID, errors.Join(err, json.Unmarshal(out, &v))
}

// batch logs n metrics of one step to the run of a client.
func (k *tracker) batch(client, n int) error {
	k.calls[client]++
	step := k.calls[client]
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,{"key": "m%d", "value": %g, "timestamp": %d, "step": %d}`, i, rand.Float64(), 1700000000000+step, step)
	}
	_, err := k.call(client, "runs/log-batch", `{"run_id": "`+k.runs[client]+`", "metrics": [`+b.String()[1:]+`]}`)
	return err
}

// each makes n calls, spread over the clients, and returns how long each took. When they take
// longer than patience, which is none if it is 0, each client stops after two.
func (k *tracker) each(n int, patience time.Duration, op func(client, i int) error) ([]float64, error) {
	var wait sync.WaitGroup
	took, errs := make([][]float64, len(k.runs)), make([]error, len(k.runs))
	begin := time.Now()
	for client := range k.runs {
		wait.Go(func() {
			for i := client; i < n; i += len(k.runs) {
				if patience > 0 && time.Since(begin) > patience && len(took[client]) >= 2 {
					return
				}
				at := time.Now()
				if errs[client] = op(client, i); errs[client] != nil {
					return
				}
				took[client] = append(took[client], peer.Ms(time.Since(at)))
			}
		})
	}
	wait.Wait()
	var all []float64
	for _, t := range took {
		all = append(all, t...)
	}
	return all, errors.Join(errs...)
}

// track measures the tracking server beside a real mlflow server.
func track(b *bench) error {
	for _, f := range trackForms {
		if err := f.measure(b); err != nil {
			return fmt.Errorf("%s: %w", f.peer, err)
		}
	}
	return nil
}

// measure runs both servers in one form. Each has a PostgreSQL of its own, so that its CPU is
// known.
func (f trackForm) measure(b *bench) error {
	home, dir := filepath.Join(b.dir, f.name), filepath.Join(b.dir, f.name+"-mlflow")
	var databases [2]*peer.Postgres
	var url string
	if f.postgres {
		for i, name := range []string{f.name + "-db", f.name + "-mlflow-db"} {
			db, err := peer.StartPostgres(b.ctx, b.group, filepath.Join(b.dir, name))
			if err != nil {
				return err
			}
			defer db.Stop()
			databases[i] = db
		}
		url = databases[1].URL("postgresql+psycopg2")
		config := "database: " + databases[0].URL("postgres") + "\n"
		if err := errors.Join(os.MkdirAll(home, 0o700), os.WriteFile(filepath.Join(home, "berth.yaml"), []byte(config), 0o600)); err != nil {
			return err
		}
	}
	s, err := world.Start(b.ctx, b.group, b.bin, home)
	if err != nil {
		return err
	}
	defer s.Stop()
	python := os.Getenv("BENCH_MLFLOW")
	if python == "" {
		python = "python3"
	}
	m, err := peer.StartMLflow(b.ctx, b.group, python, dir, f.workers, url)
	if err != nil {
		return fmt.Errorf("%w; BENCH_MLFLOW names a Python that has mlflow (and psycopg2)", err)
	}
	defer m.Stop()
	ours := f.ours(b.ctx, s, databases[0])
	theirs := &tracker{
		ready: func() error { return nil }, processes: m.Processes, usage: together(m.Usage, databases[1]),
		do: func(_ int, method, path string, body []byte) ([]byte, error) { return m.Do(b.ctx, method, path, body) },
	}
	return f.compare(b, m, ours, theirs)
}

// ours is our server with its clients.
func (f trackForm) ours(ctx context.Context, s *world.Server, db *peer.Postgres) *tracker {
	conns := make([]*world.Conn, f.clients)
	return &tracker{
		usage:     together(s.Usage, db),
		processes: func() []int { server, _ := s.Processes(); return server },
		// Our server closes connections that were idle for three minutes, and a series of calls to
		// the peer can take longer: each series has connections of its own.
		ready: func() error {
			for i := range conns {
				if conns[i] != nil {
					conns[i].Close()
				}
				c, err := s.Dial(ctx, true)
				if err != nil {
					return err
				}
				conns[i] = c
			}
			return nil
		},
		do: func(client int, method, path string, body []byte) ([]byte, error) {
			return conns[client].Do(method, "/mlflow/v2.0"+s.WS+path, body)
		},
	}
}

// together adds the CPU of a server's database to its own.
func together(server func() (time.Duration, bool), db *peer.Postgres) func() (time.Duration, bool) {
	if db == nil {
		return server
	}
	return func() (time.Duration, bool) {
		a, ok := server()
		d, also := db.Usage()
		return a + d, ok && also
	}
}

// compare measures everything on both sides.
func (f trackForm) compare(b *bench, m *peer.MLflow, ours, theirs *tracker) error {
	c := comparison{b: b, form: f, peer: m, sides: [2]*tracker{ours, theirs}}
	for _, k := range c.sides {
		k.runs, k.calls = make([]string, f.clients), make([]int, f.clients)
		if err := k.ready(); err != nil {
			return err
		}
		_, err := k.each(f.clients, 0, func(client, _ int) (err error) {
			k.runs[client], err = k.create(client)
			for range 5 {
				err = errors.Join(err, k.batch(client, 10), k.batch(client, 500))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := c.memory(); err != nil {
		return err
	}
	durable := "both: SQLite, synchronous=FULL"
	if f.postgres {
		durable = "both: PostgreSQL, fsync and synchronous_commit on"
	}
	for _, n := range []int{10, 500} {
		row := measure.Row{Name: fmt.Sprintf("%s.batch%d", f.name, n), Unit: "ms CPU", Durable: durable}
		err := c.beside(row, map[int]float64{10: 30, 500: 40}[n], true, b.size(200, 16), func(k *tracker, client int) error { return k.batch(client, n) })
		if err != nil {
			return err
		}
	}
	runs, points := b.size(10_000, 200), b.size(1_000_000, 10_000)
	if err := c.fill(runs, points); err != nil {
		return err
	}
	return errors.Join(c.search(runs), c.chart(points))
}
