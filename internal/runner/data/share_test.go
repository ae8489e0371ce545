package data_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/data"
	"github.com/berthml/berth/internal/runner/data/sharetest"
	"github.com/berthml/berth/internal/storage"
)

// share is a place in a share, whose requests are signed as the server signs them.
func share(t *testing.T, s *sharetest.Server, place string) *data.Outside {
	t.Helper()
	st, err := storage.Read(map[string]any{
		"datastoreType": "AzureFile", "accountName": sharetest.Account, "fileShareName": sharetest.Share, "protocol": "http",
		"endpoint": strings.TrimPrefix(s.URL, "http://"),
	})
	if err != nil {
		t.Fatal(err)
	}
	key, err := st.Open(map[string]any{"credentialsType": "AccountKey"}, map[string]any{"key": sharetest.Key})
	if err != nil {
		t.Fatal(err)
	}
	c, err := data.New(data.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.Shrink(8<<20, 1<<20, time.Millisecond)
	return c.Outside(&berth.Outside{Protocol: st.Protocol(), Datastore: "files", At: st.At(place)}, func(_ context.Context, _ string, rs []berth.OutsideRequest) ([]string, error) {
		urls := make([]string, len(rs))
		for i, r := range rs {
			url, err := key.Sign(place, r, time.Now(), time.Now().Add(time.Hour))
			if err != nil {
				return nil, err
			}
			urls[i] = url
		}
		return urls, nil
	})
}

// TestShare: folders of a share come with everything in them, page by page, and what is written
// makes the folders that it needs.
func TestShare(t *testing.T) {
	s := sharetest.New(t)
	s.PageSize = 2
	s.Put(map[string]string{
		"in/a.txt": "alpha", "in/Deep/b c+d&é.txt": "beta", "in/Deep/deeper/c": "gamma", "in/empty/": "", "in/z": "", "other": "no",
		"in/large": strings.Repeat("0123456789", 1<<20),
	})
	o := share(t, s, "in")
	list, skipped, err := o.List(t.Context())
	if err != nil || len(skipped) > 0 {
		t.Fatal(skipped, err)
	}
	dir := t.TempDir()
	var names []string
	var want []int
	for i, x := range list {
		names = append(names, x.Path)
		if !strings.HasSuffix(x.Path, "/") {
			want = append(want, i)
		}
	}
	if d := cmp.Diff([]string{"Deep/", "Deep/b c+d&é.txt", "Deep/deeper/", "Deep/deeper/c", "a.txt", "empty/", "large", "z"}, names); d != "" {
		t.Fatal(d)
	}
	at := func(i int) string { return filepath.Join(dir, strings.ReplaceAll(list[i].Path, "/", "_")) }
	if err := o.Fetch(t.Context(), list, want, at); err != nil {
		t.Fatal(err)
	}
	for _, i := range want {
		got, err := os.ReadFile(at(i))
		if err != nil || string(got) != s.All()[strings.ToLower("in/"+list[i].Path)] {
			t.Errorf("%s has %d bytes: %v", list[i].Path, len(got), err)
		}
	}

	from := t.TempDir()
	big := strings.Repeat("x", 9<<20)
	for name, text := range map[string]string{"a": "one", "d/e/f": "two", "d/g": "", "d/big": big} {
		p := filepath.Join(from, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o700), os.WriteFile(p, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	d, err := data.OpenDir(from, "")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var total data.Total
	for range 2 { // what is there is replaced
		if _, err := share(t, s, "new/out").PutFolder(t.Context(), d, nil, &total); err != nil {
			t.Fatal(err)
		}
	}
	if err := share(t, s, "single/file.txt").PutFile(t.Context(), d, "a", &total); err != nil {
		t.Fatal(err)
	}
	all := s.All()
	if all["new/out/a"] != "one" || all["new/out/d/e/f"] != "two" || all["new/out/d/big"] != big || all["single/file.txt"] != "one" {
		t.Errorf("the share has %d files", len(all))
	}
	if text, ok := all["new/out/d/g"]; !ok || text != "" {
		t.Error("the empty file is missing")
	}
	if x, err := share(t, s, "in/a.txt").Stat(t.Context()); err != nil || x.Size != 5 {
		t.Errorf("%+v, %v", x, err)
	}
}

// TestShareFaults: what is not there, what is refused, what changes and what lies.
func TestShareFaults(t *testing.T) {
	s := sharetest.New(t)
	s.Put(map[string]string{"in/a.txt": "alpha"})
	if _, _, err := share(t, s, "nothing").List(t.Context()); berth.CodeOf(err) != berth.NotFound {
		t.Errorf("a folder that is not there: %v", err)
	}
	if _, err := share(t, s, "nothing").Stat(t.Context()); berth.CodeOf(err) != berth.NotFound {
		t.Errorf("a file that is not there: %v", err)
	}
	o := share(t, s, "in")
	list, _, err := o.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Put(map[string]string{"in/a.txt": "omega"})
	if err := o.Fetch(t.Context(), list, []int{0}, func(int) string { return filepath.Join(t.TempDir(), "x") }); berth.CodeOf(err) != berth.Conflict || !strings.Contains(err.Error(), "changed") {
		t.Errorf("a file that changed: %v", err)
	}
	var lie atomic.Value
	s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if text, ok := lie.Load().(string); ok && r.URL.Query().Get("comp") == "list" {
			_, _ = w.Write([]byte("<EnumerationResults><Entries>" + text + "</Entries><NextMarker/></EnumerationResults>"))
			return true
		}
		return false
	}
	for text, want := range map[string]string{
		"<File><Name>../x</Name></File>":                         "not a name in the folder",
		"<File><Name Encoded=\"true\">..%2Fx</Name></File>":      "not a name in the folder",
		"<Directory><Name>..</Name></Directory>":                 "not a name in the folder",
		"<File><Name>x</Name></File><File><Name>x</Name></File>": "twice",
	} {
		lie.Store(text)
		if _, _, err := o.List(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
