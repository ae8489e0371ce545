package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

func TestTasks(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		now := time.Date(2024, 5, 6, 7, 8, 9, 123456789, time.UTC)
		task := func(job string, attempt int) *berth.Task {
			return &berth.Task{
				ID: berth.TaskID(fmt.Sprintf("%s.%d", job, attempt)), Workspace: ws, Job: job, Attempt: attempt,
				Compute: "c", State: berth.TaskWaiting, Why: "no room", Created: now,
			}
		}
		a, b, c := task("x", 1), task("y", 1), task("x", 2)
		must(t, db, func(tx *store.Tx) error {
			return errors.Join(tx.InsertTask(a), tx.InsertTask(b), tx.InsertTask(c))
		})
		wantCode(t, db.Update(ctx, func(tx *store.Tx) error { return tx.InsertTask(a) }), berth.Conflict)
		wantCode(t, db.Update(ctx, func(tx *store.Tx) error { return tx.SaveTask(task("z", 1)) }), berth.NotFound)

		check := func(what string, want []*berth.Task, read func(tx *store.Tx) ([]*berth.Task, error)) {
			t.Helper()
			look(t, db, func(tx *store.Tx) error {
				got, err := read(tx)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: %s", what, diff)
				}
				return err
			})
		}
		active := func(tx *store.Tx) ([]*berth.Task, error) { return tx.ActiveTasks() }
		ofX := func(tx *store.Tx) ([]*berth.Task, error) { return tx.TasksOf(ws, "x") }
		check("active", []*berth.Task{a, b, c}, active)
		check("of x", []*berth.Task{a, c}, ofX)
		check("elsewhere", nil, func(tx *store.Tx) ([]*berth.Task, error) { return tx.TasksOf("/elsewhere", "x") })

		a.State, a.Exit, a.Usage.MemoryBytes, a.Seen = berth.TaskDone, &berth.Exit{Code: 137, Signal: "SIGKILL", OOM: true}, 1<<40, now
		must(t, db, func(tx *store.Tx) error { return tx.SaveTask(a) })
		check("active", []*berth.Task{b, c}, active)
		check("of x", []*berth.Task{a, c}, ofX)
		look(t, db, func(tx *store.Tx) error {
			got, err := tx.Task(a.ID)
			if diff := cmp.Diff(a, got); diff != "" {
				t.Error(diff)
			}
			_, missing := tx.Task("none")
			wantCode(t, missing, berth.NotFound)
			return err
		})
	})
}

func TestLease(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		lease := func(holder string, ttl time.Duration, want bool) {
			t.Helper()
			must(t, db, func(tx *store.Tx) error {
				got, err := tx.Lease("control", holder, ttl)
				if got != want {
					t.Errorf("%s for %v: %v, want %v", holder, ttl, got, want)
				}
				return err
			})
		}
		lease("a", time.Hour, true)
		lease("b", time.Hour, false)
		lease("a", time.Hour, true)
		lease("a", 0, true) // gives it up
		lease("b", time.Nanosecond, true)
		lease("a", time.Hour, true) // b's has ended
		lease("b", time.Hour, false)
		must(t, db, func(tx *store.Tx) error {
			other, err := tx.Lease("another", "b", time.Hour)
			if !other {
				t.Error("leases are not apart")
			}
			return err
		})
	})
}

func TestMeta(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		read := func(want string) {
			t.Helper()
			look(t, db, func(tx *store.Tx) error {
				got, err := tx.Meta("key")
				if got != want {
					t.Errorf("%q, want %q", got, want)
				}
				return err
			})
		}
		read("")
		for _, v := range []string{"1", "two ⚓", ""} {
			must(t, db, func(tx *store.Tx) error { return tx.SetMeta("key", v) })
			read(v)
		}
	})
}
