package blob_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
)

func TestLive(t *testing.T) {
	s, ctx := open(t), t.Context()
	if _, err := s.PutLive(ctx, "box", "log", "logs/j/std_log.txt"); err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, "log"); got != "" {
		t.Errorf("a log without a file reads %q", got)
	}
	path := filepath.Join(s.Dir(), "logs/j/std_log.txt")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WriteString("one\n")
	first, err := s.Stat(ctx, "box", "log")
	if err != nil || first.Size != 4 {
		t.Fatal(first, err)
	}
	r, err := s.Open(ctx, "box", "log")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f.WriteString("two\n")
	if r.Size() != 4 || r.Blob().ETag != first.ETag {
		t.Error("the reader grew")
	}
	if got := read(t, s, "log"); got != "one\ntwo\n" {
		t.Errorf("read %q", got)
	}
	second, err := s.Stat(ctx, "box", "log")
	if err != nil || second.ETag == first.ETag {
		t.Error("the ETag did not change with the size", err)
	}
	if !blob.SamePrefix(second, first.ETag) || blob.SamePrefix(first, second.ETag) || blob.SamePrefix(second, "0x1-1") {
		t.Error("SamePrefix is wrong")
	}
	blobs, _, _, err := s.List(ctx, "box", blob.ListOptions{})
	if err != nil || len(blobs) != 1 || blobs[0].Size != 8 {
		t.Error(blobs, err)
	}
	again, err := s.PutLive(ctx, "box", "log", "logs/j/std_log.txt")
	if err != nil || again.ETag != second.ETag {
		t.Error("registering again changed it:", again, err)
	}
	b, err := s.SetMeta(ctx, "box", "log", map[string]string{"a": "b"}, second.ETag)
	if err != nil || b.Size != 8 {
		t.Error(b, err)
	}
	if _, err := s.GC(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(ctx, "box", "log"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Error("the file of a deleted log is still there")
	}
}

func TestLivePathsStayInside(t *testing.T) {
	s, ctx := open(t), t.Context()
	for _, rel := range []string{"", ".", "..", "../x", "/etc/passwd", "a/../../x", "objects/ab/x", "tmp/x", "blocks/x", "trash/x", "./tmp/x"} {
		_, err := s.PutLive(ctx, "box", "log", rel)
		wantCode(t, err, berth.Invalid, "")
	}
}
