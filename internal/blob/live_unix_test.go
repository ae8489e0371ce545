//go:build unix

package blob_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A job that can write where its log is cannot make the server read something else.
func TestLiveFollowsNoLink(t *testing.T) {
	s, ctx := open(t), t.Context()
	b := put(t, s, "secret", "secret")
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(s.Dir(), "logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.Dir(), "logs", "x")
	for name, plant := range map[string]func() error{
		"link out": func() error { return os.Symlink(outside, path) },
		"link in":  func() error { return os.Symlink("../objects/"+b.Hash[:2]+"/"+b.Hash[2:], path) },
		"pipe":     func() error { return syscall.Mkfifo(path, 0o600) },
		"folder":   func() error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := plant(); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(path)
			if _, err := s.PutLive(ctx, "box", "log", "logs/x"); err != nil {
				t.Fatal(err)
			}
			if r, err := s.Open(ctx, "box", "log"); err == nil {
				r.Close()
				t.Error("it was opened")
			}
			if f, err := s.OpenLive("logs/x", os.O_RDWR|os.O_CREATE); err == nil {
				f.Close()
				t.Error("it was opened for writing")
			}
			if st, err := s.Stat(ctx, "box", "log"); err != nil || st.Size != 0 {
				t.Error(st, err)
			}
		})
	}
	if err := os.Symlink("new", path); err != nil {
		t.Fatal(err)
	}
	if f, err := s.OpenLive("logs/x", os.O_RDWR|os.O_CREATE); err == nil {
		f.Close()
		t.Error("a link to nowhere was opened")
	}
	if _, err := os.Lstat(filepath.Join(s.Dir(), "logs", "new")); err == nil {
		t.Error("the file that a link names was made")
	}
}

// A live file is made with its folder, and never outside the directory.
func TestOpenLiveMakes(t *testing.T) {
	s := open(t)
	for _, text := range []string{"a", "b"} {
		f, err := s.OpenLive("rows/0f/x", os.O_RDWR|os.O_CREATE)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Error(err)
		}
		f.Close()
		if b, err := os.ReadFile(filepath.Join(s.Dir(), "rows/0f/x")); err != nil || string(b) != text {
			t.Errorf("%q, %v", b, err)
		}
	}
	if _, err := s.OpenLive("rows/none", os.O_RDWR); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := os.Symlink(t.TempDir(), filepath.Join(s.Dir(), "logs")); err != nil {
		t.Fatal(err)
	}
	if f, err := s.OpenLive("logs/x", os.O_RDWR|os.O_CREATE); err == nil {
		f.Close()
		t.Error("a file outside was made")
	}
}
