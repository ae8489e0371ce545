package api

import (
	"net/http"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

// deleteJob removes a job that has ended, with its logs and outputs.
func deleteJob(c *call, r *resource, name string) error {
	var d *store.Doc
	var live []string
	err := c.s.DB.Update(c.ctx(), func(tx *store.Tx) (err error) {
		if err := c.ifMatch(tx, "jobs", name, ""); err != nil {
			return err
		}
		if d, err = tx.Get(c.ws.Key(), "jobs", name, ""); err != nil {
			return err
		}
		if err := c.madeIt(r, d, "delete"); err != nil {
			return err
		}
		if !berth.JobStatus(d.Status).Terminal() {
			return berth.Errorf(berth.Conflict, "job %s has not ended; cancel it first", name)
		}
		if err := (jobCall{c}).leaves(tx, d); err != nil {
			return err
		}
		all, err := family(tx, d)
		if err != nil {
			return err
		}
		live = live[:0]
		for _, d := range all {
			logs, err := jobCall{c}.erase(tx, d)
			if err != nil {
				return err
			}
			live = append(live, logs...)
		}
		return nil
	})
	if berth.CodeOf(err) == berth.NotFound {
		return c.empty(http.StatusNoContent)
	}
	if err != nil {
		return err
	}
	for _, rel := range live {
		if err := c.s.Blobs.RemoveLive(rel); err != nil {
			c.s.Log.Warn("the log of a deleted job is left behind", "job", d.Name, "err", err)
		}
	}
	c.operation("delete", c.docID(r, d))
	return c.empty(http.StatusAccepted)
}

// erase removes one job. It returns the log files that belong to nobody then.
func (c jobCall) erase(tx *store.Tx, d *store.Doc) (live []string, err error) {
	own, err := locate.StorageOf(tx, c.ws.Key())
	if err != nil {
		return nil, err
	}
	logs, err := tx.ListBlobs(store.BlobQuery{Container: own.Artifacts, Prefix: locate.ArtifactPath(d.Name) + "/user_logs/"})
	if err != nil {
		return nil, err
	}
	for _, b := range logs {
		if b.Live != "" {
			live = append(live, b.Live)
		}
	}
	kept := false
	for container, prefix := range map[string]string{own.Artifacts: locate.ArtifactPath(d.Name) + "/", own.Blobs: locate.OutputRoot + d.Name + "/"} {
		if err := blob.Erase(tx, container, prefix); err != nil {
			return nil, err
		}
		if err := blob.Changed(tx, container, prefix); err != nil {
			return nil, err
		}
		held, err := tx.ListBlobs(store.BlobQuery{Container: container, Prefix: prefix, Limit: 1})
		if err != nil {
			return nil, err
		}
		kept = kept || len(held) > 0
	}
	if kept {
		if err := track.KeepRun(tx, d); err != nil {
			return nil, err
		}
	}
	if err := tx.DeleteTasks(c.ws.Key(), d.Name); err != nil {
		return nil, err
	}
	tx.Emit(berth.Event{Workspace: d.Workspace, Subject: "jobs/" + d.Name, Type: berth.EventResourceDel, Reason: "deleted by " + c.who.User})
	return live, tx.Delete(c.ws.Key(), "jobs", d.Name, "")
}
