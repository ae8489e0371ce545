package track

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track/points"
)

// A Workspace is one MLflow server.
type Workspace struct {
	Of             berth.Workspace
	locate.Storage           // its ID is of this workspace, and of no other that had its name before
	Key            string    // as documents have it
	Created        time.Time // when its default experiment was made
	Doc            int64     // the ID of its document: a change to a workspace that was deleted meanwhile is refused
}

// kindWorkspaces is the kind of the documents of workspaces.
const kindWorkspaces = "workspaces"

// WorkspaceOf is the MLflow server of the workspace that a document is.
func WorkspaceOf(d *store.Doc) (Workspace, error) {
	of, err := locate.WorkspaceOf(d)
	if err != nil {
		return Workspace{}, err
	}
	own, err := store.State[locate.Storage](d)
	return Workspace{Of: of, Key: of.Key(), Storage: own, Created: d.Created, Doc: d.ID}, err
}

// workspace is one that was used since the server started.
type workspace struct {
	Workspace
	s *Service

	once sync.Once
	err  error // why it could not be loaded
	// loaded says that it was.
	loaded atomic.Bool
	memory atomic.Int64 // that it was counted with last

	points *points.Set
	charts charts

	mu     sync.RWMutex
	index  *index
	making sync.Mutex // who has it makes a column

	jobs struct { // see catchUp
		mu  sync.Mutex
		rev berth.Rev
		at  time.Time
	}
}

// open finds a workspace, and loads it when it is used for the first time.
func (s *Service) open(ctx context.Context, ws Workspace) (*workspace, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, store.ErrClosed
	}
	if s.gone[ws.ID] {
		s.mu.Unlock()
		return nil, berth.Errorf(berth.NotFound, "the workspace was deleted")
	}
	w := s.spaces[ws.ID]
	if w == nil {
		w = &workspace{Workspace: ws, s: s}
		s.spaces[ws.ID] = w
	}
	if s.MaxMemory > 0 {
		s.estimated.Do(func() { s.estimating.Go(s.estimate) })
	}
	s.mu.Unlock()
	w.once.Do(func() { w.err = w.load(context.WithoutCancel(ctx)) })
	if w.err != nil { // another try may find things mended
		s.mu.Lock()
		if s.spaces[ws.ID] == w {
			delete(s.spaces, ws.ID)
		}
		s.mu.Unlock()
		return nil, w.err
	}
	return w, nil
}

// load reads everything but the points themselves.
func (w *workspace) load(ctx context.Context) error {
	w.index = newIndex()
	if m := w.s.MaxMemory / itemsShare; m > 0 {
		w.index.columns.most = int(min(mostItems, m))
	}
	w.index.put(w.defaultExperiment())
	err := w.s.DB.View(ctx, func(tx *store.Tx) error {
		for kind, read := range map[string]func(*store.Doc) (entity, error){
			kindExperiments: func(d *store.Doc) (entity, error) { return decode[experiment](d) },
			kindRuns:        func(d *store.Doc) (entity, error) { return decode[run](d) },
			kindLogged:      func(d *store.Doc) (entity, error) { return decode[loggedModel](d) },
			kindRegistered:  func(d *store.Doc) (entity, error) { return decode[registered](d) },
			kindVersions:    func(d *store.Doc) (entity, error) { return decode[version](d) },
		} {
			for after := int64(0); ; {
				docs, err := tx.List(store.Query{Workspace: w.Key, Kind: kind, Asc: true, After: after})
				if err != nil {
					return err
				}
				for _, d := range docs {
					e, err := read(d)
					if err != nil {
						return err
					}
					after = d.ID
					w.index.put(e)
				}
				if len(docs) < 1000 {
					break
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.points, err = points.Open(pointDir(w.s.Dir, w.ID), points.Options{
		Log: w.s.Log, NoSync: w.s.NoSync, Leads: w.s.Leads,
	})
	w.loaded.Store(err == nil)
	if err == nil {
		w.measure()
	}
	return err
}

// view runs fn on the index as it is now.
func (w *workspace) view(fn func(*index)) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	fn(w.index)
}

func (w *workspace) run(id string) *run {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.index.run(id)
}

func (w *workspace) experiment(id string) *experiment {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.index.experiments[id]
}
