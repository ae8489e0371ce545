package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// hold keeps the writer busy until the function it returns is called, so that what is sent
// meanwhile shares a batch.
func hold(t *testing.T, db *store.DB) (release func()) {
	entered, gate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := db.Update(ctx, func(tx *store.Tx) error {
			once.Do(func() { close(entered) })
			<-gate
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}()
	<-entered
	return func() {
		close(gate)
		<-done
	}
}

func TestFailuresInABatchUndoOnlyThemselves(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		const n = 120
		release := hold(t, db)
		var wg sync.WaitGroup
		var fails [n]error
		for i := range n {
			wg.Go(func() {
				defer func() {
					if v := recover(); v != nil {
						if v != fmt.Sprint("panic ", i) || i%4 != 2 {
							t.Errorf("%d: panic %v", i, v)
						}
						fails[i] = errors.New("panicked")
					}
				}()
				fails[i] = db.Update(ctx, func(tx *store.Tx) error {
					d := job(fmt.Sprintf("j%d", i))
					d.Workspace = fmt.Sprintf("/w%d", i%7)
					if err := tx.Insert(d); err != nil {
						return err
					}
					tx.Emit(berth.Event{Workspace: d.Workspace, Subject: "jobs/" + d.Name, Type: berth.EventJobCreated})
					switch i % 4 {
					case 1:
						return fmt.Errorf("error %d", i)
					case 2:
						panic(fmt.Sprint("panic ", i))
					case 3:
						if i%8 == 3 {
							return tx.Insert(d) // an error from the database
						}
					}
					return nil
				})
			})
		}
		release()
		wg.Wait()
		look(t, db, func(tx *store.Tx) error {
			events, err := tx.Events(store.EventQuery{})
			if err != nil {
				return err
			}
			emitted := make(map[string]bool)
			for _, e := range events {
				emitted[e.Subject] = true
			}
			for i := range n {
				name := fmt.Sprintf("j%d", i)
				_, err := tx.Get(fmt.Sprintf("/w%d", i%7), "jobs", name, "")
				ok := i%4 == 0 || i%8 == 7
				if (err == nil) != ok || (fails[i] == nil) != ok || emitted["jobs/"+name] != ok {
					t.Errorf("%d: update %v, get %v, event %v", i, fails[i], err, emitted["jobs/"+name])
				}
				if i%8 == 3 {
					wantCode(t, fails[i], berth.Conflict)
				}
			}
			return nil
		})
	})
}

func TestGoexitInAFunction(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		release := hold(t, db)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				err := db.Update(ctx, func(tx *store.Tx) error {
					if err := tx.Insert(job(fmt.Sprint(i))); err != nil {
						return err
					}
					if i%5 == 0 {
						runtime.Goexit()
					}
					return nil
				})
				if (err != nil) != (i%5 == 0) {
					t.Errorf("%d: %v", i, err)
				}
			})
		}
		release()
		wg.Wait()
		look(t, db, func(tx *store.Tx) error {
			docs, err := tx.List(store.Query{Workspace: ws, Kind: "jobs"})
			if len(docs) != 16 {
				t.Errorf("%d jobs, want 16", len(docs))
			}
			return err
		})
	})
}

func TestUpdateContext(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		release := hold(t, db)
		queued, cancel := context.WithCancel(ctx)
		got := make(chan error)
		var ran atomic.Bool
		go func() {
			got <- db.Update(queued, func(tx *store.Tx) error {
				ran.Store(true)
				return tx.Insert(job("dropped"))
			})
		}()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("queued: %v", err)
		}
		release()

		running, cancel := context.WithCancel(ctx)
		err := db.Update(running, func(tx *store.Tx) error {
			cancel()
			return tx.Insert(job("kept"))
		})
		if err != nil {
			t.Errorf("running: %v", err)
		}
		if err := db.Update(running, func(*store.Tx) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("ended before: %v", err)
		}
		look(t, db, func(tx *store.Tx) error {
			_, err := tx.Get(ws, "jobs", "dropped", "")
			wantCode(t, err, berth.NotFound)
			_, err = tx.Get(ws, "jobs", "kept", "")
			return err
		})
		if ran.Load() {
			t.Error("a dropped update ran")
		}
		err = db.View(running, func(*store.Tx) error { return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("view: %v", err)
		}
	})
}

func TestClosed(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		watching := make(chan error)
		go func() {
			_, err := db.Watch(ctx, 0).Next()
			watching <- err
		}()
		// Updates that race with Close are done or refused, never lost or stuck.
		var wg sync.WaitGroup
		var done atomic.Int64
		for i := range 50 {
			wg.Go(func() {
				err := db.Update(ctx, func(tx *store.Tx) error { return tx.Insert(job(fmt.Sprint(i))) })
				if err == nil {
					done.Add(1)
				} else if !errors.Is(err, store.ErrClosed) {
					t.Error(err)
				}
			})
		}
		db.Close()
		wg.Wait()
		if err := <-watching; !errors.Is(err, store.ErrClosed) {
			t.Errorf("watch: %v", err)
		}
		nothing := func(*store.Tx) error { return nil }
		if err := errors.Join(db.Update(ctx, nothing), db.View(ctx, nothing)); !errors.Is(err, store.ErrClosed) {
			t.Errorf("after close: %v", err)
		}
		wantCode(t, db.View(ctx, nothing), berth.Unavailable)
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		db = open(t, url)
		look(t, db, func(tx *store.Tx) error {
			docs, err := tx.List(store.Query{Workspace: ws, Kind: "jobs"})
			if int64(len(docs)) != done.Load() {
				t.Errorf("%d jobs, %d acknowledged", len(docs), done.Load())
			}
			return err
		})
	})
}

func TestViewIsASnapshot(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		must(t, db, func(tx *store.Tx) error { return tx.Insert(job("a")) })
		look(t, db, func(tx *store.Tx) error {
			was, err := tx.Rev()
			if err != nil {
				return err
			}
			if was != db.Rev() {
				t.Errorf("rev %d, want %d", was, db.Rev())
			}
			must(t, db, func(tx *store.Tx) error { return tx.Insert(job("b")) })
			docs, err := tx.List(store.Query{Workspace: ws, Kind: "jobs"})
			if len(docs) != 1 {
				t.Errorf("%d jobs in the snapshot, want 1", len(docs))
			}
			if is, _ := tx.Rev(); is != was {
				t.Errorf("rev moved from %d to %d", was, is)
			}
			if err := tx.Insert(job("c")); err == nil {
				t.Error("a view wrote")
			}
			return err
		})
		func() {
			defer func() { recover() }()
			db.View(ctx, func(*store.Tx) error { panic("in a view") })
		}()
		failed := errors.New("mine")
		if err := db.View(ctx, func(*store.Tx) error { return failed }); err != failed {
			t.Errorf("got %v", err)
		}
	})
}

// TestReadModifyWrite counts in documents from many goroutines: updates are serial.
func TestReadModifyWrite(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		must(t, db, func(tx *store.Tx) error {
			d := job("counter")
			d.Own = json.RawMessage("0")
			return tx.Insert(d)
		})
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range 10 {
					must(t, db, func(tx *store.Tx) error {
						d, err := tx.Get(ws, "jobs", "counter", "")
						if err != nil {
							return err
						}
						var n int
						json.Unmarshal(d.Own, &n)
						d.Own = json.RawMessage(fmt.Sprint(n + 1))
						return tx.Save(d)
					})
				}
			})
		}
		wg.Wait()
		look(t, db, func(tx *store.Tx) error {
			d, err := tx.Get(ws, "jobs", "counter", "")
			if string(d.Own) != "160" {
				t.Errorf("counted %s, want 160", d.Own)
			}
			return err
		})
	})
}

// TestRehearse: with it every update runs twice, and what the first run did is gone when the second
// begins.
func TestRehearse(t *testing.T) {
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "db"), store.Options{NoSync: true, Rehearse: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	runs := 0
	err = db.Update(t.Context(), func(tx *store.Tx) error {
		runs++
		tx.Emit(berth.Event{Workspace: "w", Subject: "x", Type: "t"})
		return tx.Insert(&store.Doc{Workspace: "w", Kind: "k", Name: "n", Body: json.RawMessage("{}")})
	})
	if err != nil || runs != 2 {
		t.Fatalf("it ran %d times: %v", runs, err)
	}
	err = db.View(t.Context(), func(tx *store.Tx) error {
		events, err := tx.Events(store.EventQuery{Workspace: "w"})
		if len(events) != 1 {
			t.Errorf("%d events of one update", len(events))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
