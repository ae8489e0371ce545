package api

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

// Tracking is the tracking service, [track.Service]: of this server, or of the one that leads.
type Tracking interface {
	Serve(w http.ResponseWriter, r *http.Request, ws track.Workspace, who track.Caller, path string)
	// Clean is [track.Service.Clean]. A server that does not lead returns an error, see
	// Options.PassOn.
	Clean(ctx context.Context, ws track.Workspace, user string, q berth.CleanStorage) (berth.CleanedStorage, error)
}

// trackingService serves the MLflow server of each workspace.
type trackingService struct {
	db         *store.DB
	log        *slog.Logger
	authority  *auth.Authority
	tracking   Tracking
	workspaces *workspaceService
	front      *Server
}

var errNoTrackingToken = berth.Errorf(berth.Unauthenticated, "no token was sent; `berth tracking-uri --export` prints what an MLflow client needs: MLFLOW_TRACKING_TOKEN is the token")

// errNoWorkspace answers clients that use the server's own address as that of an MLflow server.
var errNoWorkspace = berth.Errorf(berth.NotFound, "each workspace is an MLflow server of its own: use the address that `berth tracking-uri` prints")

// isMLflow says whether a path is one of MLflow's API without a workspace before it.
func isMLflow(path string) bool {
	rest, ok := strings.CutPrefix(path, "/ajax-api/")
	if !ok {
		rest, ok = strings.CutPrefix(path, "/api/")
	}
	return ok && (strings.HasPrefix(rest, "2.0/mlflow") || strings.HasPrefix(rest, "3.0/mlflow"))
}

// track serves everything below berth.TrackingRoot:
// /mlflow/v2.0/subscriptions/…/workspaces/NAME/api/2.0/mlflow/…. It does not go through the mux,
// which would clean the paths of artifacts. Who asks is found out before anything else, and every
// error is in MLflow's words.
func (s *trackingService) track(w http.ResponseWriter, r *http.Request) {
	who, workspace, err := s.tracker(r)
	if err != nil {
		if berth.CodeOf(err) == berth.Unauthenticated {
			w.Header().Set("WWW-Authenticate", challenge)
			if r.Header.Get("Authorization") == "" {
				err = errNoTrackingToken
			}
		}
		s.fail(w, err)
		return
	}
	ws, version, path, err := trackingOf(r.URL.EscapedPath())
	who.Azure = version == pluginVersion && strings.Contains(r.UserAgent(), pluginAgent)
	if err != nil {
		s.fail(w, err)
		return
	}
	s.serve(w, r, who, workspace, ws, path)
}

// fail answers with an error, which the client has to read in time.
func (s *trackingService) fail(w http.ResponseWriter, err error) {
	p := s.front.patient(w, context.Background())
	defer p.allow()
	track.Fail(p, err)
}

// serve answers a request to the server of a workspace. only is the workspace that the token of a
// job opens.
func (s *trackingService) serve(w http.ResponseWriter, r *http.Request, who track.Caller, only string, ws berth.Workspace, path string) {
	if only != "" && only != ws.Key() {
		s.fail(w, berth.Errorf(berth.Denied, "a job's token opens its own workspace only"))
		return
	}
	found, err := s.workspaces.lookUpWorkspace(r.Context(), ws)
	if err != nil {
		s.fail(w, err)
		return
	}
	fits := func(ctx context.Context, more int64) error {
		if who.Job != "" { // a job that runs goes on, whatever it stores
			return nil
		}
		room, err := s.front.quota.Room(ctx, ws.Key())
		if err != nil {
			return err
		}
		room.Used += more
		return room.Full(ws.Name)
	}
	who.Full = func(ctx context.Context) error { return fits(ctx, 0) }
	who.Check = func(ctx context.Context, bytes int64) error {
		if err := s.authority.CheckHolder(ctx, who.Holder, time.Now()); err != nil {
			return err
		}
		return fits(ctx, bytes)
	}
	if track.Streams(r.Method, path) {
		if err := s.stream(w, r, found.tracking, who, path); err != nil {
			s.fail(w, err)
		}
		return
	}
	p := s.front.patient(w, context.Background())
	defer p.allow()
	s.tracking.Serve(p, r, found.tracking, who, path)
	drainBody(w, r)
}

// stream serves an answer that goes on, until the server stops or the caller's credentials end.
func (s *trackingService) stream(w http.ResponseWriter, r *http.Request, ws track.Workspace, who track.Caller, path string) error {
	p, err := s.front.principal(r)
	if err != nil {
		return err
	}
	c := streamCall{&call{s: s.front, w: w, r: r, who: p}}
	done, err := c.follower()
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := c.hold()
	defer cancel()
	s.tracking.Serve(c.w, r.WithContext(ctx), ws, who, path)
	return nil
}

// tracker finds out who calls, and for a job the one workspace it may call.
func (s *trackingService) tracker(r *http.Request) (track.Caller, string, error) {
	var t *berth.Task
	var of *store.Doc
	job, err := s.authority.CheckTrack(r.Context(), auth.Bearer(r.Header.Get("Authorization")), time.Now(), func(id berth.TaskID) (string, error) {
		err := s.db.View(r.Context(), func(tx *store.Tx) (err error) {
			if t, err = tx.Task(id); err == nil {
				of, err = tx.Get(t.Workspace, "jobs", t.Job, "")
			}
			return err
		})
		if berth.CodeOf(err) == berth.NotFound || err == nil && t.State == berth.TaskDone {
			err = berth.Errorf(berth.Unauthenticated, "the task of this token has ended")
		}
		if err != nil {
			return "", err
		}
		return t.User, nil
	})
	switch {
	case err != nil:
		return track.Caller{}, "", err
	case job:
		return track.Caller{User: t.User, Write: true, Job: t.Job, JobID: of.ID, Holder: auth.TaskHolder(t.ID)}, t.Workspace, nil
	}
	p, err := s.front.principal(r)
	if err == nil && p.Task != "" {
		err = berth.Errorf(berth.Denied, "a task's token opens its own task only")
	}
	return track.Caller{User: p.User, Write: p.CanWrite(), Admin: p.Role == auth.Admin, Holder: p.Holder()}, "", err
}

// Azure's plugin for MLflow (azureml-mlflow) asks at this version of the address, whatever the
// address is that it was given, and names itself in its requests. A plain client in whose Python
// the plugin is installed names it too, but asks at the address that we gave it.
const (
	pluginVersion = "v2.0"
	pluginAgent   = "azureml-mlflow/"
)

// historyOr serves the artifacts of runs as the run history of Azure has them, for the plugin of
// MLflow: it has the token of a person or of a job. other serves the rest of the history.
func (s *trackingService) historyOr(other http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		escaped := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
		p, err := segments(r.URL.EscapedPath())
		if err != nil || len(p) < 15 || !fold(p, 10, "experiments") || !fold(p, 12, "runs") || !fold(p, 14, "artifacts") {
			other.ServeHTTP(w, r)
			return
		}
		who, workspace, err := s.tracker(r)
		if err != nil {
			s.front.fail(w, r, err)
			return
		}
		who.Azure = true
		s.serve(w, r, who, workspace, berth.Workspace{Subscription: p[3], Group: p[5], Name: p[9]}, track.HistoryPath+strings.Join(escaped[13:], "/"))
	}
}

// trackingOf takes an address apart: the workspace, the version, and what follows, escaped.
func trackingOf(escaped string) (ws berth.Workspace, version, path string, err error) {
	rest := strings.TrimPrefix(escaped, berth.TrackingRoot)
	parts := strings.SplitN(rest, "/", 10)
	if len(parts) < 9 {
		return berth.Workspace{}, "", "", berth.Errorf(berth.NotFound, "there is no tracking server at %s: use the address that `berth tracking-uri` prints", escaped)
	}
	p, err := segments(strings.Join(parts[:9], "/"))
	if err != nil {
		return berth.Workspace{}, "", "", err
	}
	if p[0] != "v1.0" && p[0] != "v2.0" || !fold(p, 1, "subscriptions") || !fold(p, 3, "resourceGroups") || !fold(p, 7, "workspaces") {
		return berth.Workspace{}, "", "", berth.Errorf(berth.NotFound, "there is no tracking server at %s: use the address that `berth tracking-uri` prints", escaped)
	}
	if len(parts) == 10 {
		path = parts[9]
	}
	return berth.Workspace{Subscription: p[2], Group: p[4], Name: p[8]}, p[0], path, nil
}
