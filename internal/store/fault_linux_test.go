package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// TestDiskFull fills a small file system: the error says so, what was acknowledged stays, and space
// helps.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("cannot mount: ", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 200<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	db := open(t, "sqlite:"+filepath.Join(dir, "berth.db"))
	write := func(i int) error {
		return db.Update(ctx, func(tx *store.Tx) error {
			d := job(fmt.Sprint(i))
			d.Body = []byte(fmt.Sprintf(`{"pad":%q}`, strings.Repeat("x", 10_000)))
			return tx.Insert(d)
		})
	}
	n := 0
	var err error
	for err == nil {
		if err = write(n); err == nil {
			n++
		}
	}
	wantCode(t, err, berth.Unavailable)
	if !strings.Contains(err.Error(), "is full") {
		t.Errorf("message %v", err)
	}
	if db.Trouble() == nil || db.Trouble().Error() != err.Error() {
		t.Errorf("trouble %v", db.Trouble())
	}
	look(t, db, func(tx *store.Tx) error {
		docs, err := tx.List(store.Query{Workspace: ws, Kind: "jobs", NoBody: true})
		if len(docs) != n {
			t.Errorf("%d documents, %d acknowledged", len(docs), n)
		}
		return err
	})
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := write(n); err != nil {
		t.Errorf("with space again: %v", err)
	}
	if err := db.Trouble(); err != nil {
		t.Errorf("with space again: trouble %v", err)
	}
}
