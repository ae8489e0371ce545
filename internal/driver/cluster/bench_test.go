//go:build linux

package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// home is a server that takes reports; first has the first report of each task.
type home struct {
	url   string
	first chan berth.Report
}

func newHome(b *testing.B) *home {
	h := &home{url: "unix://" + filepath.Join(b.TempDir(), "api.sock"), first: make(chan berth.Report, 100)}
	l, err := net.Listen("unix", h.url[len("unix://"):])
	if err != nil {
		b.Fatal(err)
	}
	seen := map[berth.TaskID]bool{}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var rs []berth.Report
		if err := json.NewDecoder(r.Body).Decode(&rs); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for _, rep := range rs {
			if !seen[rep.Task] {
				seen[rep.Task] = true
				h.first <- rep
			}
		}
		fmt.Fprint(w, "{}")
	})}
	go func() { _ = srv.Serve(l) }()
	b.Cleanup(func() { srv.Close() })
	return h
}

// BenchmarkAddNode makes a node from nothing, runs a command on it, waits for the first report, and
// gives the node back.
func BenchmarkAddNode(b *testing.B) {
	d, _ := open(b)
	h := newHome(b)
	logs := b.TempDir()
	ctx := context.Background()
	var added, reported, removed []time.Duration
	for i := range b.N {
		name := fmt.Sprintf("node-%d", i)
		began := time.Now()
		if err := d.AddNode(ctx, driver.NodeSpec{Name: name, CPUs: 2, Memory: 1 << 30, Slots: 1}); err != nil {
			b.Fatal(err)
		}
		added = append(added, time.Since(began))
		_, err := d.Start(ctx, berth.Launch{
			Task: berth.TaskID(name + ".1"), Command: "/bin/true", Node: name, LogFile: filepath.Join(logs, name), Home: berth.Home{URL: h.url, Token: "x"},
		})
		if err != nil {
			b.Fatal(err)
		}
		<-h.first
		reported = append(reported, time.Since(began))
		began = time.Now()
		if err := d.RemoveNode(ctx, name); err != nil {
			b.Fatal(err)
		}
		removed = append(removed, time.Since(began))
	}
	for what, list := range map[string][]time.Duration{"add": added, "report": reported, "remove": removed} {
		slices.Sort(list)
		b.ReportMetric(float64(list[len(list)/2])/1e6, "p50-"+what+"-ms")
		b.ReportMetric(float64(list[len(list)*99/100])/1e6, "p99-"+what+"-ms")
	}
}
