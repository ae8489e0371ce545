package locate

import (
	"context"
	"strings"
	"sync"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Owners tells whose the files of jobs are. It is safe for concurrent use.
type Owners struct {
	DB *store.DB

	mu         sync.Mutex
	workspaces map[string]string // keys of workspaces by their containers, which are never used again
	artifacts  map[string]bool   // the containers that are artifact stores
}

// Writer returns who may write to a name below the folder of a job: the job, and the user who
// submitted it. The user is empty if there is no such job; both are if the name is in no job's
// folder. The error has the code Denied if only tracking may write to the name: it was logged to
// something other than a run, and tracking knows whose it is.
func (o *Owners) Writer(ctx context.Context, container, name string) (job, user string, err error) {
	logged := strings.HasPrefix(name, LoggedRoot)
	if job = jobOf(name); job == "" && !logged {
		return "", "", nil
	}
	err = o.DB.View(ctx, func(tx *store.Tx) error {
		ws, err := o.workspace(tx, container)
		if err != nil || ws == "" {
			job = ""
			return err
		}
		if logged {
			return o.refuseLogged(container)
		}
		d, err := tx.Get(ws, "jobs", job, "")
		if berth.CodeOf(err) == berth.NotFound || err == nil && d.Name != job {
			return nil
		}
		if err == nil {
			user = d.CreatedBy
		}
		return err
	})
	return job, user, err
}

// refuseLogged refuses to write what was logged in an artifact store.
func (o *Owners) refuseLogged(container string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.artifacts[container] {
		return nil
	}
	return &berth.Error{
		Code: berth.Denied, Wire: "AuthorizationPermissionMismatch",
		Msg: LoggedRoot + " has what was logged with MLflow, and is written through the workspace's MLflow server; use that, or another folder",
	}
}

// OfEndedJob reports whether a name in a workspace's containers lies below the folder of a job that
// has ended.
func OfEndedJob(tx *store.Tx, workspace, name string) (bool, error) {
	job := jobOf(name)
	if job == "" {
		return false, nil
	}
	d, err := tx.Get(workspace, "jobs", job, "")
	if berth.CodeOf(err) == berth.NotFound {
		return false, nil
	}
	return err == nil && d.Name == job && berth.JobStatus(d.Status).Terminal(), err
}

// jobOf is the job that a name in a workspace's containers would belong to, "" when it cannot
// belong to one.
func jobOf(name string) string {
	for _, root := range []string{OutputRoot, ArtifactPath("")} {
		if rest, ok := strings.CutPrefix(name, root); ok {
			job, _, _ := strings.Cut(rest, "/")
			return job
		}
	}
	return ""
}

// workspace is the key of the workspace that a container belongs to, "" where there is none.
func (o *Owners) workspace(tx *store.Tx, container string) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if key, ok := o.workspaces[container]; ok {
		return key, nil
	}
	docs, err := tx.All(store.Query{Kind: "workspaces"})
	if err != nil {
		return "", err
	}
	known, artifacts := map[string]string{}, map[string]bool{}
	for _, d := range docs {
		s, err := store.State[Storage](d)
		if err != nil {
			return "", berth.Errorf(berth.Internal, "the storage of workspace %s cannot be read: %w", d.Name, err)
		}
		known[s.Blobs], known[s.Artifacts] = d.Name, d.Name
		artifacts[s.Artifacts] = true
	}
	o.workspaces, o.artifacts = known, artifacts
	return known[container], nil
}
