package backup_test

import (
	"path/filepath"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/backup"
	"github.com/berthml/berth/internal/store/pgtest"
)

// TestPostgres: a home whose database is PostgreSQL is backed up while it is used, and restored
// into another PostgreSQL database or into a file.
func TestPostgres(t *testing.T) {
	server, err := pgtest.Start("-F", "-c", "full_page_writes=off")
	pgtest.Need(t, err)
	t.Cleanup(server.Stop)
	cfg, _, _ := newHome(t, server.Schema(t))
	p := place(t, backup.PlaceOptions{At: filepath.Join(t.TempDir(), "backups")})
	r, err := backup.Create(ctx, cfg, p, backup.Options{})
	if err != nil || len(r.Damaged) > 0 {
		t.Fatal(err, r.Damaged)
	}
	file, home := filepath.Join(t.TempDir(), "home"), filepath.Join(t.TempDir(), "home")
	if _, err := backup.Restore(ctx, p, r.ID, file, []byte("slots: 2\n")); err != nil {
		t.Fatal(err)
	}
	wantHome(t, file)
	if _, err := backup.Restore(ctx, p, r.ID, home, []byte("database: "+server.Schema(t)+"\n")); err != nil {
		t.Fatal(err)
	}
	wantHome(t, home)
	full := filepath.Join(t.TempDir(), "home") // the configuration of the backup names the database that is in use
	if _, err := backup.Restore(ctx, p, r.ID, full, nil); berth.CodeOf(err) != berth.Conflict || backup.CheckHome(full) == nil {
		t.Errorf("into a database that is in use: %v", err)
	}
}
