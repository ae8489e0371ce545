package store_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// lead opens a database as the server of that name.
func lead(t *testing.T, url, name string) (*store.DB, error) {
	t.Helper()
	db, err := store.Open(t.Context(), url, store.Options{NoSync: true, Server: name})
	if err == nil {
		t.Cleanup(func() { db.Close() })
	}
	return db, err
}

// cutLead ends the connection with which a server holds the database.
func cutLead(t *testing.T, url string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	tag, err := c.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' AND classid = 727418
		AND objid::bigint = (hashtext(current_schema())::bigint + 4294967296) % 4294967296`)
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("%v, %v", tag, err)
	}
}

// TestSecondServerIsRefused: a database has one server at a time; the second is told who has it, and may have it when that one has ended.
func TestSecondServerIsRefused(t *testing.T) {
	t.Parallel()
	url := sharedPostgres(t).Schema(t)
	first, err := lead(t, url, "the first server")
	if err != nil {
		t.Fatal(err)
	}
	must(t, first, writeOne("a"))
	if _, err := lead(t, url, "the second"); berth.CodeOf(err) != berth.Conflict || !strings.Contains(err.Error(), "the first server, since 2") {
		t.Errorf("the second: %v", err)
	}
	must(t, first, writeOne("b"))
	first.Close()
	third, err := lead(t, url, "the third")
	if err != nil {
		t.Fatal(err)
	}
	must(t, third, writeOne("c"))
}

// TestServerThatWasReplacedStops: one that has lost its connection takes the database again if nobody else has it. If somebody has, it
// writes nothing any more, and is told.
func TestServerThatWasReplacedStops(t *testing.T) {
	t.Parallel()
	url := sharedPostgres(t).Schema(t)
	first, err := lead(t, url, "the first server")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	guarded := make(chan error, 1)
	go func() { guarded <- first.Guard(ctx) }()
	cutLead(t, url)
	must(t, first, writeOne("a"))
	if _, err := lead(t, url, "the second"); berth.CodeOf(err) != berth.Conflict {
		t.Errorf("while the first has it again: %v", err)
	}
	stop()
	if err := <-guarded; err != nil {
		t.Errorf("the guard ended with %v", err)
	}
	cutLead(t, url) // and it does not notice
	second, err := lead(t, url, "the second server")
	if err != nil {
		t.Fatal(err)
	}
	must(t, second, writeOne("b"))
	if err := first.Update(t.Context(), writeOne("c")); berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "the second server") {
		t.Errorf("an update of the first: %v", err)
	}
	if err := first.Guard(t.Context()); berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "the second server") {
		t.Errorf("the guard of the first: %v", err)
	}
	must(t, second, writeOne("d"))
}
