package host

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestIdle waits for hosts that nobody calls to end.
func TestIdle(t *testing.T) {
	for _, keep := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "host")
		if err := (Settings{KeepAlive: keep}).Save(dir); err != nil {
			t.Fatal(err)
		}
		at, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer at.Close()
		synctest.Test(t, func(t *testing.T) {
			ctx, quit := context.WithCancelCause(t.Context())
			defer quit(nil)
			w := &worker{dir: dir, at: at, log: slog.New(slog.DiscardHandler), used: time.Now(), quit: quit}
			go w.watchIdle(ctx)
			time.Sleep(24 * time.Hour)
			synctest.Wait()
			if ended := ctx.Err() != nil; ended == keep {
				t.Errorf("with KeepAlive %v: ended after a day is %v", keep, ended)
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if !errors.Is(context.Cause(ctx), errQuit) {
				t.Errorf("with KeepAlive %v: it stays without its directory", keep)
			}
		})
	}
}
