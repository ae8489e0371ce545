package store_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/store/pgtest"
)

// TestCommitLostWithItsDatabase kills a database before it hears of a commit. What it had not
// written by then is gone with it, the number of the transaction too, which another has after the
// crash. That the other has committed says nothing of the first.
func TestCommitLostWithItsDatabase(t *testing.T) {
	t.Parallel()
	server, err := pgtest.Start("-c", "wal_writer_delay=10s")
	pgtest.Need(t, err)
	defer server.Stop()
	way := server.Proxy(t)
	url := server.Schema(t)
	db, err := store.Open(ctx, way.Through(t, url), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	must(t, db, writeOne("before"))
	sent, done := make(chan struct{}), make(chan error, 1)
	tries := 0
	go func() {
		done <- db.Update(ctx, func(tx *store.Tx) error {
			if err := tx.Insert(job("in-doubt")); err != nil {
				return err
			}
			if tries++; tries == 1 {
				way.Set(true, false) // nothing but the commit is left to send
				close(sent)
			}
			return nil
		})
	}()
	<-sent
	server.Kill()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	other, err := pgx.Connect(ctx, server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(ctx)
	for range 100 {
		if _, err := other.Exec(ctx, "SELECT pg_current_xact_id()"); err != nil {
			t.Fatal(err)
		}
	}
	way.Set(false, true)
	way.Set(false, false)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := db.View(ctx, func(tx *store.Tx) error {
		_, err := tx.Get(ws, "jobs", "in-doubt", "")
		return err
	}); err != nil {
		t.Errorf("what was acknowledged is not there: %v", err)
	}
}
