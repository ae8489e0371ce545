package backup_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/backup"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/config"
	"github.com/berthml/berth/internal/store"
)

var ctx = context.Background()

// TestMain is also the program that TestKilled kills.
func TestMain(m *testing.M) {
	if os.Getenv("BACKUP_TEST_DO") != "" {
		doomed()
	}
	os.Exit(m.Run())
}

// dying is a place whose process is killed in the middle of the n-th object.
type dying struct {
	backup.Place
	left atomic.Int64
}

func (d *dying) die() {
	if d.left.Add(-1) < 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (d *dying) Put(ctx context.Context, name string, f *os.File) error {
	d.die()
	return d.Place.Put(ctx, name, f)
}

func (d *dying) Get(ctx context.Context, name, path string) error {
	if err := d.Place.Get(ctx, name, path); err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil { // half of it has come
		_ = os.Truncate(path, info.Size()/2)
	}
	d.die()
	return d.Place.Get(ctx, name, path)
}

func doomed() {
	n, err := strconv.Atoi(os.Getenv("BACKUP_TEST_AFTER"))
	if err != nil {
		panic(err)
	}
	place, err := backup.Open(ctx, backup.PlaceOptions{At: os.Getenv("BACKUP_TEST_PLACE"), Create: true})
	if err != nil {
		panic(err)
	}
	d := &dying{Place: place}
	d.left.Store(int64(n))
	home := os.Getenv("BACKUP_TEST_HOME")
	if os.Getenv("BACKUP_TEST_DO") == "backup" {
		_, err = backup.Create(ctx, config.Default(home), d, backup.Options{})
	} else {
		_, err = backup.Restore(ctx, d, os.Getenv("BACKUP_TEST_ID"), home, nil)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// killed runs a backup or a restore whose process is killed at the n-th object, and says whether it
// was.
func killed(t *testing.T, do, place, home, id string, n int) bool {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BACKUP_TEST_DO="+do, "BACKUP_TEST_PLACE="+place, "BACKUP_TEST_HOME="+home, "BACKUP_TEST_ID="+id, "BACKUP_TEST_AFTER="+strconv.Itoa(n))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Fatalf("%s: %v\n%s", do, err, out)
	}
	return true
}

// newHome makes a home with something in every part of it.
func newHome(t *testing.T, url string) (config.Config, *store.DB, *blob.Store) {
	t.Helper()
	cfg := config.Default(t.TempDir())
	cfg.Database = url
	for name, text := range map[string]string{
		"secret.key": "s3cret", "admin.token": "berth_x", "tls/ca.key": "key", "tls/ca.pem": "pem", "berth.yaml": "slots: 3\n",
		"tracking/00000001.seg": "segment", "tracking/00000002.log": "journal", "blobs/logs/a": "hello\n",
		"instances/box/home/note.ipynb": "{}", "run/server.json": "{}", "host/x": "x", "nodes/y": "y", "berth.db.lock": "", "service": "unit",
	} {
		write(t, filepath.Join(cfg.Home, name), text)
	}
	if err := os.Symlink("/etc/hostname", filepath.Join(cfg.Home, "instances/box/home/link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(cfg.Home, "instances/box/home/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if url != "" {
		write(t, filepath.Join(cfg.Home, "berth.yaml"), "database: "+url+"\n")
	}
	db, err := store.Open(ctx, cfg.DatabaseURL(), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	blobs, err := blob.Open(filepath.Join(cfg.Home, "blobs"), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blobs.Close() })
	for i := range 5 {
		put(t, blobs, fmt.Sprint("blob", i), fmt.Sprint("content ", i))
	}
	err = db.Update(ctx, func(tx *store.Tx) error {
		return tx.Insert(&store.Doc{Workspace: "/w", Kind: "jobs", Name: "one", Body: json.RawMessage(`{}`)})
	})
	if err != nil {
		t.Fatal(err)
	}
	return cfg, db, blobs
}

func put(t *testing.T, blobs *blob.Store, name, text string) {
	t.Helper()
	if _, err := blobs.Put(ctx, "box", name, strings.NewReader(text), blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func place(t *testing.T, o backup.PlaceOptions) backup.Place {
	t.Helper()
	o.Create = true
	p, err := backup.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// wantHome checks that a home is what newHome made.
func wantHome(t *testing.T, home string) {
	t.Helper()
	if err := backup.CheckHome(home); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(home)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"secret.key": "s3cret", "tls/ca.key": "key", "tracking/00000002.log": "journal", "blobs/logs/a": "hello\n", "instances/box/home/note.ipynb": "{}",
	} {
		got, err := os.ReadFile(filepath.Join(home, name))
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if to, err := os.Readlink(filepath.Join(home, "instances/box/home/link")); err != nil || to != "/etc/hostname" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	for _, name := range []string{"run", "host", "nodes", "service", "restore.tmp", "instances/box/home/pipe"} {
		if _, err := os.Lstat(filepath.Join(home, name)); err == nil {
			t.Errorf("%s was restored", name)
		}
	}
	db, err := store.Open(ctx, cfg.DatabaseURL(), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	blobs, err := blob.Open(filepath.Join(home, "blobs"), db)
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	for i := range 5 {
		r, err := blobs.Open(ctx, "box", fmt.Sprint("blob", i))
		if err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 9)
		if _, err := r.Read(text); err != nil || string(text) != fmt.Sprint("content ", i) {
			t.Errorf("blob %d: %q, %v", i, text, err)
		}
		r.Close()
	}
	err = db.View(ctx, func(tx *store.Tx) error {
		_, err := tx.Get("/w", "jobs", "one", "")
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestBackup: a home that is in use is backed up and restored; a second backup copies only what is
// new; others cannot read it.
func TestBackup(t *testing.T) {
	cfg, _, blobs := newHome(t, "")
	for _, passphrase := range []string{"", "correct horse"} {
		dir := filepath.Join(t.TempDir(), "backups")
		p := place(t, backup.PlaceOptions{At: dir, Passphrase: passphrase})
		first, err := backup.Create(ctx, cfg, p, backup.Options{})
		if err != nil || len(first.Damaged) > 0 {
			t.Fatal(err, first.Damaged)
		}
		again, err := backup.Create(ctx, cfg, p, backup.Options{})
		if err != nil || again.Copied != 0 {
			t.Errorf("nothing is new, and %d objects were copied: %v", again.Copied, err)
		}
		put(t, blobs, "new"+passphrase, "something new"+rand.Text())
		again, err = backup.Create(ctx, cfg, p, backup.Options{})
		if err != nil || again.Copied != 3 { // the content, the list of contents, the database
			t.Errorf("%d objects were copied for a new blob: %v", again.Copied, err)
		}
		home := filepath.Join(t.TempDir(), "home")
		if _, err := backup.Restore(ctx, p, first.ID, home, nil); err != nil {
			t.Fatal(err)
		}
		wantHome(t, home)
		if _, err := backup.Restore(ctx, p, first.ID, home, nil); berth.CodeOf(err) != berth.Conflict {
			t.Errorf("into a home that is not empty: %v", err)
		}
		private(t, dir, passphrase != "")
		if _, wrong, err := backup.Verify(ctx, p, again.ID); err != nil || len(wrong) > 0 {
			t.Errorf("%v: %v", wrong, err)
		}
		if _, err := backup.Open(ctx, backup.PlaceOptions{At: dir, Passphrase: passphrase + "x"}); err == nil {
			t.Error("another passphrase opens it")
		}
	}
}

// private checks that nobody else can read a place, and, where it is encrypted, that nothing in it
// is in clear.
func private(t *testing.T, dir string, sealed bool) {
	t.Helper()
	found := false
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		found = found || strings.Contains(string(text), "s3cret")
		return err
	})
	if err != nil || found == sealed {
		t.Errorf("secrets in clear: %v, %v", found, err)
	}
}

// TestKilled: however far a backup or a restore came when it was killed, no half of it looks whole,
// and the next one succeeds.
func TestKilled(t *testing.T) {
	cfg, _, _ := newHome(t, "")
	dir := filepath.Join(t.TempDir(), "backups")
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	var ids []string
	step := 3
	if testing.Short() {
		step = 9
	}
	for n := 0; ; n += step {
		dead := killed(t, "backup", dir, cfg.Home, "", n)
		p := place(t, backup.PlaceOptions{At: dir})
		var err error
		if ids, err = backup.List(ctx, p); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if _, wrong, err := backup.Verify(ctx, p, id); err != nil || len(wrong) > 0 {
				t.Fatalf("killed at %d: %v, %v", n, wrong, err)
			}
		}
		if !dead {
			break
		}
		if len(ids) > 0 {
			t.Fatalf("killed at %d: there are backups %v", n, ids)
		}
		for _, path := range filesIn(t, temp) {
			if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), "s3cret") || filepath.Base(path) == "database" {
				t.Fatalf("killed at %d: %s has secrets in clear (%v)", n, path, err)
			}
		}
	}
	copies, err := filepath.Glob(filepath.Join(cfg.Home, ".backup-*"))
	if err != nil || len(copies) != 1 {
		t.Fatal(copies, err)
	}
	for _, path := range append(filesIn(t, copies[0]), filesIn(t, temp)...) {
		if filepath.Base(path) != "lock" {
			t.Errorf("%s is left of a backup that was killed", path)
		}
	}
	home := filepath.Join(t.TempDir(), "home")
	for n := 1; ; n += step { // a restore that is cut short goes on where it was
		if !killed(t, "restore", dir, home, ids[0], n) {
			break
		}
		if _, err := os.Stat(home); err == nil && backup.CheckHome(home) == nil {
			t.Fatalf("killed at %d: the home looks whole", n)
		}
	}
	wantHome(t, home)
}

// filesIn is the regular files below a folder.
func filesIn(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestDamage: a backup with an object that was changed, or is missing, is neither good nor
// restored, and one of a home with a damaged content says so.
func TestDamage(t *testing.T) {
	cfg, _, _ := newHome(t, "")
	dir := filepath.Join(t.TempDir(), "backups")
	p := place(t, backup.PlaceOptions{At: dir})
	r, err := backup.Create(ctx, cfg, p, backup.Options{})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := filepath.Glob(filepath.Join(dir, "objects", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range objects {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, damage := range []func() error{
			func() error { return os.WriteFile(path, append(slices.Clone(text), 'x'), 0o600) },
			func() error { return os.Remove(path) },
		} {
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			if _, wrong, err := backup.Verify(ctx, p, r.ID); err == nil && len(wrong) == 0 {
				t.Errorf("%s is damaged, and nothing is wrong", path)
			}
			home := filepath.Join(t.TempDir(), "home")
			if _, err := backup.Restore(ctx, p, r.ID, home, nil); err == nil || backup.CheckHome(home) == nil {
				t.Errorf("%s is damaged, and was restored: %v", path, err)
			}
		}
		write(t, path, string(text))
	}
	manifest := filepath.Join(dir, "backups", r.ID+".json")
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	write(t, manifest, strings.Replace(string(text), `"secret.key"`, `"secret.kez"`, 1))
	if _, err := backup.Read(ctx, p, r.ID); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("a changed list: %v", err)
	}

	contents, err := filepath.Glob(filepath.Join(cfg.Home, "blobs", "objects", "*", "*"))
	if err != nil || len(contents) == 0 {
		t.Fatal(err)
	}
	write(t, contents[0], "something else")
	other := place(t, backup.PlaceOptions{At: filepath.Join(t.TempDir(), "other")})
	r, err = backup.Create(ctx, cfg, other, backup.Options{})
	if err != nil || len(r.Damaged) != 1 {
		t.Errorf("a damaged content in the home: %v, %v", r.Damaged, err)
	}
}

// TestKeep: older backups go, with what only they had, and those that stay are whole.
func TestKeep(t *testing.T) {
	cfg, _, blobs := newHome(t, "")
	dir := filepath.Join(t.TempDir(), "backups")
	p := place(t, backup.PlaceOptions{At: dir})
	for i := range 4 {
		put(t, blobs, "changing", fmt.Sprint("number ", i))
		if _, err := backup.Create(ctx, cfg, p, backup.Options{Keep: 2}); err != nil {
			t.Fatal(err)
		}
	}
	ids, err := backup.List(ctx, p)
	if err != nil || len(ids) != 2 {
		t.Fatal(ids, err)
	}
	for _, id := range ids {
		if _, wrong, err := backup.Verify(ctx, p, id); err != nil || len(wrong) > 0 {
			t.Errorf("%v: %v", wrong, err)
		}
	}
	found := 0
	objects, _ := filepath.Glob(filepath.Join(dir, "objects", "*", "*"))
	for _, path := range objects {
		if text, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(text), "number ") {
			found++
		}
	}
	if found != 2 {
		t.Errorf("%d contents of the blob that changed are left", found)
	}
}

// TestForeignFolder: a folder with something else in it is not used.
func TestForeignFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "thesis.tex"), "x")
	if _, err := backup.Open(ctx, backup.PlaceOptions{At: dir, Create: true}); berth.CodeOf(err) != berth.Conflict {
		t.Error(err)
	}
	if _, err := backup.Open(ctx, backup.PlaceOptions{At: filepath.Join(dir, "none")}); berth.CodeOf(err) != berth.NotFound {
		t.Error(err)
	}
}
