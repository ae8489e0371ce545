package control

import (
	"fmt"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/parallel"
)

// settle takes back the mini-batches of tasks that have ended, and reads how far the job is.
func (cy *cycle) settle(j *jobWork) error {
	if j.puller == nil || len(j.tasks) == 0 {
		return nil
	}
	how, err := j.puller.Pull(j.props)
	if err != nil {
		j.kindErr = err
		return nil //nolint:nilerr // the job ends for it
	}
	if j.work, err = cy.tx.Work(j.doc.Workspace, j.doc.Name); err != nil {
		return err
	}
	if berth.JobStatus(j.doc.Status).Terminal() {
		return nil
	}
	for _, t := range j.tasks {
		if t.State != berth.TaskDone {
			continue
		}
		if j.work, err = parallel.Settle(cy.tx, t, how); err != nil {
			return err
		}
	}
	return nil
}

// pull makes a launch that of a task which takes mini-batches, if the job has some. Each task has a
// log of its own.
func (cy *cycle) pull(l *berth.Launch, j *jobWork) error {
	if j.puller == nil {
		return nil
	}
	how, err := j.puller.Pull(j.props)
	if err != nil {
		return err
	}
	if l.Attempt > 1 {
		l.Log = fmt.Sprintf("user_logs/std_log_process_%d.txt", l.Attempt-1)
	}
	return parallel.Launch(l, how, cy.c.o.Locator.BaseURL)
}

// completed does what follows when a job has completed.
func (cy *cycle) completed(j *jobWork) error {
	if err := cy.registerOutputs(j); err != nil || j.puller == nil {
		return err
	}
	return cy.dropRows(j)
}

// dropRows deletes the file of results of a job that has completed: they are in its output.
func (cy *cycle) dropRows(j *jobWork) error {
	_, storage, err := cy.workspace(j.doc.Workspace)
	if err != nil {
		return err
	}
	name := locate.ArtifactPath(j.doc.Name) + "/" + parallel.RowsName
	b, err := cy.tx.Blob(storage.Artifacts, name)
	if berth.CodeOf(err) == berth.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if b.Live == "" {
		return nil // somebody wrote another file there
	}
	cy.plan.liveFiles = append(cy.plan.liveFiles, b.Live)
	return cy.tx.DeleteBlob(storage.Artifacts, name)
}
