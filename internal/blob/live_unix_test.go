//go:build unix

package blob_test

import (
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
			if st, err := s.Stat(ctx, "box", "log"); err != nil || st.Size != 0 {
				t.Error(st, err)
			}
		})
	}
}
