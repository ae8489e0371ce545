package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
	"github.com/berthml/berth/internal/store"
)

// flat submits and lists beside a thousand and beside a million finished jobs. The times must not
// depend on it.
func flat(b *bench) error {
	sizes := [2]int{1000, b.size(1_000_000, 5000)}
	var servers [2]*world.Server
	var conns [2]*world.Conn
	var watches [2]*world.Watch
	var notes [2]string
	for i, n := range sizes {
		var err error
		if notes[i], err = b.fill(b.flatHome(i), n); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	for i := range sizes {
		t := time.Now()
		var err error
		if servers[i], err = world.Start(b.ctx, b.group, b.bin, b.flatHome(i)); err != nil {
			return err
		}
		defer servers[i].Stop()
		notes[i] += fmt.Sprintf(", restart to first answer %.3g ms", peer.Ms(time.Since(t)))
		if conns[i], err = servers[i].Dial(b.ctx, false); err != nil {
			return err
		}
		defer conns[i].Close()
		if watches[i], err = servers[i].Watch(b.ctx); err != nil {
			return err
		}
		defer watches[i].Close()
	}
	fmt.Printf("flat: %d jobs: %s; %d jobs: %s\n", sizes[0], notes[0], sizes[1], notes[1])
	count := 0
	for _, op := range []struct {
		name string
		run  func(i int) (time.Duration, error)
	}{
		{"flat.submit", func(i int) (time.Duration, error) {
			count++
			name := fmt.Sprintf("done_%07d_%d", rand.IntN(sizes[i]), count) // anywhere among the others
			t := time.Now()
			err := conns[i].Submit(servers[i].WS, name, world.Job("/bin/true"))
			d := time.Since(t)
			if err == nil {
				err = allDone(watches[i], 1)
			}
			return d, err
		}},
		{"flat.list", func(i int) (time.Duration, error) {
			t := time.Now()
			_, err := conns[i].Get(servers[i].WS + "/jobs")
			return time.Since(t), err
		}},
		{"flat.running", func(i int) (time.Duration, error) {
			t := time.Now()
			_, err := conns[i].Get(servers[i].WS + "/jobs?status=Running")
			return time.Since(t), err
		}},
	} {
		if err := b.flatOp(op.name, op.run, sizes, servers); err != nil {
			return fmt.Errorf("%s: %w", op.name, err)
		}
	}
	return nil
}

func (b *bench) flatHome(i int) string { return filepath.Join(b.dir, fmt.Sprintf("flat%d", i)) }

// flatOp takes turns between the two servers, call by call.
func (b *bench) flatOp(name string, run func(i int) (time.Duration, error), sizes [2]int, servers [2]*world.Server) error {
	var rounds [2][]float64
	var cpu time.Duration
	n := b.size(100, 10)
	for i := range 40 { // both warm
		if _, err := run(i % 2); err != nil {
			return err
		}
	}
	for range b.rounds {
		var v [2][]float64
		before := servers[1].Own()
		for range n {
			for i := range v {
				d, err := run(i)
				if err != nil {
					return err
				}
				v[i] = append(v[i], peer.Ms(d))
			}
		}
		cpu += servers[1].Own().Since(before)
		for i := range v {
			rounds[i] = append(rounds[i], measure.Median(v[i]))
		}
	}
	row := measure.Row{
		Name: name, Unit: "ms", Value: measure.Median(rounds[1]), CPUPerOp: measure.Number(peer.Ms(cpu) / float64(n*b.rounds)),
		Durable: "both", Note: fmt.Sprintf("beside %d finished jobs, calls alternate", sizes[1]),
	}
	row.Against(fmt.Sprintf("itself beside %d", sizes[0]), "", rounds[1], rounds[0], false)
	row.Judge(measure.Bound{Of: "ratio", Least: true, Limit: 0.909})
	return b.write(row)
}

// fill makes a home with n finished jobs: one real one, and copies of all it left in the database.
func (b *bench) fill(home string, n int) (string, error) {
	s, err := world.Start(b.ctx, b.group, b.bin, home)
	if err != nil {
		return "", err
	}
	_, _, err = shortJobs(b, s, "real", 1)
	s.Stop()
	if err != nil {
		return "", err
	}
	t := time.Now()
	db, err := store.Open(b.ctx, "sqlite:"+filepath.Join(home, "berth.db"), store.Options{NoSync: true})
	if err != nil {
		return "", err
	}
	defer db.Close()
	var doc *store.Doc
	var task *berth.Task
	var events []berth.Event
	workspace := berth.Workspace{Subscription: "00000000-0000-0000-0000-000000000000", Group: "berth", Name: "default"}.Key()
	err = db.View(b.ctx, func(tx *store.Tx) error {
		if doc, err = tx.Get(workspace, "jobs", "real-0", ""); err != nil {
			return err
		}
		tasks, err := tx.TasksOf(workspace, "real-0")
		if err != nil {
			return err
		}
		if len(tasks) != 1 {
			return fmt.Errorf("a job has %d tasks", len(tasks))
		}
		task = tasks[0]
		events, err = tx.Events(store.EventQuery{Workspace: workspace, Subject: "jobs/real-0"})
		return err
	})
	if err != nil {
		return "", err
	}
	for from := 0; from < n; from += 10_000 {
		if err := b.copies(db, from, min(from+10_000, n), doc, task, events); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("filled in %.3g s", time.Since(t).Seconds()), nil
}

func (b *bench) copies(db *store.DB, from, to int, doc *store.Doc, task *berth.Task, events []berth.Event) error {
	return db.Update(context.WithoutCancel(b.ctx), func(tx *store.Tx) error {
		for i := from; i < to; i++ {
			name := fmt.Sprintf("done_%07d", i) // in order, which is several times quicker to write
			d := *doc
			d.Name = name
			if err := tx.Insert(&d); err != nil {
				return err
			}
			t := *task
			t.ID, t.Job = berth.TaskID(name+".1"), name
			if err := tx.InsertTask(&t); err != nil {
				return err
			}
			for _, e := range events {
				e.Subject = "jobs/" + name
				tx.Emit(e)
			}
		}
		return nil
	})
}
