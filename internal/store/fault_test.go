package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

func TestDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.db")
	db := open(t, "sqlite:"+path)
	for i := range 50 {
		must(t, db, writeOne(fmt.Sprint(i)))
	}
	db.Close()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(text); i++ {
		text[i] = 0xa5
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = store.Open(ctx, "sqlite:"+path, store.Options{})
	wantCode(t, err, berth.Internal)
	if err == nil || !strings.Contains(err.Error(), "is damaged; restore") {
		t.Errorf("message %v", err)
	}
}

// TestBubble uses the store under a fake clock, as the tests of the loops do.
func TestBubble(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := store.Open(ctx, "sqlite:"+path, store.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		heard := make(chan time.Time, 1)
		go func() {
			events, err := db.Watch(ctx, 0).Next()
			if err != nil {
				t.Error(err)
				return
			}
			heard <- events[0].Time
		}()
		time.Sleep(time.Hour)
		emit(t, db, "x")
		synctest.Wait()
		if got := <-heard; !got.Equal(time.Now()) {
			t.Errorf("event at %v, want %v", got, time.Now())
		}
	})
}
