package store_test

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth/internal/store"
)

// TestClock: the store's time goes on steadily when the wall clock is set, and follows it with the
// update that moved the times.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set atomic.Int64
		wall := func() time.Time { return time.Now().Add(time.Duration(set.Load())) }
		db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "db"), store.Options{NoSync: true, Wall: wall})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		begin := db.Now()
		update := func() (now time.Time, shifted time.Duration) {
			if err := db.Update(t.Context(), func(tx *store.Tx) error {
				now, shifted = tx.Now(), tx.Shifted()
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return now, shifted
		}
		set.Store(int64(time.Hour))
		time.Sleep(time.Second)
		if now, shifted := update(); now.Sub(begin) != time.Second || shifted != 0 || db.Jumped() {
			t.Errorf("nobody moves times, and the clock follows: %s, %s", now.Sub(begin), shifted)
		}
		fails := true
		var moved time.Duration
		db.OnJump(func(tx *store.Tx, d time.Duration) error {
			if got := tx.Now().Sub(begin); got != time.Hour+time.Second {
				t.Errorf("times are moved at %s", got)
			}
			if fails {
				return errors.New("not now")
			}
			moved += d
			return tx.SetMeta("moved", d.String())
		})
		if now, shifted := update(); now.Sub(begin) != time.Second || shifted != 0 || !db.Jumped() {
			t.Errorf("times were not moved, and the clock follows: %s, %s", now.Sub(begin), shifted)
		}
		fails = false
		if _, shifted := update(); shifted != 0 {
			t.Errorf("it is tried again at once: %s", shifted)
		}
		time.Sleep(time.Minute)
		begin = begin.Add(time.Minute)
		if now, shifted := update(); now.Sub(begin) != time.Hour+time.Second || shifted != time.Hour || moved != time.Hour {
			t.Errorf("times were moved by %s, and the clock is at %s, shifted by %s", moved, now.Sub(begin), shifted)
		}
		if got := db.Now().Sub(begin); got != time.Hour+time.Second || db.Jumped() {
			t.Errorf("the clock is at %s", got)
		}
		set.Add(int64(time.Second)) // too little to notice
		if _, shifted := update(); shifted != time.Hour {
			t.Errorf("shifted by %s", shifted)
		}
	})
}
