package track

import (
	"cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// An origin is who made a run or logged model. Who may change it follows from this.
type origin struct {
	// Job is the job whose token made it: it may write to it. The name may be another job's later,
	// JobID, the ID of the job's document, is no other's.
	Job   string `json:",omitempty"`
	JobID int64  `json:",omitempty"`
	// Maker is the user whose token it was, or whose job's. Documents of servers before have
	// neither Maker nor JobID.
	Maker string `json:",omitempty"`
}

// origin is that of what the caller makes.
func (who Caller) origin() origin { return origin{who.Job, who.JobID, who.User} }

// isOf says whether the job that asks made the thing that has this document.
func (o *origin) isOf(who Caller, d *store.Doc) bool {
	switch {
	case o.Job == "" || o.Job != who.Job || who.JobID == 0:
		return false
	case o.JobID != 0:
		return o.JobID == who.JobID
	}
	return d != nil && d.ID > who.JobID
}

// origin is who made what a file belongs to, and what that is: its document, nil where it is not
// written yet, and its name.
func (f file) origin() (o origin, d *store.Doc, what string) {
	switch {
	case f.run != nil:
		return f.run.origin, f.run.doc, "Run " + f.run.ID
	case f.model != nil:
		return f.model.origin, f.model.doc, "Model " + f.model.ID
	}
	return origin{}, nil, ""
}

// importer is who brought over what a file belongs to; "" is for what began here.
func (f file) importer() string {
	switch {
	case f.run != nil:
		return f.run.Imported
	case f.model != nil:
		return f.model.Imported
	}
	return ""
}

// owner is whose job made what a file belongs to; "" is not known.
func (w *workspace) owner(tx *store.Tx, f file) (string, error) {
	if f.run != nil && f.run.isJob() {
		return w.ownerOfJob(tx, f.run)
	}
	o, d, _ := f.origin()
	if o.Maker != "" || d == nil || o.Job == "" {
		return o.Maker, nil
	}
	// IDs are given out in order. What was made before a job, or the run of one, is of an earlier
	// job of the name.
	job, err := w.jobNamed(tx, o.Job)
	if err != nil {
		return "", err
	}
	if job != nil && job.ID < d.ID {
		return job.CreatedBy, nil
	}
	if r := w.run(o.Job); r != nil && r.isJob() && r.doc != nil && r.doc.ID < d.ID {
		return r.jobUser(), nil
	}
	return "", nil
}

// isJob says whether a run is a job, or was one that is deleted.
func (r *run) isJob() bool { return r.Job == r.ID }

// jobUser is whose job a run was when it was written. The server wrote User too: no client makes
// such a run.
func (r *run) jobUser() string { return cmp.Or(r.Maker, r.User) }

// ownerOfJob is whose the run of a job is. A job that has the name of a deleted one has its run.
func (w *workspace) ownerOfJob(tx *store.Tx, r *run) (string, error) {
	job, err := w.jobNamed(tx, r.ID)
	if err != nil || job == nil {
		return r.jobUser(), err
	}
	return job.CreatedBy, nil
}

// jobNamed is the job that has a name now, nil for none.
func (w *workspace) jobNamed(tx *store.Tx, name string) (*store.Doc, error) {
	d, err := tx.Get(w.Key, kindJobs, name, "")
	if berth.CodeOf(err) == berth.NotFound || err == nil && d.Name != name {
		return nil, nil
	}
	return d, err
}

// notOfJob refuses to import something with the name of a job. Names of jobs are compared without
// case.
func (c *change) notOfJob(id string) error {
	_, err := c.tx.Get(c.w.Key, kindJobs, id, "")
	if berth.CodeOf(err) == berth.NotFound {
		return nil
	}
	return cmp.Or(err, wasHere(id))
}

// notOfRun refuses to import something with the ID of a run: that of a deleted job may have any.
func (c *change) notOfRun(id string) error {
	r, err := find[run](c, kindRuns, id, "")
	if err == nil && r != nil {
		err = wasHere(id)
	}
	return err
}
