package store_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/store/pgtest"
)

func TestMain(m *testing.M) {
	if job := os.Getenv("STORE_TEST_CHILD"); job != "" {
		child(job)
		return
	}
	code := m.Run()
	if shared.server != nil {
		shared.server.Stop()
	}
	os.Exit(code)
}

// eachEngine runs a test on a fresh database of every engine. url opens it again.
func eachEngine(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, "sqlite:"+filepath.Join(t.TempDir(), "berth.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, sharedPostgres(t).Schema(t))
	})
}

// open opens a database for the length of a test, without waits for the disk.
func open(t testing.TB, url string) *store.DB {
	t.Helper()
	db, err := store.Open(context.Background(), url, store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// shared is the PostgreSQL server of all tests; each has a schema of its own.
var shared struct {
	once   sync.Once
	server *pgtest.Server
	err    error
}

func sharedPostgres(t testing.TB) *pgtest.Server {
	t.Helper()
	shared.once.Do(func() {
		shared.server, shared.err = pgtest.Start("-F", "-c", "full_page_writes=off")
	})
	pgtest.Need(t, shared.err)
	return shared.server
}
