package data_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/data"
	"github.com/berthml/berth/internal/runner/data/blobtest"
)

func client(t *testing.T) *data.Client {
	c, err := data.New(data.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.Shrink(1<<10, 256, time.Millisecond)
	t.Cleanup(c.Close)
	return c
}

// tree reads a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		rel, _ := filepath.Rel(dir, p)
		out[filepath.ToSlash(rel)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// files are some of every size, with names that need escaping.
func files() map[string]string {
	m := map[string]string{"empty": "", "a/b c/d%20é+&?.txt": "x", "big": strings.Repeat("0123456789", 1000), "exact": strings.Repeat("x", 1024)}
	for i := range 60 {
		m[fmt.Sprintf("many/%d/f", i)] = fmt.Sprint(i)
	}
	return m
}

func TestFolder(t *testing.T) {
	s := blobtest.New(t)
	s.PageSize = 7
	blobs := map[string]string{"other": "no", "code2/x": "no"}
	for k, v := range files() {
		blobs["code/"+k] = v
	}
	s.Set(blobs)
	for _, u := range []string{s.At("code"), s.At("code/")} {
		dir := t.TempDir()
		var total data.Total
		if err := client(t).Folder(t.Context(), u, dir, &total); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(files(), tree(t, dir)); diff != "" {
			t.Error(diff)
		}
		if total.Files.Load() != int64(len(files())) {
			t.Errorf("%d files", total.Files.Load())
		}
	}
}

func TestFolderErrors(t *testing.T) {
	s := blobtest.New(t)
	for _, tt := range []struct {
		name, url string
		code      berth.Code
	}{
		{"nothing there", s.At("nothing"), berth.NotFound},
		{"bad signature", strings.Replace(s.At("x"), "sig=s", "sig=t", 1), berth.Denied},
		{"no container", s.URL + "/st.blob.berth?" + blobtest.Query, berth.Invalid},
		{"not a URL", "ftp://x/y/z", berth.Invalid},
		{"no such local folder", "file://" + t.TempDir() + "/none", berth.NotFound},
	} {
		err := client(t).Folder(t.Context(), tt.url, t.TempDir(), new(data.Total))
		if berth.CodeOf(err) != tt.code {
			t.Errorf("%s: %v (%s), want %s", tt.name, err, berth.CodeOf(err), tt.code)
		}
		if err != nil && strings.Contains(err.Error(), "sig=") {
			t.Errorf("%s: the signature is in the message: %v", tt.name, err)
		}
	}
}

// TestHostileNames lists blobs that would lie outside of the folder.
func TestHostileNames(t *testing.T) {
	for _, name := range []string{"p/../evil", "p/../../evil", "p//etc/evil", "p/a/../../../evil", "p/a\\..\\b", "p/./x/../../q"} {
		t.Run(name, func(t *testing.T) {
			s := blobtest.New(t)
			s.Set(map[string]string{"p/ok": "ok", name: "evil"})
			parent := t.TempDir()
			dir := filepath.Join(parent, "a", "b")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			err := client(t).Folder(t.Context(), s.At("p"), dir, new(data.Total))
			if berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), "outside the folder") {
				t.Errorf("%v", err)
			}
			for f := range tree(t, parent) {
				if !strings.HasPrefix(f, "a/b/") {
					t.Errorf("%s was written", f)
				}
			}
		})
	}
}

// TestRetry makes the server fail now and then, in every way it can.
func TestRetry(t *testing.T) {
	s := blobtest.New(t)
	blobs := map[string]string{}
	for k, v := range files() {
		blobs["code/"+k] = v
	}
	s.Set(blobs)
	var mu sync.Mutex
	tries := map[string]int{}
	s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		tries[r.URL.String()]++
		n := tries[r.URL.String()]
		mu.Unlock()
		switch n {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		case 2:
			panic(http.ErrAbortHandler)
		}
		return false
	}
	dir := t.TempDir()
	if err := client(t).Folder(t.Context(), s.At("code"), dir, new(data.Total)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(files(), tree(t, dir)); diff != "" {
		t.Error(diff)
	}
}

// TestCut cuts the answer to the first request in the middle: the rest must be asked for, not the
// whole.
func TestCut(t *testing.T) {
	s := blobtest.New(t)
	want := strings.Repeat("abcdefgh", 100)
	s.Set(map[string]string{"f": want})
	var ranges []string
	s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		ranges = append(ranges, r.Header.Get("Range"))
		if len(ranges) > 1 {
			return false
		}
		w.Header().Set("Content-Length", "800")
		w.Header().Set("ETag", `"320"`) // as the server has it: its size
		_, _ = w.Write([]byte(want[:300]))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	path := filepath.Join(t.TempDir(), "f")
	if err := client(t).File(t.Context(), s.At("f"), path, new(data.Total)); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != want {
		t.Errorf("%d bytes", len(got))
	}
	if diff := cmp.Diff([]string{"", "bytes=300-"}, ranges); diff != "" {
		t.Error(diff)
	}
}

func TestGiveUp(t *testing.T) {
	s := blobtest.New(t)
	s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(http.StatusInternalServerError)
		return true
	}
	err := client(t).File(t.Context(), s.At("f"), filepath.Join(t.TempDir(), "f"), new(data.Total))
	if berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("%v", err)
	}
}

func opened(t *testing.T, dir string) *data.Dir {
	t.Helper()
	d, err := data.OpenDir(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestPut(t *testing.T) {
	s := blobtest.New(t)
	dir := t.TempDir()
	for k, v := range files() {
		p := filepath.Join(dir, filepath.FromSlash(k))
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o700), os.WriteFile(p, []byte(v), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("big", filepath.Join(dir, "link")), os.Symlink("/etc", filepath.Join(dir, "outside")), os.Symlink("gone", filepath.Join(dir, "dangling"))); err != nil {
		t.Fatal(err)
	}
	var total data.Total
	skipped, err := client(t).PutFolder(t.Context(), opened(t, dir), s.At("job/out"), nil, &total)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]data.LeftOut{{Name: "dangling", Why: "is a broken link"}, {Name: "outside", Why: "is a link to a path outside the folder"}}, skipped); diff != "" {
		t.Error(diff)
	}
	want := files()
	want["link"] = want["big"]
	if diff := cmp.Diff(want, s.All("job/out/")); diff != "" {
		t.Error(diff)
	}
	blocks := 0
	for _, r := range s.Requests() {
		if strings.HasSuffix(r, "big block") {
			blocks++
		}
	}
	if blocks != 40 {
		t.Errorf("%d blocks, want 40", blocks)
	}
}

type sent struct {
	mu   sync.Mutex
	have map[string]bool
}

func (s *sent) Has(rel string) bool { s.mu.Lock(); defer s.mu.Unlock(); return s.have[rel] }
func (s *sent) Add(rel string)      { s.mu.Lock(); defer s.mu.Unlock(); s.have[rel] = true }

// TestPutAgain goes on with an upload that was cut off.
func TestPutAgain(t *testing.T) {
	s := blobtest.New(t)
	dir := t.TempDir()
	for _, n := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(dir, n), []byte(n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	done := &sent{have: map[string]bool{"a": true}}
	if _, err := client(t).PutFolder(t.Context(), opened(t, dir), s.At("o"), done, new(data.Total)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"b": "b", "c": "c"}, s.All("o/")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]bool{"a": true, "b": true, "c": true}, done.have); diff != "" {
		t.Error(diff)
	}
}

func TestLocalFiles(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(from, "d"), 0o700), os.WriteFile(filepath.Join(from, "d", "run.sh"), []byte("x"), 0o755)); err != nil {
		t.Fatal(err)
	}
	c := client(t)
	if err := c.Folder(t.Context(), "file://"+from, to, new(data.Total)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(to, "d", "run.sh"))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	out := filepath.Join(t.TempDir(), "x", "y")
	if _, err := c.PutFolder(t.Context(), opened(t, to), "file://"+out, nil, new(data.Total)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"d/run.sh": "x"}, tree(t, out)); diff != "" {
		t.Error(diff)
	}
}

func TestCanceled(t *testing.T) {
	s := blobtest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		cancel()
		<-r.Context().Done()
		return true
	}
	if err := client(t).Folder(ctx, s.At("x"), t.TempDir(), new(data.Total)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestLocalFolderLeadsOut: a folder of this machine is copied from and to without following links
// that leave it.
func TestLocalFolderLeadsOut(t *testing.T) {
	outside, from, to := t.TempDir(), t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o600), os.WriteFile(filepath.Join(from, "f"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink(secret, filepath.Join(to, "f")), os.Symlink(outside, filepath.Join(to, "d"))); err != nil {
		t.Fatal(err)
	}
	c := client(t)
	if _, err := c.PutFolder(t.Context(), opened(t, from), "file://"+to, nil, new(data.Total)); err == nil {
		t.Error("the link was written through")
	}
	if err := c.PutFile(t.Context(), opened(t, from), "f", "file://"+to+"/f", new(data.Total)); err == nil {
		t.Error("the link was written through")
	}
	if b, _ := os.ReadFile(secret); string(b) != "secret" {
		t.Errorf("the file outside is %q", b)
	}
	err := c.Folder(t.Context(), "file://"+to, t.TempDir(), new(data.Total))
	if berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), "outside the folder") {
		t.Errorf("%v", err)
	}
}

// TestSwapped: a process goes on replacing a file, and a folder, by links to a secret while they
// are sent. It never wins.
func TestSwapped(t *testing.T) {
	s := blobtest.New(t)
	base, outside := t.TempDir(), t.TempDir()
	dir := filepath.Join(base, "out")
	write := func(p, text string) error {
		return errors.Join(os.MkdirAll(filepath.Dir(p), 0o700), os.WriteFile(p, []byte(text), 0o600))
	}
	if err := errors.Join(write(filepath.Join(outside, "f"), "secret"), write(filepath.Join(dir, "f"), "mine"), write(filepath.Join(dir, "d", "f"), "mine")); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	var group sync.WaitGroup
	for _, name := range []string{"out", "out/f", "out/d"} {
		group.Go(func() {
			p, target := filepath.Join(base, name), outside
			if strings.HasSuffix(name, "f") {
				target = filepath.Join(outside, "f")
			}
			for {
				select {
				case <-over:
					return
				default:
				}
				if os.Rename(p, p+".real") == nil {
					_ = os.Symlink(target, p)
					_ = os.Remove(p)
					_ = os.Rename(p+".real", p)
				}
			}
		})
	}
	c := client(t)
	for range 300 {
		d, err := data.OpenDir(base, "out")
		if err != nil {
			continue
		}
		_, _ = c.PutFolder(t.Context(), d, s.At("o"), nil, new(data.Total))
		_ = c.PutFile(t.Context(), d, "f", s.At("o/file"), new(data.Total))
		d.Close()
	}
	close(over)
	group.Wait()
	for name, content := range s.All("") {
		if content != "mine" {
			t.Errorf("%s is %q", name, content)
		}
	}
}

// TestBelow: a client with a limit is not led out of it, neither by the path nor by links on its
// way.
func TestBelow(t *testing.T) {
	outside, limit := t.TempDir(), t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(outside, "f"), []byte("secret"), 0o600), os.WriteFile(filepath.Join(limit, "f"), []byte("mine"), 0o600),
		os.Symlink(outside, filepath.Join(limit, "d"))); err != nil {
		t.Fatal(err)
	}
	c := client(t).Below(limit)
	for _, path := range []string{outside, limit + "/d", limit + "/../" + filepath.Base(outside)} {
		u := "file://" + path
		to := t.TempDir()
		if err := c.Folder(t.Context(), u, to, new(data.Total)); err == nil {
			t.Errorf("%s was read", u)
		}
		if err := c.File(t.Context(), u+"/f", filepath.Join(to, "f"), new(data.Total)); err == nil {
			t.Errorf("%s/f was read", u)
		}
		if _, err := data.Within(limit, path); err == nil {
			t.Errorf("%s is within", path)
		}
		from := opened(t, limit)
		if _, err := c.PutFolder(t.Context(), from, u+"/new", nil, new(data.Total)); err == nil {
			t.Errorf("%s was written to", u)
		}
		if err := c.PutFile(t.Context(), from, "f", u+"/f", new(data.Total)); err == nil {
			t.Errorf("%s/f was written to", u)
		}
	}
	if diff := cmp.Diff(map[string]string{"f": "secret"}, tree(t, outside)); diff != "" {
		t.Error(diff)
	}
	if err := c.PutFile(t.Context(), opened(t, limit), "f", "file://"+limit+"/x/y", new(data.Total)); err != nil {
		t.Error(err)
	}
	if err := c.File(t.Context(), "file://"+limit+"/x/y", filepath.Join(t.TempDir(), "f"), new(data.Total)); err != nil {
		t.Error(err)
	}
}
