package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// emit commits events of the given subjects.
func emit(t testing.TB, db *store.DB, subjects ...string) {
	t.Helper()
	must(t, db, func(tx *store.Tx) error {
		for _, s := range subjects {
			tx.Emit(berth.Event{Workspace: ws, Subject: s, Type: "test"})
		}
		return nil
	})
}

// follow reads n events of a watch and returns the subjects.
func follow(t testing.TB, w *store.Watch, n int) []string {
	t.Helper()
	var subjects []string
	for len(subjects) < n {
		events, err := w.Next()
		if err != nil {
			t.Error(err)
			return subjects
		}
		for _, e := range events {
			subjects = append(subjects, e.Subject)
		}
	}
	return subjects
}

// TestWatchers has a thousand watchers, from any revision, see every event of concurrent writers
// once and in order.
func TestWatchers(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		const writers, each, watchers = 8, 40, 1000
		const total = writers * each
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		seen := make([][]berth.Rev, watchers)
		from := make([]berth.Rev, watchers)
		var watching, writing sync.WaitGroup
		for i := range watchers {
			watching.Go(func() {
				from[i] = db.Rev() // some start in the middle
				w := db.Watch(ctx, from[i])
				var last berth.Rev
				stop := berth.Rev(-1)
				for stop < 0 || last < stop {
					events, err := w.Next()
					if err != nil {
						t.Errorf("watcher %d: %v", i, err)
						return
					}
					for _, e := range events {
						seen[i] = append(seen[i], e.Rev)
						last = e.Rev
						if e.Subject == "end" {
							stop = e.Rev
						}
					}
				}
			})
		}
		for i := range writers {
			writing.Go(func() {
				for j := range each {
					err := db.Update(ctx, func(tx *store.Tx) error {
						tx.Emit(berth.Event{Workspace: ws, Subject: fmt.Sprintf("jobs/%d-%d", i, j), Type: "test"})
						if j%3 == 0 {
							return tx.Insert(job(fmt.Sprintf("%d-%d", i, j)))
						}
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		writing.Wait()
		emit(t, db, "end")
		watching.Wait()
		var all []berth.Rev
		look(t, db, func(tx *store.Tx) error {
			events, err := tx.Events(store.EventQuery{Limit: 2 * total})
			for _, e := range events {
				all = append(all, e.Rev)
			}
			return err
		})
		if len(all) != total+1 {
			t.Fatalf("%d events in the table, want %d", len(all), total+1)
		}
		for i := range watchers {
			want := all
			for len(want) > 0 && want[0] <= from[i] {
				want = want[1:]
			}
			if diff := cmp.Diff(want, seen[i]); diff != "" {
				t.Fatalf("watcher %d from %d: %s", i, from[i], diff)
			}
		}
	})
}

// TestWatchSubject has followers of single jobs among a crowd of events, which are pruned at their
// back.
func TestWatchSubject(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		const jobs, followers, rounds = 20, 5, 15
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		want := make([][]string, jobs)
		got := make([][]string, jobs*followers)
		var wg sync.WaitGroup
		for i := range got {
			subject := fmt.Sprintf("jobs/%d", i%jobs)
			w := db.WatchSubject(ctx, 0, ws, subject)
			wg.Go(func() {
				for {
					events, err := w.Next()
					if err != nil {
						t.Errorf("%s after %v: %v", subject, got[i], err)
						return
					}
					for _, e := range events {
						if e.Subject != subject || e.Workspace != ws {
							t.Errorf("%s got %+v", subject, e)
						}
						got[i] = append(got[i], e.Reason)
						if e.Reason == "end" {
							return
						}
					}
				}
			})
		}
		for round := range rounds {
			must(t, db, func(tx *store.Tx) error {
				for j := round % 3; j < jobs; j += 3 {
					if j == 7 && round < rounds-1 {
						continue // is silent for long
					}
					tx.Emit(berth.Event{Workspace: ws, Subject: fmt.Sprintf("jobs/%d", j), Type: "test", Reason: fmt.Sprint(round)})
					tx.Emit(berth.Event{Workspace: "/other", Subject: fmt.Sprintf("jobs/%d", j), Type: "test", Reason: "of another"})
				}
				return nil
			})
			for j := round % 3; j < jobs; j += 3 {
				if j != 7 || round == rounds-1 {
					want[j] = append(want[j], fmt.Sprint(round))
				}
			}
		}
		must(t, db, func(tx *store.Tx) error {
			for j := range jobs {
				tx.Emit(berth.Event{Workspace: ws, Subject: fmt.Sprintf("jobs/%d", j), Type: "test", Reason: "end"})
			}
			return nil
		})
		wg.Wait()
		for i := range got {
			if diff := cmp.Diff(append(want[i%jobs], "end"), got[i]); diff != "" {
				t.Errorf("jobs/%d: %s", i%jobs, diff)
			}
		}
	})
}

// TestSilentSubject: a follower that waits while the past is pruned goes on with the next event of
// its subject.
func TestSilentSubject(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		emit(t, db, "jobs/silent")
		w := db.WatchSubject(ctx, 0, "", "jobs/silent")
		follow(t, w, 1)
		waiting := make(chan []string)
		go func() { waiting <- follow(t, w, 1) }()
		for i := range 10 {
			emit(t, db, fmt.Sprintf("jobs/%d", i))
		}
		must(t, db, func(tx *store.Tx) error {
			_, err := tx.PruneEvents(time.Now().Add(time.Hour), 1000)
			return err
		})
		emit(t, db, "jobs/silent")
		if got := <-waiting; len(got) != 1 || got[0] != "jobs/silent" {
			t.Errorf("got %v", got)
		}
	})
}

// TestWatchFromThePast reads what the memory does not hold any more, across its edge, and after a
// restart.
func TestWatchFromThePast(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		var want []string
		first := db.Watch(ctx, 0)
		for i := range 100 {
			var batch []string
			for j := range 120 {
				batch = append(batch, fmt.Sprintf("jobs/%d-%d", i, j))
			}
			emit(t, db, batch...)
			want = append(want, batch...)
		}
		if diff := cmp.Diff(want, follow(t, first, len(want))); diff != "" {
			t.Error(diff)
		}
		var rev berth.Rev
		look(t, db, func(tx *store.Tx) error {
			events, err := tx.Events(store.EventQuery{Subject: want[6000]})
			rev = events[0].Rev
			return err
		})
		if diff := cmp.Diff(want[6001:], follow(t, db.Watch(ctx, rev), len(want)-6001)); diff != "" {
			t.Error(diff)
		}
		db.Close()
		db = open(t, url)
		again := db.Watch(ctx, 0)
		if diff := cmp.Diff(want, follow(t, again, len(want))); diff != "" {
			t.Error(diff)
		}
		emit(t, db, "new")
		if got := follow(t, again, 1); got[0] != "new" {
			t.Errorf("after a restart: %v", got)
		}
	})
}

// TestWatchLargeEvents: events that do not fit into memory together are watched all the same.
func TestWatchLargeEvents(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		large := json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
		var want []string
		for i := range 20 {
			want = append(want, fmt.Sprint(i))
			must(t, db, func(tx *store.Tx) error {
				tx.Emit(berth.Event{Subject: fmt.Sprint(i), Type: "test", Data: large})
				return nil
			})
		}
		if diff := cmp.Diff(want, follow(t, db.Watch(ctx, 0), len(want))); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWatchContext(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		ctx, cancel := context.WithCancel(ctx)
		got := make(chan error)
		go func() {
			_, err := db.Watch(ctx, db.Rev()).Next()
			got <- err
		}()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestEvents(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		at := time.Date(2021, 2, 3, 4, 5, 6, 7000, time.UTC)
		full := berth.Event{Time: at, Workspace: ws, Subject: "jobs/a", Type: berth.EventJobStatus, Reason: "it ended", Data: []byte(`{"status":"Completed"}`)}
		must(t, db, func(tx *store.Tx) error {
			tx.Emit(full)
			tx.Emit(berth.Event{Subject: "workspaces/w", Type: berth.EventResourcePut})
			events, err := tx.Events(store.EventQuery{})
			if len(events) != 2 {
				t.Errorf("%d events in the transaction that emitted them, want 2", len(events))
			}
			tx.Emit(berth.Event{Workspace: "/other", Subject: "jobs/a", Type: "test"})
			return err
		})
		query := func(q store.EventQuery) (events []berth.Event) {
			look(t, db, func(tx *store.Tx) (err error) {
				events, err = tx.Events(q)
				return err
			})
			return events
		}
		all := query(store.EventQuery{})
		if len(all) != 3 || all[0].Rev >= all[1].Rev || all[1].Rev >= all[2].Rev || all[1].Time.IsZero() {
			t.Fatalf("got %+v", all)
		}
		full.Rev = all[0].Rev
		if diff := cmp.Diff(full, all[0]); diff != "" {
			t.Error(diff)
		}
		watched, err := db.Watch(ctx, 0).Next()
		if diff := cmp.Diff(all, watched); diff != "" || err != nil {
			t.Error(err, diff)
		}
		for i, c := range []struct {
			q    store.EventQuery
			want []berth.Event
		}{
			{store.EventQuery{Subject: "jobs/a"}, []berth.Event{all[0], all[2]}},
			{store.EventQuery{Subject: "jobs/a", Workspace: ws}, all[:1]},
			{store.EventQuery{Workspace: "/other"}, all[2:]},
			{store.EventQuery{Workspace: "/nowhere"}, nil},
			{store.EventQuery{From: all[0].Rev, Limit: 1}, all[1:2]},
			{store.EventQuery{Desc: true, Limit: 2}, []berth.Event{all[2], all[1]}},
			{store.EventQuery{Desc: true, From: all[1].Rev}, all[:1]},
		} {
			if diff := cmp.Diff(c.want, query(c.q)); diff != "" {
				t.Errorf("query %d: %s", i, diff)
			}
		}
	})
}

func TestPruneEvents(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		day := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		must(t, db, func(tx *store.Tx) error {
			for i := range 10 {
				tx.Emit(berth.Event{Time: day.AddDate(0, 0, i), Subject: fmt.Sprint(i), Type: "test"})
			}
			return nil
		})
		prune := func(limit int) (n int) {
			must(t, db, func(tx *store.Tx) (err error) {
				n, err = tx.PruneEvents(day.AddDate(0, 0, 6), limit)
				return err
			})
			return n
		}
		if n := prune(4); n != 4 {
			t.Errorf("pruned %d, want 4", n)
		}
		if n := prune(100); n != 2 {
			t.Errorf("pruned %d, want 2", n)
		}
		if n := prune(100); n != 0 {
			t.Errorf("pruned %d, want 0", n)
		}
		head := db.Rev()
		db.Close()
		db = open(t, url)
		if db.Rev() != head {
			t.Errorf("rev %d after a restart, was %d", db.Rev(), head)
		}
		_, err := db.Watch(ctx, 0).Next()
		wantCode(t, err, berth.Gone)
		var kept []berth.Event
		look(t, db, func(tx *store.Tx) (err error) {
			kept, err = tx.Events(store.EventQuery{})
			return err
		})
		if len(kept) != 4 || kept[0].Subject != "6" {
			t.Fatalf("kept %+v", kept)
		}
		got := follow(t, db.Watch(ctx, kept[0].Rev-1), 4)
		if diff := cmp.Diff([]string{"6", "7", "8", "9"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestWatchLaw: for any sequence of commits, prunings and restarts, a watch from any revision it
// may ask for sees the events after it, each once.
func TestWatchLaw(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		l := &watchLaw{t: t, url: url, db: open(t, url)}
		rapid.Check(t, func(r *rapid.T) {
			l.prune(r, 1<<20)
			for range rapid.IntRange(1, 8).Draw(r, "steps") {
				switch step := rapid.IntRange(0, 39).Draw(r, "step"); {
				case step == 0:
					l.db.Close()
					l.db = open(t, url)
				case step < 12:
					l.prune(r, rapid.IntRange(1, 20).Draw(r, "limit"))
				default:
					l.commit(rapid.IntRange(0, 20).Draw(r, "events"))
				}
				l.check(r)
			}
		})
	})
}

type watchLaw struct {
	t      *testing.T
	url    string
	db     *store.DB
	kept   []berth.Event
	pruned berth.Rev
	n      int
}

func (l *watchLaw) commit(count int) {
	var from berth.Rev
	must(l.t, l.db, func(tx *store.Tx) error {
		var err error
		if from, err = tx.Rev(); err != nil {
			return err
		}
		for range count {
			l.n++
			tx.Emit(berth.Event{Workspace: ws, Subject: fmt.Sprint(l.n), Type: "test"})
		}
		return tx.Insert(job(fmt.Sprintf("j%d-%d", l.n, from)))
	})
	look(l.t, l.db, func(tx *store.Tx) error {
		events, err := tx.Events(store.EventQuery{From: from})
		l.kept = append(l.kept, events...)
		return err
	})
}

func (l *watchLaw) prune(r *rapid.T, limit int) {
	var count int
	must(l.t, l.db, func(tx *store.Tx) (err error) {
		count, err = tx.PruneEvents(time.Now().Add(time.Hour), limit)
		return err
	})
	if count != min(limit, len(l.kept)) {
		r.Fatalf("pruned %d of %d, limit %d", count, len(l.kept), limit)
	}
	if count > 0 {
		l.pruned = l.kept[count-1].Rev
		l.kept = l.kept[count:]
	}
}

func (l *watchLaw) check(r *rapid.T) {
	from := berth.Rev(rapid.Int64Range(int64(l.pruned), int64(l.db.Rev())).Draw(r, "from"))
	want := l.kept
	for len(want) > 0 && want[0].Rev <= from {
		want = want[1:]
	}
	w := l.db.Watch(ctx, from)
	for len(want) > 0 {
		got, err := w.Next()
		if err != nil {
			r.Fatal(err)
		}
		if len(got) > len(want) {
			r.Fatalf("from %d: %d events too many", from, len(got)-len(want))
		}
		if diff := cmp.Diff(want[:len(got)], got); diff != "" {
			r.Fatal(diff)
		}
		want = want[len(got):]
	}
}

// TestRevisionsNobodyUsed: an update that counts a revision and then finds nothing to write keeps
// none. The next one uses it, and watchers must not think that they have seen it.
func TestRevisionsNobodyUsed(t *testing.T) {
	db := open(t, "sqlite:"+filepath.Join(t.TempDir(), "berth.db"))
	emit(t, db, "first")
	from := db.Rev()
	w := db.Watch(ctx, from)
	must(t, db, func(tx *store.Tx) error { return tx.DeleteTasks(ws, "none") })
	if db.Rev() != from {
		t.Fatalf("nothing was written, and the revision went from %d to %d", from, db.Rev())
	}
	emit(t, db, "second")
	if got := follow(t, w, 1); got[0] != "second" {
		t.Errorf("%q", got)
	}
}
