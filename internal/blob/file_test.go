package blob_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
)

// TestPutFile: a file is kept as it is, all of it or nothing.
func TestPutFile(t *testing.T) {
	s := open(t)
	path := filepath.Join(t.TempDir(), "f")
	text := strings.Repeat("some text. ", 4<<20)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := int64(len(text))
	changed := false
	for _, size := range []int64{want, want - 5, want + 1, want} { // the last time it is written to meanwhile
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		var last int64
		b, err := s.PutFile(t.Context(), "box", "f", f, blob.PutOptions{Size: size}, func(n int64) error {
			if n <= last {
				t.Errorf("%d bytes after %d", n, last)
			}
			last = n
			if changed {
				return os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour))
			}
			return nil
		})
		f.Close()
		if size != want || changed {
			if berth.CodeOf(err) != berth.Conflict {
				t.Errorf("%d bytes: %v", size, err)
			}
			changed = size > want
			continue
		}
		if err != nil || b.Size != size || last != size || read(t, s, "f") != text[:size] {
			t.Errorf("%d bytes: %v, %v, %d reported", size, b, err, last)
		}
		if again := put(t, s, "again", text[:size]); again.Hash != b.Hash {
			t.Errorf("hash %s, and %s when it is sent", b.Hash, again.Hash)
		}
	}
	if left := files(t, s, "tmp"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
