package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
)

// comparison is the two servers of one form.
type comparison struct {
	b     *bench
	form  trackForm
	peer  *peer.MLflow
	sides [2]*tracker // ours, the peer
}

// beside measures one operation on both sides, round by round: the CPU of the server and its
// database for each, or the time that half of them took at most.
func (c *comparison) beside(row measure.Row, least float64, cpu bool, n int, op func(k *tracker, client int) error) error {
	var cpus, times [2][]float64
	for range c.b.rounds {
		for i, k := range c.sides {
			if err := k.ready(); err != nil {
				return err
			}
			before, ok := k.usage()
			if !ok {
				return errors.New("CPU cannot be counted here: it takes control groups of version 1")
			}
			took, err := k.each(n, 5*time.Second, func(client, _ int) error { return op(k, client) })
			if err != nil {
				return err
			}
			after, _ := k.usage()
			cpus[i] = append(cpus[i], peer.Ms(after-before)/float64(len(took)))
			times[i] = append(times[i], measure.Median(took))
		}
	}
	values, note := times, "p50"
	if cpu {
		values, note = cpus, fmt.Sprintf("p50 %.3g ms, the peer %.3g ms", measure.Median(times[0]), measure.Median(times[1]))
	}
	if c.form.postgres {
		note += fmt.Sprintf("; %d clients; CPU of the server and its PostgreSQL", c.form.clients)
	}
	row.Value, row.CPUPerOp, row.Note = measure.Median(values[0]), measure.Number(measure.Median(cpus[0])), join(row.Note, note)
	row.Against(c.form.peer, c.peer.Version, values[0], values[1], false)
	row.PeerCPUPerOp = measure.Number(measure.Median(cpus[1]))
	if !cpu {
		row.Note += fmt.Sprintf("; the peer's CPU %.3g ms", measure.Median(cpus[1]))
	}
	row.Judge(measure.Bound{Of: "ratio", Least: true, Limit: least})
	return c.b.write(row)
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// memory compares all processes of the servers, which have nothing to do. Pages that processes of
// one side share count once: PSS. The databases are not counted.
func (c *comparison) memory() error {
	if err := c.b.sleep(time.Duration(c.b.size(15, 2)) * time.Second); err != nil {
		return err
	}
	var rss, pss [2]float64
	for i, k := range c.sides {
		for _, pid := range k.processes() {
			r, p, err := measure.Memory(pid)
			if err != nil {
				return err
			}
			rss[i], pss[i] = rss[i]+float64(r)/1e6, pss[i]+float64(p)/1e6
		}
	}
	row := measure.Row{
		Name: c.form.name + ".memory", Unit: "MB", Value: pss[0],
		Note: fmt.Sprintf("PSS of the server's processes, 15 s after a few batches; RSS %.3g MB, the peer's %d processes %.4g MB", rss[0], len(c.sides[1].processes()), rss[1]),
	}
	row.Against(c.form.peer, c.peer.Version, pss[:1], pss[1:], false)
	row.Judge(measure.Bound{Of: "ratio", Least: true, Limit: 20})
	return c.b.write(row)
}

// fill makes many runs, and a metric with many points: ours by requests, the peer's in its
// database.
func (c *comparison) fill(runs, points int) error {
	k, theirs := c.sides[0], c.sides[1]
	if err := k.ready(); err != nil {
		return err
	}
	_, err := k.each(runs, 0, func(client, i int) error {
		id, err := k.create(client)
		if err != nil {
			return err
		}
		_, err = k.call(client, "runs/log-batch", fmt.Sprintf(`{"run_id": %q, "metrics": [{"key": "acc", "value": %g, "timestamp": 1}], "params": [{"key": "lr", "value": "%d"}]}`,
			id, float64(i*7919%runs)/float64(runs), i%10))
		return err
	})
	if err != nil {
		return err
	}
	for at := 0; at < points; at += 1000 { // one client, as a run logs its own metrics
		var p strings.Builder
		for i := at; i < at+1000; i++ {
			fmt.Fprintf(&p, `,{"key": "curve", "value": %d, "timestamp": %d, "step": %d}`, i%97, 1700000000000+i, i)
		}
		if _, err := k.call(0, "runs/log-batch", `{"run_id": "`+k.runs[0]+`", "metrics": [`+p.String()[1:]+`]}`); err != nil {
			return err
		}
	}
	empty, err := theirs.create(0) // the batches of the others are not copied
	if err != nil {
		return err
	}
	return c.peer.Fill(c.b.ctx, empty, runs, theirs.runs[0], points)
}

// search is a filter and an order over many runs.
func (c *comparison) search(runs int) error {
	for _, q := range []struct{ name, body string }{
		{"filter", `{"experiment_ids": ["0"], "max_results": 20, "filter": "metrics.acc > 0.9 AND params.lr = '3'"}`},
		{"order", `{"experiment_ids": ["0"], "max_results": 20, "filter": "params.lr = '3'", "order_by": ["metrics.acc DESC"]}`},
	} {
		row := measure.Row{Name: c.form.name + ".search." + q.name, Unit: "ms", Note: fmt.Sprintf("%d runs", runs)}
		err := c.beside(row, 20, false, c.b.size(40, 8), func(k *tracker, client int) error {
			_, err := k.call(client, "runs/search", q.body)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// chart is a metric of many points in as many as a chart has.
func (c *comparison) chart(points int) error {
	row := measure.Row{Name: c.form.name + ".chart", Unit: "ms", Note: fmt.Sprintf("get-history-bulk-interval, 1000 of %d points", points)}
	return c.beside(row, 50, false, c.b.size(16, 8), func(k *tracker, client int) error {
		_, err := k.do(client, http.MethodGet, "/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval?metric_key=curve&max_results=1000&run_ids="+k.runs[0], nil)
		return err
	})
}
