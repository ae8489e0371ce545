package cost_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/store"
)

// rollUpVar names a database to a process of this test that rolls up its meters.
const rollUpVar = "BERTH_TEST_ROLLUP"

// TestRollUpKilled: a process that rolls up meters is killed again and again, each time when it has
// begun to write. What was spent is the same after each, and in the end everything is rolled up.
func TestRollUpKilled(t *testing.T) {
	if path := os.Getenv(rollUpVar); path != "" {
		b := reopen(t, path)
		if _, err := cost.RollUp(t.Context(), b.db, berth.LocalTerms{}, at(24*4)); err != nil {
			t.Fatal(err)
		}
		return
	}
	path := filepath.Join(t.TempDir(), "berth.db")
	now := at(24 * 6)
	b := newBooks(t, "sqlite:"+path)
	b.budgets()
	meters := []berth.Meter{life("n1", "ann", 0, 90, 2), life("n2", "bob", 3, 999, 1)}
	for i := range 1500 {
		from := float64(i) * 0.05
		meters = append(meters, task("n1", fmt.Sprintf("j%d", i/100), "bob", from, from+0.045, 2))
	}
	b.write(meters, now)
	before := b.report(now)
	b.db.Close()
	killed := 0
	for left := len(meters); left > 0; {
		// On a slow machine it may be killed before its first transaction each time.
		if rollUpThere(t, path, killed < 40) {
			killed++
		}
		b = reopen(t, path)
		if d := cmp.Diff(before, b.report(now), nearly); d != "" {
			t.Fatalf("after it was killed %d times: %s", killed, d)
		}
		if n := b.meters(); n < left {
			t.Logf("%d meters were left after it was killed %d times", n, killed)
			left = n
		}
		b.db.Close()
	}
	if killed == 0 {
		t.Error("it was never killed")
	}
}

// reopen opens the books that another process wrote.
func reopen(t *testing.T, path string) books {
	t.Helper()
	db, err := store.Open(context.Background(), "sqlite:"+path, store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return books{t: t, db: db, ws: "w"}
}

// rollUpThere has a process roll up meters and, if asked to, kills it when it writes. It says
// whether it did.
func rollUpThere(t *testing.T, path string, kill bool) bool {
	t.Helper()
	size := func() int64 {
		if info, err := os.Stat(path + "-wal"); err == nil {
			return info.Size()
		}
		return 0
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRollUpKilled$")
	cmd.Env = append(os.Environ(), rollUpVar+"="+path)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for was := size(); ; runtime.Gosched() {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return false
		default:
		}
		// The first page that is written belongs to a transaction that is not over.
		if now := size(); now < was {
			was = now
		} else if now > was && kill {
			_ = cmd.Process.Kill()
			return <-done != nil
		}
	}
}
