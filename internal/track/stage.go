package track

import (
	"slices"
	"strings"
	"unicode"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Deleting or restoring an experiment deletes or restores its runs, of which there may be very
// many. Only the experiment is written: a run has the stage that it was given last, be it by itself
// or by its experiment.

// follow gives a run the stage of its experiment, if that was deleted or restored since the run
// was. One that is being removed for good stays deleted.
func (r *run) follow(e *experiment) {
	if e != nil && r.Staged < e.Staged && !r.Leaving {
		r.take(e)
	}
}

// following is a run that is in the index after follow: it does not change itself.
func (r *run) following(e *experiment) *run {
	if e == nil || r.Staged >= e.Staged {
		return r
	}
	c := *r
	c.follow(e)
	return &c
}

func (r *run) take(e *experiment) {
	r.Stage, r.Staged, r.Deleted = e.Stage, e.Staged, 0
	if e.Stage == deleted {
		r.Deleted = e.Updated
	}
}

// settle puts a run that is not written yet into an experiment.
func (r *run) settle(e *experiment) {
	r.Experiment, r.URI = e.ID, below(e.Location, r.ID, "artifacts")
	r.take(e)
}

// stage deletes or restores a run by itself.
func (c *change) stage(r *run, to string) error {
	e, err := c.findExperiment(r.Experiment)
	if err != nil {
		return err
	}
	c.state = true
	r.Stage, r.Staged, r.Deleted = to, e.Staged, 0
	if to == deleted {
		r.Deleted = c.now()
	}
	return nil
}

// stageExperiment deletes or restores an experiment and with it all of its runs.
func (c *change) stageExperiment(e *experiment, to string) {
	c.state = true
	e.Stage, e.Updated = to, c.now()
	e.Staged++
}

// CheckExperiment refuses an experiment that was deleted to a new job, whose run nobody would see.
func CheckExperiment(tx *store.Tx, of, name string) error {
	name = experimentName(name)
	c := &change{w: &workspace{Workspace: Workspace{Key: of}}, tx: tx}
	e, err := findNamed[experiment](c, kindExperiments, name)
	if err != nil || e == nil || e.Stage != deleted {
		return err
	}
	return berth.Errorf(berth.Invalid, "properties.experimentName: experiment %s was deleted; `berth runs experiments restore %s` brings it and its runs back, "+
		"or name another experiment", name, e.shellName())
}

// shellName is the name of an experiment, or its ID where a shell would take the name apart or a
// command take it for a flag.
func (e *experiment) shellName() string {
	if strings.HasPrefix(e.Name, "-") {
		return e.ID
	}
	for _, r := range e.Name {
		if !strings.ContainsRune("_-.", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return e.ID
		}
	}
	return e.Name
}

// checkPage is how many runs and models are looked at in one transaction before they are deleted
// together.
const checkPage = 1000

func deleteExperiment(c *call) (any, error) {
	id := c.need("experiment_id")
	known := map[string]bool{}
	for page := range slices.Chunk(c.ofJobs(id, known), checkPage) {
		err := c.s.DB.View(c.ctx, func(tx *store.Tx) error {
			for _, f := range page {
				if err := c.mayChangeIn(tx, f, "delete it"); err != nil {
					return err
				}
				known[f.id()] = true
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return c.changeExperiment(id, func(x *change, e *experiment) error {
		if e.Stage != active {
			return noExperiment(id)
		}
		for _, f := range c.ofJobs(id, known) { // that came meanwhile
			if err := c.mayDelete(x, f); err != nil {
				return err
			}
		}
		x.stageExperiment(e, deleted)
		return nil
	})
}

// ofJobs is the runs and logged models of an experiment that are a job's, save deleted and known
// ones.
func (c *call) ofJobs(experiment string, known map[string]bool) (of []file) {
	c.view(func(x *index) {
		for n := range x.nodes(experiment) {
			if n.r.Job != "" && n.r.Stage == active && !known[n.r.ID] {
				of = append(of, file{run: n.r})
			}
		}
		for _, m := range x.loggedOf[experiment] {
			if m.Job != "" && !m.Deleted && !known[m.ID] {
				of = append(of, file{model: m})
			}
		}
	})
	return of
}

// id is that of the run or logged model that a file belongs to, "" for none.
func (f file) id() string {
	switch {
	case f.run != nil:
		return f.run.ID
	case f.model != nil:
		return f.model.ID
	}
	return ""
}

func restoreExperiment(c *call) (any, error) {
	id := c.need("experiment_id")
	return c.changeExperiment(id, func(x *change, e *experiment) error {
		if e.Stage != deleted || e.Leaving {
			return noExperiment(id)
		}
		x.stageExperiment(e, active)
		return nil
	})
}
