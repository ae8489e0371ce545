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
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthml/berth/internal/runner/stream"
)

// mount mounts files until the test ends. What is there is read by other processes: a process that
// serves a file system must not wait for itself.
func mount(t testing.TB, files []stream.File, fetch stream.Fetch, told func(error)) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	if why := stream.Trouble(); why != "" {
		t.Skip(why)
	}
	dir := t.TempDir()
	if err := stream.New(files, fetch, told).Mount(dir); errors.Is(err, unix.EPERM) {
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

func shell(t testing.TB, dir, command string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Dir = filepath.Dir(dir)
	cmd.Env = append(os.Environ(), "D="+dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// from serves files from memory.
func from(contents map[string][]byte) ([]stream.File, stream.Fetch) {
	var files []stream.File
	var all [][]byte
	for p, b := range contents {
		files, all = append(files, stream.File{Path: p, Size: int64(len(b))}), append(all, b)
	}
	return files, stream.Whole(func(_ context.Context, i int, off int64, p []byte) error {
		copy(p, all[i][off:])
		return nil
	})
}

// TestFolder: what is there is what the files are, to the last byte, and cannot be changed.
func TestFolder(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	contents := map[string][]byte{"a.txt": []byte("alpha\n"), "empty": {}, "sub/deep/b c.txt": []byte("beta\n"), "hollow/": nil}
	for name, size := range map[string]int{"large": 5<<20 + 17, "edge": 2 << 20, "sub/large": 3<<20 - 1} {
		contents[name] = make([]byte, size)
		_, _ = random.Read(contents[name])
	}
	files, fetch := from(contents)
	dir := mount(t, files, fetch, nil)
	for name, want := range contents {
		if strings.HasSuffix(name, "/") {
			continue
		}
		got, err := shell(t, dir, "sha256sum <'"+filepath.Join(dir, name)+"'")
		if err != nil || !strings.HasPrefix(got, fmt.Sprintf("%x", sha256.Sum256(want))) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	got, err := shell(t, dir, `cd "$D" && find . | sort | tr '\n' ' ' && stat -c %s large && cd /`)
	if want := ". ./a.txt ./edge ./empty ./hollow ./large ./sub ./sub/deep ./sub/deep/b c.txt ./sub/large 5242897\n"; err != nil || got != want {
		t.Errorf("listed: %q, %v", got, err)
	}
	for _, command := range []string{`echo x >"$D/a.txt"`, `echo x >"$D/new"`, `rm "$D/a.txt"`, `mkdir "$D/d"`, `mv "$D/a.txt" "$D/b"`, `cat "$D/none"`} {
		if got, err := shell(t, dir, command); err == nil {
			t.Errorf("%s succeeded: %s", command, got)
		}
	}
}

// TestRandomReads: parts of a file, in any order, by several processes, are the right ones.
func TestRandomReads(t *testing.T) {
	large := make([]byte, 20<<20+5)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(large)
	files, fetch := from(map[string][]byte{"large": large})
	dir := mount(t, files, fetch, nil)
	pick := rand.New(rand.NewPCG(1, 2))
	var group sync.WaitGroup
	for range 4 {
		var script, want strings.Builder
		for range 40 {
			at := pick.IntN(len(large))
			n := min(1+pick.IntN(300_000), len(large)-at)
			fmt.Fprintf(&script, "tail -c +%d \"$D/large\" | head -c %d | sha256sum\n", at+1, n)
			fmt.Fprintf(&want, "%x  -\n", sha256.Sum256(large[at:at+n]))
		}
		group.Go(func() {
			if got, err := shell(t, dir, script.String()); err != nil || got != want.String() {
				t.Errorf("%v: got %s", err, got)
			}
		})
	}
	group.Wait()
}

// TestHugeFile: the first byte of a file of 50 GB, and its last, come without the rest.
func TestHugeFile(t *testing.T) {
	const size = 50 << 30
	var fetched atomic.Int64
	dir := mount(t, []stream.File{{Path: "huge", Size: size}}, stream.Whole(func(_ context.Context, _ int, off int64, p []byte) error {
		fetched.Add(int64(len(p)))
		for i := range p {
			p[i] = byte((off + int64(i)) >> 30)
		}
		return nil
	}), nil)
	begin := time.Now()
	got, err := shell(t, dir, `head -c 1 "$D/huge" | od -An -tu1`)
	t.Logf("the first byte took %v with the start of three processes", time.Since(begin))
	last, lastErr := shell(t, dir, `tail -c 1 "$D/huge" | od -An -tu1`)
	if err := errors.Join(err, lastErr); err != nil || strings.TrimSpace(got) != "0" || strings.TrimSpace(last) != "49" {
		t.Errorf("%q, %q, %v", got, last, err)
	}
	if n := fetched.Load(); n > 32<<20 {
		t.Errorf("%d MB were fetched for two bytes", n>>20)
	}
}

// TestFailedRead: what cannot be fetched is an error of the reader, is told, and is tried again by
// the next.
func TestFailedRead(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	told := make(chan error, 100)
	dir := mount(t, []stream.File{{Path: "a", Size: 6}}, stream.Whole(func(_ context.Context, _ int, _ int64, p []byte) error {
		if broken.Load() {
			return errors.New("it is away")
		}
		copy(p, "alpha\n")
		return nil
	}), func(err error) { told <- err })
	if got, err := shell(t, dir, `cat "$D/a"`); err == nil || !strings.Contains(got, "Input/output error") {
		t.Errorf("%q, %v", got, err)
	}
	if err := <-told; err.Error() != "it is away" {
		t.Error(err)
	}
	broken.Store(false)
	if got, err := shell(t, dir, `cat "$D/a"`); err != nil || got != "alpha\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestKilledReader: a process that waits for bytes which do not come can be killed.
func TestKilledReader(t *testing.T) {
	asked := make(chan struct{}, 100)
	dir := mount(t, []stream.File{{Path: "a", Size: 6}}, func(ctx context.Context, _ int, _ int64, _ [][]byte, _ func(int)) error {
		asked <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}, nil)
	cmd := exec.CommandContext(t.Context(), "cat", filepath.Join(dir, "a"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-asked
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || out.Len() > 0 {
		t.Errorf("%v, %q", err, out.String())
	}
}
