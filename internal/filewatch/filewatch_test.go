package filewatch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berthml/berth/internal/filewatch"
)

func watcher(t testing.TB) *filewatch.Watcher {
	w, err := filewatch.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func create(t testing.TB, path string) *os.File {
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func add(t testing.TB, w *filewatch.Watcher, path string) *filewatch.Watch {
	x, err := w.Add(path)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func notified(t testing.TB, x *filewatch.Watch) {
	t.Helper()
	select {
	case <-x.C:
	case <-time.After(30 * time.Second):
		t.Fatal("no notice")
	}
}

func quiet(t testing.TB, x *filewatch.Watch) {
	t.Helper()
	select {
	case <-x.C:
		t.Error("a notice for nothing")
	default:
	}
}

func TestGrowth(t *testing.T) {
	w := watcher(t)
	path := filepath.Join(t.TempDir(), "log")
	f := create(t, path)
	a, b := add(t, w, path), add(t, w, path)
	other := filepath.Join(t.TempDir(), "other")
	create(t, other)
	o := add(t, w, other)
	quiet(t, a)
	for range 3 {
		fmt.Fprint(f, "x")
		notified(t, a)
		notified(t, b)
	}
	a.Close()
	a.Close()
	fmt.Fprint(f, "y")
	notified(t, b)
	quiet(t, a)
	quiet(t, o)
}

// TestSlow writes a lot to a file nobody reads the notices of: one is left.
func TestSlow(t *testing.T) {
	w := watcher(t)
	path := filepath.Join(t.TempDir(), "log")
	f := create(t, path)
	x := add(t, w, path)
	for range 100000 {
		f.Write([]byte{'x'})
	}
	notified(t, x)
}

func TestMissing(t *testing.T) {
	if _, err := watcher(t).Add(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
}

// TestRemoved watches a file that goes away, and another one that takes its place.
func TestRemoved(t *testing.T) {
	w := watcher(t)
	path := filepath.Join(t.TempDir(), "log")
	f := create(t, path)
	old := add(t, w, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	f.Close()
	f = create(t, path)
	x := add(t, w, path)
	fmt.Fprint(f, "x")
	notified(t, x)
	old.Close()
	fmt.Fprint(f, "y")
	notified(t, x)
}

func TestMany(t *testing.T) {
	w := watcher(t)
	dir := t.TempDir()
	const n = 2000
	files, watches := make([]*os.File, n), make([]*filewatch.Watch, n)
	for i := range n {
		path := filepath.Join(dir, fmt.Sprint(i))
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		files[i], watches[i] = f, add(t, w, path)
	}
	for _, f := range files {
		fmt.Fprint(f, "x")
		f.Close()
	}
	for _, x := range watches {
		notified(t, x)
		x.Close()
	}
}

func TestClose(t *testing.T) {
	w, err := filewatch.New()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "log")
	create(t, path)
	x := add(t, w, path)
	for range 2 {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	x.Close()
	if _, err := w.Add(path); err == nil {
		t.Error("a closed watcher took a file")
	}
	var none *filewatch.Watch
	none.Close()
	if none.Chan() != nil {
		t.Error("a nil watch has a channel")
	}
}

func BenchmarkAddClose(b *testing.B) {
	w := watcher(b)
	path := filepath.Join(b.TempDir(), "log")
	create(b, path)
	for b.Loop() {
		add(b, w, path).Close()
	}
}
