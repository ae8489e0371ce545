package data_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/webdav"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/data"
	"github.com/berthml/berth/internal/storage"
)

// web is a place below the URL of a web server.
func web(t *testing.T, root, place string) *data.Outside {
	t.Helper()
	st, err := storage.Read(map[string]any{"datastoreType": "Http", "url": root})
	if err != nil {
		t.Fatal(err)
	}
	key, err := st.Open(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := data.New(data.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.Shrink(8<<20, 1<<20, time.Millisecond)
	return c.Outside(&berth.Outside{Protocol: st.Protocol(), Datastore: "web", At: st.At(place)}, func(_ context.Context, _ string, rs []berth.OutsideRequest) (urls []string, err error) {
		for _, r := range rs {
			u, err := key.Sign(place, r, time.Now(), time.Now().Add(time.Hour))
			if err != nil {
				return nil, err
			}
			urls = append(urls, u)
		}
		return urls, nil
	})
}

// folderOf makes a folder with files.
func folderOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// webFiles are what the servers of these tests have.
var webFiles = map[string]string{
	"pub/in/a.txt": "alpha", "pub/in/Deep/b c+d&é%#?.txt": "beta", "pub/in/Deep/deeper/c": "gamma", "pub/in/z": "", "pub/other": "no",
	"pub/in/large": strings.Repeat("0123456789", 1<<20),
}

// webServers are servers of both kinds, below /pub of whose URL the files are: one that speaks
// WebDAV, one that shows pages of links, and one that does so without tags or parts of files.
func webServers(t *testing.T) map[string]string {
	dav := &webdav.Handler{FileSystem: webdav.Dir(folderOf(t, webFiles)), LockSystem: webdav.NewMemLS()}
	pages := http.FileServer(http.Dir(folderOf(t, webFiles)))
	plain := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "Unsupported method", http.StatusNotImplemented)
			return
		}
		r.Header.Del("Range")
		pages.ServeHTTP(w, r)
	})
	urls := map[string]string{}
	for name, h := range map[string]http.Handler{"dav": dav, "pages": pages, "plain": plain} {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		urls[name] = s.URL
	}
	return urls
}

// TestWeb: a folder of a web server comes with everything in it.
func TestWeb(t *testing.T) {
	for kind, url := range webServers(t) {
		t.Run(kind, func(t *testing.T) {
			o := web(t, url+"/pub/", "in")
			list, skipped, err := o.List(t.Context())
			if err != nil || len(skipped) > 0 {
				t.Fatal(skipped, err)
			}
			var names []string
			var want []int
			for i, x := range list {
				names = append(names, x.Path)
				if !strings.HasSuffix(x.Path, "/") {
					want = append(want, i)
					if x.Tag == "" || x.Size != int64(len(webFiles["pub/in/"+x.Path])) {
						t.Errorf("%+v", x)
					}
				}
			}
			if d := cmp.Diff([]string{"Deep/", "Deep/b c+d&é%#?.txt", "Deep/deeper/", "Deep/deeper/c", "a.txt", "large", "z"}, names); d != "" {
				t.Fatal(d)
			}
			dir := t.TempDir()
			at := func(i int) string { return filepath.Join(dir, fmt.Sprint(i)) }
			if err := o.Fetch(t.Context(), list, want, at); err != nil {
				t.Fatal(err)
			}
			for _, i := range want {
				if got, err := os.ReadFile(at(i)); err != nil || string(got) != webFiles["pub/in/"+list[i].Path] {
					t.Errorf("%s has %d bytes: %v", list[i].Path, len(got), err)
				}
			}
			if x, err := web(t, url, "pub/in/a.txt").Stat(t.Context()); err != nil || x.Size != 5 {
				t.Errorf("%+v, %v", x, err)
			}
			for _, place := range []string{"nothing", "pub/in/a.txt"} {
				if _, _, err := web(t, url, place).List(t.Context()); err == nil || berth.CodeOf(err) == berth.Unavailable {
					t.Errorf("%s was listed: %v", place, err)
				}
			}
			if _, err := web(t, url, "nothing").Stat(t.Context()); berth.CodeOf(err) != berth.NotFound {
				t.Errorf("a file that is not there: %v", err)
			}
		})
	}
}

// TestWebWrites: what is written makes the folders that it needs, where the server makes folders,
// and is refused where nothing can be written.
func TestWebWrites(t *testing.T) {
	root := t.TempDir()
	dav := httptest.NewServer(&webdav.Handler{FileSystem: webdav.Dir(root), LockSystem: webdav.NewMemLS()})
	defer dav.Close()
	big := strings.Repeat("x", 9<<20)
	files := map[string]string{"a": "one", "d/e/f%?": "two", "d/g": "", "d/big": big}
	d, err := data.OpenDir(folderOf(t, files), "")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var total data.Total
	for range 2 { // what is there is replaced
		if _, err := web(t, dav.URL, "new/out").PutFolder(t.Context(), d, nil, &total); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		if got, err := os.ReadFile(filepath.Join(root, "new/out", name)); err != nil || string(got) != text {
			t.Errorf("%s has %d bytes: %v", name, len(got), err)
		}
	}
	if err := web(t, dav.URL, "single/file.txt").PutFile(t.Context(), d, "a", &total); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(root, "single/file.txt")); err != nil || string(got) != "one" {
		t.Error(string(got), err)
	}
	if err := web(t, dav.URL, "new/out").Remove(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(root, "new/out/a")); !errors.Is(err, os.ErrNotExist) {
		t.Error("the file is still there")
	}
	pages := httptest.NewServer(http.FileServer(http.Dir(root)))
	defer pages.Close()
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "Unsupported method", http.StatusNotImplemented)
	}))
	defer plain.Close()
	// This one makes folders itself, and says that it has none to make.
	var paths []string
	kept := ""
	puts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodPut:
			paths = append(paths, r.URL.Path)
			b, _ := io.ReadAll(r.Body)
			kept = string(b)
		case http.MethodGet:
			_, _ = io.WriteString(w, kept)
		default:
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	}))
	defer puts.Close()
	if err := web(t, puts.URL, "x/y").PutFile(t.Context(), d, "a", &total); err != nil || !slices.Equal(paths, []string{"/x/y"}) {
		t.Error(paths, err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(root, "a"), []byte("two"), 0o600), os.WriteFile(filepath.Join(root, "b"), []byte("ones"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if err := web(t, pages.URL, name).PutFile(t.Context(), d, "a", &total); err == nil || !strings.Contains(err.Error(), "does not keep it") {
			t.Errorf("a server that takes PUT for GET: %v", err)
		}
	}
	if err := web(t, pages.URL, "nothing/a").PutFile(t.Context(), d, "a", &total); err == nil || !strings.Contains(err.Error(), "nor can the folder") {
		t.Errorf("a server that takes all for GET: %v", err)
	}
	if err := web(t, plain.URL, "x").PutFile(t.Context(), d, "a", &total); err == nil || !strings.Contains(err.Error(), "501") {
		t.Errorf("a server that knows no PUT: %v", err)
	}
}

// TestWebFaults: what changes, what lies and what is no list.
func TestWebFaults(t *testing.T) {
	root := folderOf(t, map[string]string{"in/a.txt": "alpha"})
	pages := httptest.NewServer(http.FileServer(http.Dir(root)))
	defer pages.Close()
	o := web(t, pages.URL, "in")
	list, _, err := o.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(root, "in/a.txt")
	if err := errors.Join(os.WriteFile(p, []byte("omega"), 0o600), os.Chtimes(p, time.Time{}, time.Now().Add(time.Minute))); err != nil {
		t.Fatal(err)
	}
	if err := o.Fetch(t.Context(), list, []int{0}, func(int) string { return filepath.Join(t.TempDir(), "x") }); berth.CodeOf(err) != berth.Conflict || !strings.Contains(err.Error(), "changed") {
		t.Errorf("a file that changed: %v", err)
	}

	status, kind, body := 0, "", ""
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == "PROPFIND" && status != http.StatusMultiStatus:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case r.Method == http.MethodHead:
			w.Header().Set("Content-Length", "1")
		default:
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}))
	defer liar.Close()
	response := func(hrefs ...string) string {
		var b strings.Builder
		for _, h := range hrefs {
			fmt.Fprintf(&b, `<D:response><D:href>%s</D:href><D:propstat><D:prop><D:getcontentlength>1</D:getcontentlength></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>`, h)
		}
		return `<D:multistatus xmlns:D="DAV:">` + b.String() + `</D:multistatus>`
	}
	for _, c := range []struct {
		status           int
		kind, body, want string
	}{
		{207, "text/xml", response("/in/", "/in/../../x"), "not a name in the folder"},
		{207, "text/xml", response("/in/..%2F..%2Fx"), "not a name in the folder"},
		{207, "text/xml", response("/elsewhere/x"), "not a name in the folder"},
		{207, "text/xml", response("/in/x", "/in/x"), "twice"},
		{207, "text/xml", response("/in/"), "there is nothing"},
		{200, "text/html", `<a href="https://example.org/in/x">x</a> <a href="../x">up</a> <a href="?C=N">by name</a> <a href="/in/">here</a>`, "there is nothing"},
		{200, "application/json", `[]`, "lists no folders"},
		{403, "text/html", "", "rejects the credentials"},
		{404, "text/html", "", "404"},
	} {
		status, kind, body = c.status, c.kind, c.body
		if list, _, err := web(t, liar.URL, "in").List(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d %s: %v, %v", c.status, c.body, list, err)
		}
	}
	status, kind, body = 200, "text/html", `<a href="d/">d</a> <a href="d">d</a>`
	if _, _, err := web(t, liar.URL, "in").List(t.Context()); err == nil || !strings.Contains(err.Error(), "folders within more than 100 others") {
		t.Errorf("folders without end: %v", err)
	}
	status, kind, body = 200, "text/html; charset=utf-8", `<A class=x HREF = 'b%5Cc'>odd</A><a href="y&amp;z">y</a><a href=q>q</a><a href="y&amp;z">again</a>`
	list, skipped, err := web(t, liar.URL, "in").List(t.Context())
	if err != nil || len(list) != 2 || list[0].Path != "q" || list[1].Path != "y&z" || !slices.Equal(skipped, []string{`b\c`}) {
		t.Errorf("%+v, %q, %v", list, skipped, err)
	}
}
