package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

func TestSmoke(t *testing.T) {
	ctx := context.Background()
	db, err := store.Open(ctx, "sqlite:"+filepath.Join(t.TempDir(), "a b?.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	w := db.Watch(ctx, 0)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			err := db.Update(ctx, func(tx *store.Tx) error {
				d := &store.Doc{Workspace: "/w", Kind: "jobs", Name: fmt.Sprintf("J%d", i), Status: "Running", Body: json.RawMessage(`{"a":1}`)}
				if err := tx.Insert(d); err != nil {
					return err
				}
				tx.Emit(berth.Event{Workspace: "/w", Subject: "jobs/" + d.Name, Type: berth.EventJobCreated})
				if i%5 == 0 {
					return fmt.Errorf("no %d", i)
				}
				return nil
			})
			if (err != nil) != (i%5 == 0) {
				t.Error(i, err)
			}
		})
	}
	wg.Wait()
	n := 0
	for n < 16 {
		ev, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		n += len(ev)
	}
	db.View(ctx, func(tx *store.Tx) error {
		for _, q := range []store.Query{{}, {Status: []string{"Running", "Done"}}, {Limit: 3, After: 12}, {Asc: true}} {
			q.Workspace, q.Kind = "/w", "jobs"
			l, err := tx.List(q)
			if err != nil {
				t.Error(err)
			}
			t.Log(len(l), l[0].Name, l[0].ID)
		}
		return nil
	})
}

func BenchmarkLone(b *testing.B) {
	ctx := context.Background()
	db, _ := store.Open(ctx, "sqlite:"+filepath.Join(b.TempDir(), "b.db"), store.Options{})
	defer db.Close()
	i := 0
	for b.Loop() {
		i++
		db.Update(ctx, func(tx *store.Tx) error {
			d := &store.Doc{Workspace: "/w", Kind: "jobs", Name: fmt.Sprintf("J%d", i), Status: "Running", Body: json.RawMessage(`{"a":1}`)}
			return tx.Insert(d)
		})
	}
}
