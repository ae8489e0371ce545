package stream_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthml/berth/internal/runner/stream"
)

// mountLocal mounts files of a folder of this machine. What has a name that begins with "far" is
// fetched.
func mountLocal(t testing.TB, from string, names ...string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	if why := stream.Trouble(); why != "" {
		t.Skip(why)
	}
	var files []stream.File
	for _, n := range names {
		info, err := os.Stat(filepath.Join(from, n))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, stream.File{Path: n, Size: info.Size()})
	}
	x := stream.New(files, stream.Whole(func(_ context.Context, i int, off int64, p []byte) error {
		if !strings.HasPrefix(names[i], "far") {
			return errors.New("it was fetched")
		}
		f, err := os.Open(filepath.Join(from, names[i]))
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.ReadAt(p, off)
		return err
	}), nil)
	x.Local(func(i int) (*os.File, error) {
		if strings.HasPrefix(names[i], "far") {
			return nil, os.ErrNotExist
		}
		return os.Open(filepath.Join(from, names[i]))
	})
	dir := t.TempDir()
	if err := x.Mount(dir); errors.Is(err, unix.EPERM) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func random(t testing.TB, path string, size int) []byte {
	t.Helper()
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(b)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestLocalFiles: files on this machine are read where they are, beside others that are fetched, by
// several at once, mapped into memory, and again and again.
func TestLocalFiles(t *testing.T) {
	from := t.TempDir()
	want := map[string][]byte{}
	for name, size := range map[string]int{"near": 3<<20 + 5, "far": 2<<20 + 3, "small": 11} {
		want[name] = random(t, filepath.Join(from, name), size)
	}
	random(t, filepath.Join(from, "empty"), 0)
	dir := mountLocal(t, from, "near", "far", "small", "empty")
	var group sync.WaitGroup
	for range 4 {
		for name, b := range want {
			group.Go(func() {
				for range 5 {
					got, err := shell(t, dir, `sha256sum <"$D/`+name+`"; tail -c 5 "$D/`+name+`" | sha256sum`)
					if exp := fmt.Sprintf("%x  -\n%x  -\n", sha256.Sum256(b), sha256.Sum256(b[len(b)-5:])); err != nil || got != exp {
						t.Errorf("%s: %s, %v", name, got, err)
					}
				}
			})
		}
	}
	group.Wait()
	if got, err := shell(t, dir, `wc -c <"$D/empty"; grep -c . "$D/none" 2>/dev/null; echo x >"$D/near"`); err == nil || strings.TrimSpace(strings.SplitN(got, "\n", 2)[0]) != "0" {
		t.Errorf("%q, %v", got, err)
	}
	if b, err := os.ReadFile(filepath.Join(from, "near")); err != nil || !bytes.Equal(b, want["near"]) {
		t.Errorf("it was changed: %v", err)
	}
}

// BenchmarkLocal reads a large file of this machine from front to back.
func BenchmarkLocal(b *testing.B) {
	from := b.TempDir()
	random(b, filepath.Join(from, "near"), 256<<20)
	random(b, filepath.Join(from, "far"), 256<<20)
	dir := mountLocal(b, from, "near", "far")
	for _, c := range []struct{ name, path string }{
		{"disk", filepath.Join(from, "near")}, {"near", filepath.Join(dir, "near")}, {"far", filepath.Join(dir, "far")},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(256 << 20)
			for b.Loop() {
				if out, err := exec.CommandContext(b.Context(), "dd", "if="+c.path, "of=/dev/null", "bs=1M").CombinedOutput(); err != nil {
					b.Fatal(err, string(out))
				}
			}
		})
	}
}
