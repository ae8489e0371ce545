package crash_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth/internal/store/pgtest"
)

// TestSecondServerOnPostgres: a server whose database is another's ends with words that name the
// other. One that was killed is replaced at once, by itself as by another.
func TestSecondServerOnPostgres(t *testing.T) {
	db, err := pgtest.Start()
	pgtest.Need(t, err)
	defer db.Stop()
	w := newChaos(t, "database: "+db.URL()+"\n")
	w.sure("GET", w.ws+"/jobs", nil)
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "berth.yaml"), []byte("database: "+db.URL()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	second := func() (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, w.bin, "serve", "--home", other, "--listen", "127.0.0.1:0")
		out, err := cmd.CombinedOutput()
		if ctx.Err() != nil {
			err = errors.New("it serves")
		}
		return string(out), err
	}
	for range 2 {
		var exit *exec.ExitError
		out, err := second()
		if !errors.As(err, &exit) || !strings.Contains(out, "is used by the server of "+w.home()) {
			t.Fatalf("the second server: %v\n%s", err, out)
		}
		w.sure("GET", w.ws+"/jobs", nil) // the first goes on
		w.kill(w.server())
		w.sure("GET", w.ws+"/jobs", nil)
	}
}

// TestHealthWithDatabaseDown: a server whose PostgreSQL is away says so, and is healthy again when
// it is back.
func TestHealthWithDatabaseDown(t *testing.T) {
	db, err := pgtest.Start()
	pgtest.Need(t, err)
	defer db.Stop()
	w := newChaos(t, "database: "+db.URL()+"\n")
	health := func(want int) {
		t.Helper()
		w.until(fmt.Sprint("health ", want), time.Minute, func() (bool, error) {
			code, b, err := w.do("GET", "/healthz", nil)
			return err == nil && code == want, fmt.Errorf("%d %s %w", code, b, err)
		})
	}
	health(http.StatusOK)
	db.Kill()
	health(http.StatusServiceUnavailable)
	if err := db.Start(); err != nil {
		t.Fatal(err)
	}
	health(http.StatusOK)
}
