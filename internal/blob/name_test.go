package blob_test

import (
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
)

func TestContainerNames(t *testing.T) {
	for _, name := range []string{"abc", "azureml", "azureml-blobstore", "code-d7821bd2", "0-0", strings.Repeat("a", 63)} {
		if err := blob.CheckContainer(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "ab", strings.Repeat("a", 64), "Abc", "-abc", "abc-", "a--b", "$root", "$logs", "a_b", "a.b", "../x", "a/b", "a\x00b", "äöü"} {
		wantCode(t, blob.CheckContainer(name), berth.Invalid, "InvalidResourceName")
	}
}

func TestBlobNames(t *testing.T) {
	for _, name := range []string{
		"a", "a/b", "a//b.txt", "/a", "a/", "...", "a..b", "..a/b..", "ü/日本", "a b+c%d?e#f", "Icon\r",
		strings.Repeat("é", 1024), "CON", "a\\b", "&<>\"'",
	} {
		if err := blob.CheckName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{
		"", "..", ".", "../a", "a/..", "a/../b", "a/./b", "a\\..\\b", "/..", "..//a", "a\x00b", "a\x01", "a\x7f",
		"\xff", "a\uFFFE", "\U0010FFFF", strings.Repeat("a", 1025),
	} {
		wantCode(t, blob.CheckName(name), berth.Invalid, "InvalidResourceName")
	}
}

// A hostile name reaches neither the disk nor the index, by any way in.
func TestHostileNamesAreRefusedEverywhere(t *testing.T) {
	s, ctx := open(t), t.Context()
	for _, n := range [][2]string{{"box", "../../etc/passwd"}, {"../x", "a"}, {"box", "a\x00"}, {"$root", "a"}, {"box", ""}} {
		calls := map[string]error{
			"delete":    s.Delete(ctx, n[0], n[1]),
			"put block": s.PutBlock(ctx, n[0], n[1], "id", strings.NewReader("x")),
		}
		_, calls["put"] = s.Put(ctx, n[0], n[1], strings.NewReader("x"), blob.PutOptions{})
		_, calls["open"] = s.Open(ctx, n[0], n[1])
		_, calls["stat"] = s.Stat(ctx, n[0], n[1])
		_, calls["meta"] = s.SetMeta(ctx, n[0], n[1], nil, "")
		_, calls["commit"] = s.CommitBlocks(ctx, n[0], n[1], nil, blob.PutOptions{})
		_, calls["blocks"] = s.Blocks(ctx, n[0], n[1])
		_, calls["live"] = s.PutLive(ctx, n[0], n[1], "logs/x")
		_, calls["link"] = s.LinkFile(ctx, n[0], n[1], "/etc/hostname", blob.PutOptions{})
		for call, err := range calls {
			if berth.CodeOf(err) != berth.Invalid {
				t.Errorf("%s of %q/%q: %v", call, n[0], n[1], err)
			}
		}
	}
	if left := append(append(files(t, s, "tmp"), files(t, s, "objects")...), files(t, s, "blocks")...); len(left) > 0 {
		t.Error("files left:", left)
	}
}

func FuzzCheckName(f *testing.F) {
	for _, s := range []string{"a", "a/../b", "..", "a//b", "\xff", "a\x00", "Icon\r"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if blob.CheckName(name) != nil {
			return
		}
		for seg := range strings.SplitSeq(strings.ReplaceAll(name, "\\", "/"), "/") {
			if seg == ".." || seg == "." {
				t.Errorf("%q was let through", name)
			}
		}
		if strings.ContainsRune(name, 0) || name == "" {
			t.Errorf("%q was let through", name)
		}
	})
}
