package api

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

// trackingPath is where the MLflow servers of workspaces are: /mlflow/v2.0/subscriptions/…/workspaces/NAME/api/2.0/mlflow/…. They do
// not go through the mux, which would clean the paths of artifacts.
const trackingPath = "/mlflow/"

// trackingLife is how long it is remembered where a workspace's tracking is, and what a task's token opens.
const trackingLife = time.Second

// trackingMemory bounds how many of them are remembered.
const trackingMemory = 4096

// tracking remembers what every call to a tracking server asks for.
type tracking struct {
	mu     sync.Mutex
	spaces map[string]trackedSpace  // by key of the workspace
	tasks  map[berth.TaskID]tracked // by task
}

type trackedSpace struct {
	ws track.Workspace
	at time.Time
}

type tracked struct {
	workspace, job, user string
	at                   time.Time
}

// track serves everything below trackingPath. Who asks is found out before anything else, and every error is in MLflow's words.
func (s *Server) track(w http.ResponseWriter, r *http.Request) {
	who, workspace, err := s.tracker(r)
	if err != nil {
		if berth.CodeOf(err) == berth.Unauthenticated {
			w.Header().Set("WWW-Authenticate", `Bearer realm="berth"`)
		}
		track.Fail(w, err)
		return
	}
	ws, path, err := trackingOf(r.URL.EscapedPath())
	if err == nil && workspace != "" && workspace != ws.Key() {
		err = berth.Errorf(berth.Denied, "a job's token opens its own workspace only")
	}
	if err != nil {
		track.Fail(w, err)
		return
	}
	space, err := s.trackedSpace(r.Context(), ws)
	if err != nil {
		track.Fail(w, err)
		return
	}
	s.Tracking.Serve(w, r, space, who, path)
	settle(w, r)
}

// tracker finds out who calls, and for a job the one workspace it may call.
func (s *Server) tracker(r *http.Request) (track.Caller, string, error) {
	bearer, now := auth.Bearer(r.Header.Get("Authorization")), time.Now()
	if id, ok, err := s.Authority.Keys.CheckTrack(bearer, now); ok {
		if err != nil {
			return track.Caller{}, "", err
		}
		t, err := s.trackedTask(r.Context(), id)
		return track.Caller{User: t.user, Write: true, Job: t.job}, t.workspace, err
	}
	p, ok := auth.From(r.Context()) // the local socket has authenticated already
	if !ok {
		var err error
		if p, err = s.Authority.Check(r.Context(), bearer, now); err != nil {
			return track.Caller{}, "", err
		}
	}
	if p.Task != "" {
		return track.Caller{}, "", berth.Errorf(berth.Denied, "a task's token opens its own task only")
	}
	return track.Caller{User: p.User, Write: p.CanWrite()}, "", nil
}

// trackingOf takes an address apart: the workspace, and what follows it, escaped.
func trackingOf(escaped string) (berth.Workspace, string, error) {
	rest := strings.TrimPrefix(escaped, trackingPath)
	parts := strings.SplitN(rest, "/", 10)
	if len(parts) < 9 {
		return berth.Workspace{}, "", berth.Errorf(berth.NotFound, "there is no tracking server at %s: use the address that `berth tracking-uri` prints", escaped)
	}
	p, err := segments(strings.Join(parts[:9], "/"))
	if err != nil {
		return berth.Workspace{}, "", err
	}
	if p[0] != "v1.0" && p[0] != "v2.0" || !fold(p, 1, "subscriptions") || !fold(p, 3, "resourceGroups") || !fold(p, 7, "workspaces") {
		return berth.Workspace{}, "", berth.Errorf(berth.NotFound, "there is no tracking server at %s: use the address that `berth tracking-uri` prints", escaped)
	}
	path := ""
	if len(parts) == 10 {
		path = parts[9]
	}
	return berth.Workspace{Subscription: p[2], Group: p[4], Name: p[8]}, path, nil
}

// trackedSpace finds the tracking of a workspace.
func (s *Server) trackedSpace(ctx context.Context, ws berth.Workspace) (track.Workspace, error) {
	now := time.Now()
	s.tracked.mu.Lock()
	f, ok := s.tracked.spaces[ws.Key()]
	s.tracked.mu.Unlock()
	if ok && now.Sub(f.at) < trackingLife {
		return f.ws, nil
	}
	known, err := s.findWorkspace(ctx, ws)
	if err != nil {
		return track.Workspace{}, err
	}
	out := track.Workspace{Key: known.Key()}
	err = s.DB.View(ctx, func(tx *store.Tx) error {
		d, err := tx.Get("", kindWorkspace, known.Key(), "")
		if err != nil {
			return err
		}
		own, err := locate.StorageOf(tx, known.Key())
		out.ID, out.Artifacts, out.Created, out.Doc = own.ID, own.Artifacts, d.Created, d.ID
		return err
	})
	if err != nil {
		return out, err
	}
	s.tracked.mu.Lock()
	defer s.tracked.mu.Unlock()
	if s.tracked.spaces == nil || len(s.tracked.spaces) >= trackingMemory {
		s.tracked.spaces = map[string]trackedSpace{}
	}
	s.tracked.spaces[ws.Key()] = trackedSpace{out, now}
	return out, nil
}

// trackedTask finds the job of a task that runs. With its end its token opens nothing here any more.
func (s *Server) trackedTask(ctx context.Context, id berth.TaskID) (tracked, error) {
	now := time.Now()
	s.tracked.mu.Lock()
	f, ok := s.tracked.tasks[id]
	s.tracked.mu.Unlock()
	if ok && now.Sub(f.at) < trackingLife {
		return f, nil
	}
	var t *berth.Task
	err := s.DB.View(ctx, func(tx *store.Tx) (err error) {
		t, err = tx.Task(id)
		return err
	})
	if err != nil {
		return f, err
	}
	if t.State == berth.TaskDone {
		return f, berth.Errorf(berth.Unauthenticated, "the task of this token has ended")
	}
	f = tracked{t.Workspace, t.Job, t.User, now}
	s.tracked.mu.Lock()
	defer s.tracked.mu.Unlock()
	if s.tracked.tasks == nil || len(s.tracked.tasks) >= trackingMemory {
		s.tracked.tasks = map[berth.TaskID]tracked{}
	}
	s.tracked.tasks[id] = f
	return f, nil
}

// forgetTracking forgets where the tracking of a workspace was, and when it is gone its points too.
func (s *Server) forgetTracking(ws berth.Workspace, id string, gone bool) {
	s.tracked.mu.Lock()
	delete(s.tracked.spaces, ws.Key())
	s.tracked.mu.Unlock()
	if !gone || id == "" {
		return
	}
	if err := s.Tracking.Forget(id); err != nil {
		s.Log.Error("points of a deleted workspace are left over", "workspace", ws.Name, "id", id, "err", err)
	}
}
