package app

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/store/pgtest"
)

// candidate opens a database as one of its servers and has it lead when it is elected. A value is sent for each term.
func candidate(t *testing.T, url, name string) (db *store.DB, elected <-chan struct{}, stop func()) {
	t.Helper()
	db, err := store.Open(t.Context(), url, store.Options{NoSync: true, Server: store.Member{Who: name, Name: name, Home: "home"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	begun, done := make(chan struct{}, 16), make(chan struct{})
	go func() {
		defer close(done)
		_ = db.Lead(ctx, func(ctx context.Context) error {
			begun <- struct{}{}
			<-ctx.Done()
			return nil
		})
	}()
	stop = func() { cancel(); <-done; db.Close() }
	t.Cleanup(stop)
	return db, begun, stop
}

// TestRequestEndsWithItsLeader: a request that is passed on to a server that does not answer ends when another server leads, also when
// that happened after it was decided where the request goes and before it went.
func TestRequestEndsWithItsLeader(t *testing.T) {
	db, err := pgtest.Start("-F")
	pgtest.Need(t, err)
	t.Cleanup(db.Stop)
	silent, err := net.Listen("unix", filepath.Join(t.TempDir(), "s")) // it takes connections, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	url := db.Schema(t)
	first, elected, stop := candidate(t, url, "a")
	<-elected
	if err := first.Announce(t.Context(), "https://a", "localhost:1", silent.Addr().String()); err != nil {
		t.Fatal(err)
	}
	second, elected, _ := candidate(t, url, "b")
	f := &forwarder{a: &App{db: second, certs: &auth.Certs{}, log: slog.New(slog.DiscardHandler)}}
	ctx := auth.With(t.Context(), auth.Principal{User: "ann"})
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	way, err := f.route(r)
	if err != nil || way.there == nil {
		t.Fatalf("%+v, %v", way, err)
	}
	stop()
	<-elected
	failed := make(chan error, 1)
	go f.pass(httptest.NewRecorder(), r, way, func(err error) { failed <- err })
	select {
	case err := <-failed:
		if berth.CodeOf(err) != berth.Unavailable {
			t.Errorf("the request ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the request waits for a server that does not lead any more")
	}
}
