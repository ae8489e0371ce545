package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/attach"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/store/pgtest"
)

// join opens a database as one of its servers, which is no candidate yet.
func join(t *testing.T, url, name string) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), url, store.Options{NoSync: true, Server: store.Member{Who: name, Name: name, Home: "home"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// lead makes a server a candidate until stop is called, and waits until it is elected.
func lead(t *testing.T, db *store.DB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	begun, done := make(chan struct{}), make(chan struct{})
	var once sync.Once
	go func() {
		defer close(done)
		_ = db.Lead(ctx, func(ctx context.Context) error {
			once.Do(func() { close(begun) })
			<-ctx.Done()
			return nil
		})
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	select {
	case <-begun:
	case <-time.After(2 * time.Minute):
		t.Fatal("the server is not elected")
	}
	return stop
}

// eventually tries until it is so. A leader that stalls for longer than its lease is away for a
// while.
func eventually(t *testing.T, what string, try func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !try(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not so", what)
		}
	}
}

// TestRequestEndsWithItsLeader: a request that is passed on to a server that does not answer ends
// when another server leads, also when that happened after it was decided where the request goes
// and before it went.
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
	first, second := join(t, url, "a"), join(t, url, "b")
	stop := lead(t, first)
	if err := first.Announce(t.Context(), "https://a", "localhost:1", silent.Addr().String()); err != nil {
		t.Fatal(err)
	}
	f := &forwarder{a: &App{db: second, certs: &auth.Certs{}, log: slog.New(slog.DiscardHandler)}}
	ctx := auth.With(t.Context(), auth.Principal{User: "ann"})
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	var way route
	eventually(t, "the request goes to the first", func() bool {
		way, err = f.route(r)
		if err != nil && berth.CodeOf(err) != berth.Unavailable {
			t.Fatal(err)
		}
		return err == nil && way.there != nil
	})
	stop()
	first.Close()
	lead(t, second)
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

// TestUnknownAgentIsNotPassedOn: a server that does not lead refuses an agent whose token is not
// good itself, and passes on one it knows.
func TestUnknownAgentIsNotPassedOn(t *testing.T) {
	db, err := pgtest.Start("-F")
	pgtest.Need(t, err)
	t.Cleanup(db.Stop)
	there, err := net.Listen("tcp", "127.0.0.1:0") // where the leader would be
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	passed := make(chan struct{}, 16)
	go func() {
		for c, err := there.Accept(); err == nil; c, err = there.Accept() {
			passed <- struct{}{}
			c.Close()
		}
	}()
	url := db.Schema(t)
	first, second := join(t, url, "a"), join(t, url, "b")
	lead(t, first)
	if err := first.Announce(t.Context(), "https://a", there.Addr().String(), "/nowhere"); err != nil {
		t.Fatal(err)
	}
	ws := berth.Workspace{Subscription: "s", Group: "g", Name: "w"}
	var st berth.ComputeState
	token := attach.Issue(&st)
	err = first.Update(t.Context(), func(tx *store.Tx) error {
		d := &store.Doc{Workspace: ws.Key(), Kind: "computes", Name: "laptop", Body: []byte(`{"properties":{"computeType":"VirtualMachine","properties":{"connection":"agent"}}}`)}
		return errors.Join(store.SetState(d, st), tx.Insert(d))
	})
	if err != nil {
		t.Fatal(err)
	}
	gate := leaderGate{&forwarder{a: &App{db: second, certs: &auth.Certs{}, log: slog.New(slog.DiscardHandler)}}}
	connect := func(compute, token string) error {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		for k, v := range map[string]string{"subscription": "s", "group": "g", "workspace": "w", "compute": compute} {
			r.SetPathValue(k, v)
		}
		return gate.Connect(httptest.NewRecorder(), r, token)
	}
	for _, c := range [][2]string{{"laptop", token + "x"}, {"laptop", ""}, {"none", token}} {
		if err := connect(c[0], c[1]); berth.CodeOf(err) != berth.Unauthenticated {
			t.Errorf("an agent of %s that is not known: %v", c[0], err)
		}
	}
	if len(passed) != 0 {
		t.Errorf("%d of them were passed on", len(passed))
	}
	eventually(t, "an agent that is known is passed on", func() bool {
		if err := connect("laptop", token); berth.CodeOf(err) != berth.Unavailable { // nobody answers there
			t.Fatalf("an agent that is known: %v", err)
		}
		return len(passed) > 0
	})
}
