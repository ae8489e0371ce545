package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/api"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/blob/front"
	"github.com/berthml/berth/internal/filewatch"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

// house is the front door over a real store, without the loops: what is written stays as the
// handlers wrote it.
type house struct {
	t     testing.TB
	db    *store.DB
	blobs *blob.Store
	auth  *auth.Authority
	admin string
	ws    string
	h     http.Handler
}

// curated is a list of one environment that is always there.
func curated(name string) (berth.LaunchEnv, bool) {
	return berth.LaunchEnv{Conda: "dependencies: [python=3.10]"}, name == "always-1.5"
}

var workspace = berth.Workspace{Subscription: "sub", Group: "Group", Name: "lab"}

func open(t testing.TB) *house {
	t.Helper()
	w, err := filewatch.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return openWith(t, w)
}

func openWith(t testing.TB, w *filewatch.Watcher) *house {
	t.Helper()
	dir := t.TempDir()
	return openOn(t, w, "sqlite:"+filepath.Join(dir, "db"), dir)
}

// testTask is a header of requests that come from a process of a task.
const testTask = "X-Test-Task"

func openOn(t testing.TB, w *filewatch.Watcher, url, dir string) *house {
	t.Helper()
	db, err := store.Open(t.Context(), url, store.Options{NoSync: true, Rehearse: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	blobs, err := blob.Open(filepath.Join(dir, "blobs"), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blobs.Close() })
	keys, err := auth.LoadKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	x := &house{t: t, db: db, blobs: blobs, auth: auth.NewAuthority(keys, db), ws: workspace.ID()}
	if x.admin, err = x.auth.AdminToken(t.Context(), dir, "root"); err != nil {
		t.Fatal(err)
	}
	signer := front.NewSigner(keys.SAS)
	tracking := track.New(track.Options{DB: db, Blobs: blobs, Dir: filepath.Join(dir, "tracking"), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { tracking.Close() })
	s := api.New(api.Options{
		Tracking: tracking,
		Points:   func(id string) ([]fs.FileInfo, error) { return track.PointFiles(filepath.Join(dir, "tracking"), id) },
		DB:       db, Blobs: blobs, Authority: x.auth, Signer: signer, Watcher: w, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Front:    front.New(blobs, signer, front.Options{Account: "st", Suffix: "berth"}),
		Locator:  locate.Locator{BaseURL: "https://127.0.0.1:8443", Account: "st", Suffix: "berth/", Allow: locate.Allow{Hosts: []string{"127.0.0.1"}}},
		Location: "here", Default: workspace, Curated: curated,
		FromTask: func(r *http.Request) bool { return r.Header.Get(testTask) != "" },
	})
	if err := s.EnsureWorkspace(t.Context(), workspace, "root"); err != nil {
		t.Fatal(err)
	}
	x.h = s
	return x
}

type answer struct {
	t      testing.TB
	status int
	header http.Header
	raw    []byte
	body   map[string]any
}

func (x *house) as(token, method, path string, body any, header ...string) answer {
	x.t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			x.t.Fatal(err)
		}
		r = bytes.NewReader(raw)
	}
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	defer cancel()
	req := httptest.NewRequestWithContext(ctx, method, path, r)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	x.h.ServeHTTP(w, req)
	a := answer{t: x.t, status: w.Code, header: w.Header(), raw: w.Body.Bytes(), body: map[string]any{}}
	if bytes.HasPrefix(a.raw, []byte("{")) {
		if err := json.Unmarshal(a.raw, &a.body); err != nil {
			x.t.Fatalf("%s %s: %v in %s", method, path, err, a.raw)
		}
	}
	return a
}

func (x *house) do(method, path string, body any, header ...string) answer {
	x.t.Helper()
	return x.as(x.admin, method, path, body, header...)
}

func (a answer) want(status int) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status %d, want %d: %s", a.status, status, a.raw)
	}
	return a
}

// at is a value of the answer by dotted path; a number is a list index.
func (a answer) at(path string) any {
	var v any = a.body
	for k := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[k]
		case []any:
			var i int
			if _, err := fmt.Sscan(k, &i); err != nil || i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

func (a answer) is(path string, want any) answer {
	a.t.Helper()
	if got := a.at(path); fmt.Sprint(got) != fmt.Sprint(want) {
		a.t.Errorf("%s = %v, want %v", path, got, want)
	}
	return a
}

func (a answer) says(words ...string) answer {
	a.t.Helper()
	msg := fmt.Sprint(a.at("error.message"))
	for _, w := range words {
		if !strings.Contains(msg, w) {
			a.t.Errorf("message %q does not say %q", msg, w)
		}
	}
	return a
}

func props(kv ...any) map[string]any {
	p := map[string]any{}
	for i := 0; i+1 < len(kv); i += 2 {
		p[kv[i].(string)] = kv[i+1]
	}
	return map[string]any{"properties": p}
}
