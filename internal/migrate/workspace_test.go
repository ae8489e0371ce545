package migrate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/migrate"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

type obj = map[string]any

// space is the tracking of one workspace, over HTTP.
type space struct {
	t   *testing.T
	url string // of its MLflow server
	to  *client.Client
	// full says that its storage is at the limit.
	full atomic.Bool
	// imports counts the documents of logged models that were sent.
	imports atomic.Int64
}

// newSpace starts the tracking of a workspace.
func newSpace(t *testing.T) *space {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(dir, "berth.db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	blobs, err := blob.Open(filepath.Join(dir, "blobs"), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blobs.Close() })
	of := berth.Workspace{Subscription: "s", Group: "g", Name: "w"}
	ws := track.Workspace{Of: of, Key: of.Key(), Storage: locate.Storage{ID: "id", Blobs: "blobs", Artifacts: "artifacts"}}
	err = db.Update(t.Context(), func(tx *store.Tx) error {
		own, err := json.Marshal(ws.Storage)
		if err != nil {
			return err
		}
		d := &store.Doc{Kind: "workspaces", Name: ws.Key, Parent: of.ID(), Own: own}
		err = tx.Insert(d)
		ws.Doc, ws.Created = d.ID, d.Created
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s := track.New(track.Options{DB: db, Blobs: blobs, Dir: filepath.Join(dir, "tracking"), Log: slog.New(slog.NewTextHandler(t.Output(), nil)), NoSync: true})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	sp := &space{t: t}
	who := track.Caller{User: "u", Write: true, Full: func(context.Context) error {
		if sp.full.Load() {
			return berth.Errorf(berth.Limit, "the workspace is full")
		}
		return nil
	}}
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/import/logged-model") {
			sp.imports.Add(1)
		}
		s.Serve(w, r, ws, who, strings.TrimPrefix(r.URL.EscapedPath(), of.TrackingPath()))
	})
	plain, safe := httptest.NewServer(serve), httptest.NewTLSServer(serve)
	t.Cleanup(plain.Close)
	t.Cleanup(safe.Close)
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: safe.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	to, err := client.Open(t.Context(), client.Config{URL: safe.URL, Token: "t", CA: ca, Workspace: of})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(to.Close)
	sp.url, sp.to = plain.URL+of.TrackingPath(), to
	return sp
}

// must calls the API; path is below /api/2.0/mlflow/.
func (s *space) must(method, path string, body any) obj {
	s.t.Helper()
	var out obj
	if err := s.to.Track(s.t.Context(), method, "mlflow/"+path, body, &out); err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return out
}

// bring imports a source. What is said on the way is returned too.
func (s *space) bring(from migrate.Source) (migrate.Counts, []string, error) {
	s.t.Helper()
	var said []string
	n, err := migrate.Copy(s.t.Context(), from, s.to, migrate.Options{Say: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }})
	return n, said, err
}

// mustBring imports a source that is to be imported whole.
func (s *space) mustBring(from migrate.Source) migrate.Counts {
	s.t.Helper()
	n, _, err := s.bring(from)
	if err != nil || n.LeftBehind > 0 {
		s.t.Fatalf("%v, not imported: %q", err, n.NotImported)
	}
	return n
}

// source is the workspace as something to import from.
func (s *space) source() migrate.Source {
	s.t.Helper()
	from, err := migrate.Server(s.url, "", nil, migrate.Patience)
	if err != nil {
		s.t.Fatal(err)
	}
	return from
}

// at walks down an answer.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(obj)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(b))
}
