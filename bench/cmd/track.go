package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
)

// tracker is one of two tracking servers.
type tracker struct {
	do    func(method, path string, body []byte) ([]byte, error)
	usage func() (time.Duration, bool)
	begin func() error // before a series of calls
	run   string
	calls int
}

// ready is called before a series of calls.
func (k *tracker) ready() error {
	if k.begin == nil {
		return nil
	}
	return k.begin()
}

func (k *tracker) call(method, path, body string) ([]byte, error) {
	var b []byte
	if body != "" {
		b = []byte(body)
	}
	return k.do(method, "/api/2.0/mlflow/"+path, b)
}

// create makes a run.
func (k *tracker) create() (string, error) {
	out, err := k.call(http.MethodPost, "runs/create", `{"experiment_id": "0", "start_time": 1}`)
	var v struct {
		Run struct {
			Info struct {
				ID string `json:"run_id"`
			} `json:"info"`
		} `json:"run"`
	}
	return v.Run.Info.ID, errors.Join(err, json.Unmarshal(out, &v))
}

// batch logs n metrics of one step to the tracker's run.
func (k *tracker) batch(n int) error {
	k.calls++
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,{"key": "m%d", "value": %g, "timestamp": %d, "step": %d}`, i, rand.Float64(), 1700000000000+k.calls, k.calls)
	}
	_, err := k.call(http.MethodPost, "runs/log-batch", `{"run_id": "`+k.run+`", "metrics": [`+b.String()[1:]+`]}`)
	return err
}

// track measures the tracking server beside a real mlflow server with one worker on SQLite.
func track(b *bench) error {
	s, err := world.Start(b.ctx, b.group, b.bin, filepath.Join(b.dir, "track"))
	if err != nil {
		return err
	}
	defer s.Stop()
	python := os.Getenv("BENCH_MLFLOW")
	if python == "" {
		python = "python3"
	}
	m, err := peer.StartMLflow(b.ctx, b.group, python, filepath.Join(b.dir, "mlflow"))
	if err != nil {
		return fmt.Errorf("%w; BENCH_MLFLOW names a Python that has mlflow", err)
	}
	defer m.Stop()
	var c *world.Conn
	// Our server closes connections that were idle for three minutes, and a series of calls to the
	// peer can take longer: each series has a connection of its own.
	dial := func() error {
		if c != nil {
			c.Close()
		}
		c, err = s.Dial(b.ctx, true)
		return err
	}
	if err := dial(); err != nil {
		return err
	}
	defer func() { c.Close() }()
	ours := &tracker{begin: dial, usage: s.Usage, do: func(method, path string, body []byte) ([]byte, error) {
		return c.Do(method, "/mlflow/v2.0"+s.WS+path, body)
	}}
	theirs := &tracker{usage: m.Usage, do: func(method, path string, body []byte) ([]byte, error) { return m.Do(b.ctx, method, path, body) }}
	for _, k := range []*tracker{ours, theirs} {
		if k.run, err = k.create(); err != nil {
			return err
		}
		for range 5 {
			if err := errors.Join(k.batch(10), k.batch(500)); err != nil {
				return err
			}
		}
	}
	if err := trackMemory(b, s, m); err != nil {
		return err
	}
	for _, n := range []int{10, 500} {
		err := b.beside(m, ours, theirs, measure.Row{Name: fmt.Sprintf("track.batch%d", n), Unit: "ms CPU", Durable: "yes, both"}, map[int]float64{10: 30, 500: 40}[n], true, b.size(100, 10),
			func(k *tracker) error { return k.batch(n) })
		if err != nil {
			return err
		}
	}
	if err := trackSearch(b, m, ours, theirs); err != nil {
		return err
	}
	return trackChart(b, m, ours, theirs)
}

// beside measures one operation on both sides, round by round: CPU of the server, or time, in
// milliseconds for each.
func (b *bench) beside(m *peer.MLflow, ours, theirs *tracker, row measure.Row, least float64, cpu bool, n int, op func(*tracker) error) error {
	var all [2][]float64
	for range b.rounds {
		for i, k := range []*tracker{ours, theirs} {
			if err := k.ready(); err != nil {
				return err
			}
			before, ok := k.usage()
			if !ok {
				return errors.New("CPU cannot be counted here: it takes control groups of version 1")
			}
			var took []float64
			for range n {
				begin := time.Now()
				if err := op(k); err != nil {
					return err
				}
				took = append(took, peer.Ms(time.Since(begin)))
			}
			after, _ := k.usage()
			v := peer.Ms(after-before) / float64(n)
			if !cpu {
				v = measure.Median(took)
			}
			all[i] = append(all[i], v)
		}
	}
	row.Value = measure.Median(all[0])
	row.Against("mlflow server", m.Version, all[0], all[1], false)
	row.Judge(measure.Bound{Of: "ratio", Least: true, Limit: least})
	return b.write(row)
}

func trackMemory(b *bench, s *world.Server, m *peer.MLflow) error {
	own := 0.0
	server, _ := s.Processes()
	for _, pid := range server {
		rss, _, err := measure.Memory(pid)
		if err != nil {
			return err
		}
		own += float64(rss) / 1e6
	}
	other, err := m.Memory()
	if err != nil {
		return err
	}
	row := measure.Row{Name: "track.memory", Unit: "MB", Value: own, Note: "RSS of the servers with nothing to do"}
	row.Against("mlflow server", m.Version, []float64{own}, []float64{float64(other) / 1e6}, false)
	row.Judge(measure.Bound{Of: "ratio", Least: true, Limit: 20})
	return b.write(row)
}

// trackSearch is a filter and an order over many runs.
func trackSearch(b *bench, m *peer.MLflow, ours, theirs *tracker) error {
	runs := b.size(10_000, 200)
	for _, k := range []*tracker{ours, theirs} {
		if err := k.ready(); err != nil {
			return err
		}
		for i := range runs {
			id, err := k.create()
			if err != nil {
				return err
			}
			_, err = k.call(http.MethodPost, "runs/log-batch", fmt.Sprintf(`{"run_id": %q, "metrics": [{"key": "acc", "value": %g, "timestamp": 1}], "params": [{"key": "lr", "value": "%d"}]}`,
				id, float64(i*7919%runs)/float64(runs), i%10))
			if err != nil {
				return err
			}
		}
	}
	for name, query := range map[string]string{
		"filter": `{"experiment_ids": ["0"], "max_results": 20, "filter": "metrics.acc > 0.9 AND params.lr = '3'"}`,
		"order":  `{"experiment_ids": ["0"], "max_results": 20, "filter": "params.lr = '3'", "order_by": ["metrics.acc DESC"]}`,
	} {
		err := b.beside(m, ours, theirs, measure.Row{Name: "track.search." + name, Unit: "ms", Note: fmt.Sprintf("p50 over %d runs", runs)}, 20, false, b.size(20, 5), func(k *tracker) error {
			_, err := k.call(http.MethodPost, "runs/search", query)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// trackChart is a metric of many points in as many as a chart has.
func trackChart(b *bench, m *peer.MLflow, ours, theirs *tracker) error {
	points := b.size(1_000_000, 10_000)
	for _, k := range []*tracker{ours, theirs} {
		if err := k.ready(); err != nil {
			return err
		}
		for at := 0; at < points; at += 1000 {
			var p strings.Builder
			for i := at; i < at+1000; i++ {
				fmt.Fprintf(&p, `,{"key": "curve", "value": %d, "timestamp": %d, "step": %d}`, i%97, 1700000000000+i, i)
			}
			if _, err := k.call(http.MethodPost, "runs/log-batch", `{"run_id": "`+k.run+`", "metrics": [`+p.String()[1:]+`]}`); err != nil {
				return err
			}
		}
	}
	row := measure.Row{Name: "track.chart", Unit: "ms", Note: fmt.Sprintf("get-history-bulk-interval, 1000 of %d points", points)}
	return b.beside(m, ours, theirs, row, 50, false, b.size(5, 2), func(k *tracker) error {
		_, err := k.do(http.MethodGet, "/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval?metric_key=curve&max_results=1000&run_ids="+k.run, nil)
		return err
	})
}
