package space_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/space"
	"github.com/berthml/berth/internal/store"
)

// TestQuotaMeasuresAside: after something was deleted, those who log to a workspace with room do
// not wait until it was measured, which is done once. Where there was no room, they wait and get
// the new figure.
func TestQuotaMeasuresAside(t *testing.T) {
	dir := t.TempDir()
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(dir, "db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(t.Context(), func(tx *store.Tx) error {
		return tx.Insert(&store.Doc{
			Kind: "workspaces", Name: "w", Body: []byte(`{}`), Own: []byte(`{"workspaceId": "1", "blobContainer": "b", "artifactContainer": "a"}`),
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "points")
	store := func(n int64) {
		t.Helper()
		if err := os.WriteFile(file, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var measured atomic.Int64
	begins, goes := make(chan bool, 10), make(chan bool, 10)
	blobs, err := blob.Open(filepath.Join(dir, "blobs"), db)
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	q := space.NewQuota(space.Sources{DB: db, Blobs: blobs, Points: func(string) ([]fs.FileInfo, error) {
		measured.Add(1)
		begins <- true
		<-goes
		info, err := os.Stat(file)
		return []fs.FileInfo{info}, err
	}}, 1000)
	type answer struct {
		room space.Room
		err  error
	}
	ask := func() chan answer {
		out := make(chan answer, 1)
		go func() {
			room, err := q.Room(t.Context(), "w")
			out <- answer{room, err}
		}()
		return out
	}
	want := func(c chan answer, used int64) {
		t.Helper()
		select {
		case a := <-c:
			if a.err != nil || a.room.Used != used || a.room.Limit != 1000 {
				t.Errorf("%+v, want %d", a, used)
			}
		case <-time.After(time.Minute):
			t.Fatal("nobody answers")
		}
	}

	store(500)
	first, second := ask(), ask() // nothing is known yet
	<-begins
	goes <- true
	want(first, 500)
	want(second, 500)

	store(2000)
	q.Forget("w")
	want(ask(), 500)
	<-begins
	for range 5 {
		want(ask(), 500)
	}
	if n := measured.Load(); n != 2 {
		t.Errorf("measured %d times", n)
	}
	q.Forget("w") // what is measured may be older than this
	goes <- true
	goes <- true
	for got := <-ask(); got.room.Used != 2000; got = <-ask() {
		if got.err != nil {
			t.Fatal(got.err)
		}
	}
	if <-begins; measured.Load() != 3 {
		t.Errorf("measured %d times", measured.Load())
	}

	store(100)
	q.Forget("w")
	full := []chan answer{ask(), ask()}
	<-begins
	goes <- true
	for _, c := range full {
		want(c, 100)
	}
}

// TestQuotaCountsAll: what tracking knows of runs counts, and blocks of uploads that are not
// committed.
func TestQuotaCountsAll(t *testing.T) {
	dir := t.TempDir()
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(dir, "db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	blobs, err := blob.Open(filepath.Join(dir, "blobs"), db)
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	of := berth.Workspace{Subscription: "s", Group: "g", Name: "w"}
	w := of.Key()
	err = db.Update(t.Context(), func(tx *store.Tx) error {
		return errors.Join(
			tx.Insert(&store.Doc{Kind: "workspaces", Name: w, Parent: of.ID(), Body: []byte(`{}`), Own: []byte(`{"workspaceId": "1", "blobContainer": "blo", "artifactContainer": "art"}`)}),
			tx.Insert(&store.Doc{Workspace: w, Kind: "runs", Name: "r", Own: bytes.Repeat([]byte("x"), 300)}),
			tx.Insert(&store.Doc{Workspace: w, Kind: "runs", Name: "s", Own: bytes.Repeat([]byte("x"), 400)}),
			tx.Insert(&store.Doc{Workspace: w, Kind: "other", Name: "r", Own: bytes.Repeat([]byte("x"), 500)}),
			tx.Insert(&store.Doc{Workspace: "v", Kind: "runs", Name: "r", Own: bytes.Repeat([]byte("x"), 600)}),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, container := range []string{"art", "blo", "blo", "other"} { // the last is another workspace's
		if err := blobs.PutBlock(t.Context(), container, fmt.Sprint("file", i), "1", strings.NewReader(strings.Repeat("y", 1000))); err != nil {
			t.Fatal(err)
		}
	}
	sources := space.Sources{DB: db, Blobs: blobs, Tracked: []string{"runs", "none"}}
	room, err := space.NewQuota(sources, 1).Room(t.Context(), w)
	const staged = 3 * 4096 // each takes a block of the disk
	if want := int64(300 + 400 + staged); err != nil || room.Used != want {
		t.Errorf("%+v, %v; want %d", room, err, want)
	}
	use, err := space.Use(t.Context(), sources, []string{w}, []string{"kind"}, time.Now())
	want := []berth.StorageLine{{Kind: "uploads", Files: 3, Bytes: staged, OwnBytes: staged}, {Kind: "runs", Bytes: 700, OwnBytes: 700}}
	if err != nil || !slices.Equal(use.Groups, want) || use.Total.Bytes != room.Used || use.Total.OwnBytes != room.Used {
		t.Errorf("%+v, %v", use, err)
	}
}
