package store_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/store/pgtest"
)

// benchEngines runs a benchmark on a durable database of every engine.
func benchEngines(b *testing.B, bench func(b *testing.B, db *store.DB)) {
	run := func(name string, url func(b *testing.B) string) {
		b.Run(name, func(b *testing.B) {
			db, err := store.Open(ctx, url(b), store.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			bench(b, db)
		})
	}
	run("sqlite", func(b *testing.B) string { return "sqlite:" + filepath.Join(b.TempDir(), "berth.db") })
	run("postgres", func(b *testing.B) string {
		server, err := pgtest.Start()
		pgtest.Need(b, err)
		b.Cleanup(server.Stop)
		return server.URL()
	})
}

// cpu reports the processor time of an operation in this process, which a busy machine does not
// blur.
func cpu(b *testing.B) (report func()) {
	used := func() int64 {
		var r syscall.Rusage
		syscall.Getrusage(syscall.RUSAGE_SELF, &r)
		return r.Utime.Nano() + r.Stime.Nano()
	}
	start := used()
	return func() { b.ReportMetric(float64(used()-start)/float64(b.N), "cpu-ns/op") }
}

// submit is what the acceptance of a job writes.
func submit(name string) func(*store.Tx) error {
	body := json.RawMessage(`{"properties":{"jobType":"Command","command":"` + strings.Repeat("x", 800) + `"}}`)
	return func(tx *store.Tx) error {
		d := &store.Doc{Workspace: ws, Kind: "jobs", Name: name, Status: "NotStarted", CreatedBy: "me", Parent: "Default", Body: body}
		if err := tx.Insert(d); err != nil {
			return err
		}
		tx.Emit(berth.Event{Workspace: ws, Subject: "jobs/" + name, Type: berth.EventJobCreated, Reason: "It was submitted."})
		return nil
	}
}

// BenchmarkUpdate is the submission of a job: one document, one event, one wait for the disk.
func BenchmarkUpdate(b *testing.B) {
	benchEngines(b, func(b *testing.B, db *store.DB) {
		var n atomic.Int64
		b.Run("lone", func(b *testing.B) {
			defer cpu(b)()
			for b.Loop() {
				must(b, db, submit(fmt.Sprintf("job-%d", n.Add(1))))
			}
		})
		b.Run("64", func(b *testing.B) {
			b.SetParallelism(32) // times two cores
			defer cpu(b)()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					must(b, db, submit(fmt.Sprintf("job-%d", n.Add(1))))
				}
			})
		})
	})
}

// BenchmarkJob is the life of a short job as the store sees it, in five updates, with 64 jobs at a
// time.
func BenchmarkJob(b *testing.B) {
	benchEngines(b, func(b *testing.B, db *store.DB) {
		var n atomic.Int64
		b.SetParallelism(32)
		b.ResetTimer()
		defer cpu(b)()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				life(b, db, fmt.Sprintf("job-%d", n.Add(1)))
			}
		})
	})
}

func life(b *testing.B, db *store.DB, name string) {
	must(b, db, submit(name))
	t := &berth.Task{ID: berth.TaskID(name + ".1"), Workspace: ws, Job: name, Attempt: 1, Compute: "local", State: berth.TaskWaiting}
	must(b, db, func(tx *store.Tx) error { return tx.InsertTask(t) })
	move := func(state berth.TaskState, status string) {
		must(b, db, func(tx *store.Tx) error {
			t, err := tx.Task(t.ID)
			if err != nil {
				return err
			}
			t.State = state
			if err := tx.SaveTask(t); err != nil {
				return err
			}
			d, err := tx.Get(ws, "jobs", name, "")
			if err != nil {
				return err
			}
			d.Status = status
			tx.Emit(berth.Event{Workspace: ws, Subject: "jobs/" + name, Type: berth.EventJobStatus, Data: json.RawMessage(`{"status":"` + status + `"}`)})
			return tx.Save(d)
		})
	}
	move(berth.TaskStarting, "Starting")
	move(berth.TaskRunning, "Running")
	move(berth.TaskDone, "Completed")
}

// BenchmarkGet reads one document in a view of its own.
func BenchmarkGet(b *testing.B) {
	benchEngines(b, func(b *testing.B, db *store.DB) {
		must(b, db, submit("x"))
		defer cpu(b)()
		for b.Loop() {
			look(b, db, func(tx *store.Tx) error {
				_, err := tx.Get(ws, "jobs", "x", "")
				return err
			})
		}
	})
}

// BenchmarkFlat submits and lists in turn beside 1,000 finished jobs and beside many: 20,000, or as
// many as BERTH_BENCH_JOBS says. It reports the medians and their ratio, which should not depend on
// the number.
func BenchmarkFlat(b *testing.B) {
	many := 20_000
	if n, err := strconv.Atoi(os.Getenv("BERTH_BENCH_JOBS")); err == nil {
		many = n
	}
	b.Run("sqlite", func(b *testing.B) {
		flat(b, many, func() string { return "sqlite:" + filepath.Join(b.TempDir(), "berth.db") })
	})
	b.Run("postgres", func(b *testing.B) {
		server, err := pgtest.Start()
		pgtest.Need(b, err)
		b.Cleanup(server.Stop)
		flat(b, many, func() string { return server.Schema(b) })
	})
}

func flat(b *testing.B, many int, url func() string) {
	var dbs []*store.DB
	for _, size := range []int{1000, many} {
		db, err := store.Open(ctx, url(), store.Options{})
		if err != nil {
			b.Fatal(err)
		}
		defer db.Close()
		finished(b, db, size)
		dbs = append(dbs, db)
	}
	extra := 0
	b.Run("submit", func(b *testing.B) {
		inTurn(b, dbs, func(db *store.DB) {
			extra++
			must(b, db, submit(fmt.Sprintf("done-%d-extra", extra*7919%1_000_003)))
		})
	})
	no := false
	for _, l := range []struct {
		name string
		q    store.Query
	}{
		{"list", store.Query{Archived: &no}},
		{"all", store.Query{}},
		{"running", store.Query{Status: []string{"Running", "Queued", "NotStarted"}}},
		{"parent", store.Query{Parent: "Default"}},
		{"page", store.Query{Archived: &no, After: 1000}},
	} {
		l.q.Workspace, l.q.Kind, l.q.Limit = ws, "jobs", 50
		b.Run(l.name, func(b *testing.B) {
			inTurn(b, dbs, func(db *store.DB) {
				look(b, db, func(tx *store.Tx) error {
					_, err := tx.List(l.q)
					return err
				})
			})
		})
	}
	b.Run("active", func(b *testing.B) {
		inTurn(b, dbs, func(db *store.DB) {
			look(b, db, func(tx *store.Tx) error {
				_, err := tx.ActiveTasks()
				return err
			})
		})
	})
}

// inTurn measures an operation on the first database and the second, one after the other, so that
// what else the machine does falls on both.
func inTurn(b *testing.B, dbs []*store.DB, do func(*store.DB)) {
	times := make([][]time.Duration, len(dbs))
	for b.Loop() {
		for i, db := range dbs {
			start := time.Now()
			do(db)
			times[i] = append(times[i], time.Since(start))
		}
	}
	median := func(t []time.Duration) float64 {
		slices.Sort(t)
		return float64(t[len(t)/2])
	}
	few, many := median(times[0]), median(times[1])
	b.ReportMetric(few, "few-ns/op")
	b.ReportMetric(many, "many-ns/op")
	b.ReportMetric(many/few, "ratio")
}

// finished makes n jobs, each with its task and two events.
func finished(b testing.TB, db *store.DB, n int) {
	for from := 0; from < n; {
		end := min(from+1000, n)
		must(b, db, func(tx *store.Tx) error {
			for i := from; i < end; i++ {
				name := fmt.Sprintf("done-%d", i*7919%1_000_003) // names come in no order
				if err := submit(name)(tx); err != nil {
					return err
				}
				t := &berth.Task{ID: berth.TaskID(name + ".1"), Workspace: ws, Job: name, State: berth.TaskDone}
				if err := tx.InsertTask(t); err != nil {
					return err
				}
				d, err := tx.Get(ws, "jobs", name, "")
				if err != nil {
					return err
				}
				d.Status = "Completed"
				if err := tx.Save(d); err != nil {
					return err
				}
				tx.Emit(berth.Event{Workspace: ws, Subject: "jobs/" + name, Type: berth.EventJobStatus})
			}
			return nil
		})
		from = end
	}
}
