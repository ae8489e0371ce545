package control

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// A job without tasks of its own has a log that the loop writes. The text follows from the job's
// state and only ever grows. It is written after the transaction that decided it, so a crash
// between the two leaves a log that is behind; the job is looked at again at the next start, and
// the log catches up. The job's last status is not written before its log is complete: until
// then it is Finalizing.

// logWrite is the text that a job's log must have once a cycle is durable.
type logWrite struct {
	job   jobKey
	id    string
	path  string
	text  string
	final bool // nothing will be added
}

// logProgress is what this process knows of a job's log.
type logProgress struct {
	bytes   int // written and synced
	final   bool
	failure error
	backoff time.Duration
}

// maxLogBackoff is the longest pause before a log that could not be written is tried again.
const maxLogBackoff = 10 * time.Second

// registerLog makes the log of a job without tasks known, so that it can be read from the first
// byte on.
func (cy *cycle) registerLog(j *jobWork) error {
	_, storage, err := cy.workspace(j.doc.Workspace)
	if err != nil {
		return err
	}
	return cy.tx.PutBlob(&store.Blob{
		Container: storage.Artifacts, Name: locate.ArtifactPath(j.doc.Name) + "/" + stdLog, Live: logPath(storage.ID, parentLogID(j)), ContentType: "text/plain; charset=utf-8",
		ETag: fmt.Sprintf("0x%016X", cy.now.UnixNano()), Created: cy.now, Modified: cy.now,
	})
}

func parentLogID(j *jobWork) string { return berth.NewTaskKey(j.doc.Name, j.doc.ID) }

// queueLog notes what the job's log must say after this transaction.
func (cy *cycle) queueLog(j *jobWork) error {
	status := berth.JobStatus(j.doc.Status)
	k := jobKey{j.doc.Workspace, j.doc.Name}
	if status.Terminal() {
		return nil
	}
	text := j.composite.Log(status, j.state)
	if text == "" {
		return nil
	}
	_, storage, err := cy.workspace(j.doc.Workspace)
	if err != nil {
		return err
	}
	cy.plan.logs = append(cy.plan.logs, logWrite{job: k, id: parentLogID(j), path: logPath(storage.ID, parentLogID(j)), text: text, final: status == berth.Finalizing})
	return nil
}

// waitForLog reports whether a job is over but for its log.
func (cy *cycle) waitForLog(j *jobWork) (bool, error) {
	if j.doc.Status != string(berth.Finalizing) {
		return false, nil
	}
	p := cy.c.logged[jobKey{j.doc.Workspace, j.doc.Name}]
	if p.final {
		return false, nil
	}
	return true, cy.queueLog(j)
}

// writeLogs brings the logs of jobs without tasks up to date. One that cannot be written keeps
// only its own job waiting.
func (c *Control) writeLogs(logs []logWrite, now time.Time) {
	for _, l := range logs {
		p := c.logged[l.job]
		if len(l.text) > p.bytes || l.final && !p.final {
			p.failure = c.writeLog(l)
			if p.failure == nil {
				p.bytes, p.final, p.backoff = len(l.text), l.final, 0
			}
		}
		switch {
		case p.failure != nil:
			p.backoff = min(max(100*time.Millisecond, 2*p.backoff), maxLogBackoff)
			c.o.Log.Warn("log not written yet", "job", l.job.name, "err", p.failure)
			c.revisit[l.job] = now.Add(p.backoff)
		case l.final:
			c.revisit[l.job] = now
		}
		c.logged[l.job] = p
	}
}

func (c *Control) writeLog(l logWrite) error {
	if err := c.logs.make(l.id); err != nil {
		return err
	}
	f, err := c.o.Blobs.OpenLive(l.path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	defer f.Close()
	return catchUp(f, l.text)
}

// catchUp adds to a file the lines of text that it does not have yet. A line that was cut off is
// written again.
func catchUp(f *os.File, text string) error {
	have, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	whole := strings.LastIndexByte(string(have), '\n') + 1
	for range strings.Count(string(have[:whole]), "\n") {
		_, text, _ = strings.Cut(text, "\n")
	}
	if text == "" && whole == len(have) {
		return nil
	}
	if err := f.Truncate(int64(whole)); err != nil {
		return err
	}
	if _, err := f.WriteAt([]byte(text), int64(whole)); err != nil {
		return err
	}
	return f.Sync()
}
