package kind

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/berthml/berth"
)

// A Composite is a kind whose jobs have no tasks of their own: they run other jobs, their children.
// What the rest of the server has to know of such a kind it asks here, so that a new one is a file
// and a line in the table of kinds. Its Step is StepChildren, as a rule.
type Composite interface {
	Kind
	// Word is what plans call such a job: pipeline.
	Word() string
	// RunType is what the run history calls it.
	RunType() string
	// Log is the whole text of its log. A later state's begins with an earlier one's.
	Log(status berth.JobStatus, st berth.JobState) string
	// Child is the job that runs one of its children.
	Child(p Parent, child string) (ChildJob, error)
	// Unfold is all commands that it will run, its children's children too, before any of them has:
	// it is for checks, prices and plans. It refuses what could not run, and names the child.
	Unfold(p Parent) ([]Unfolded, error)
}

// A Completer is a Composite that completes the documents of its jobs before they are kept.
type Completer interface {
	// Defaults writes what a job does not say. It needs nothing but the document.
	Defaults(props map[string]any)
	// Complete writes what the component says that a job names as a whole.
	Complete(props map[string]any, component func(id string) (*Component, error)) error
}

// A Stepper is a kind whose jobs can be steps of a pipeline, beside command and pipeline.
type Stepper interface {
	// StepProps are the properties of such a job that a step, or its component, may give.
	StepProps() []string
}

// A Parent is a job whose children are made.
type Parent struct {
	Name  string
	Props json.RawMessage
	// Workspace is where its references are to be found.
	Workspace berth.Workspace
	// Component finds the document of a component by its id.
	Component func(id string) (name string, body json.RawMessage, err error)
	// Depth is how many jobs with children it is inside of.
	Depth int
	// Output is an output of a child that has ended: its type and where it is. Unfold does not ask.
	Output func(child, name string) (berth.JobOutput, bool)
}

func (p Parent) component(id string) (*Component, error) {
	name, body, err := p.Component(id)
	if err != nil {
		return nil, err
	}
	return ReadComponent(name, body)
}

// ChildJob is the job of a child as it is created.
type ChildJob struct {
	Body       json.RawMessage // its document
	Type       string          // its jobType
	Experiment string
}

// Children are those of a job, and in which order they run.
type Children struct {
	Names []string
	// Needs are the children that have to complete before one begins. Nil: none has to.
	Needs func(name string) []string
	// AtOnce is how many run at the same time; 0 is no limit.
	AtOnce int
	// Continue goes on after one has failed: only what needs it does not run. Else no other begins,
	// and those under way are asked to end.
	Continue bool
}

// StepChildren is the Step of a job with children. A child begins when all it needs have completed.
// The end is told in the log first: Finalizing stands between.
func StepChildren(j Job, c Children) Step {
	s := Step{Status: j.Status, State: j.State}
	if j.Status.Terminal() {
		return s
	}
	st := &s.State
	st.Steps = stepsOf(c.Names, j.State.Steps)
	follow(st.Steps, j.Children)
	completed := map[string]bool{}
	active := 0
	for _, p := range st.Steps {
		completed[p.Node] = p.Status == berth.Completed
		if p.Job != "" && !p.Status.Terminal() {
			active++
		}
	}
	failed := firstFailed(st.Steps)
	stop := st.Cancel || failed != nil && !c.Continue
	ready := func(name string) bool {
		return c.Needs == nil || !slices.ContainsFunc(c.Needs(name), func(n string) bool { return !completed[n] })
	}
	for _, p := range st.Steps {
		switch {
		case p.Status.Terminal():
		case p.Job == "":
			if !stop && (c.AtOnce == 0 || active+len(s.Begin) < c.AtOnce) && ready(p.Node) {
				s.Begin = append(s.Begin, p.Node)
			}
		case stop && !j.Children[p.Node].Cancel:
			s.Cancel = append(s.Cancel, p.Node)
		}
	}
	st.Times = parentTimes(st.Times, st.Steps)
	switch {
	case active > 0 || len(s.Begin) > 0:
		st.Times.Ended = time.Time{}
		s.Status, st.Reason = berth.Running, progress(st.Steps)
		switch {
		case st.Cancel:
			s.Status = berth.CancelRequested
		case stop:
			st.Reason = fmt.Sprintf("step %s ended as %s; %s", failed.Node, failed.Status, waitsFor(st.Steps))
		}
	case j.Status != berth.Finalizing && len(st.Steps) > 0:
		_, st.Reason = verdict(st, failed)
		s.Status = berth.Finalizing
	default:
		s.Status, st.Reason = verdict(st, failed)
		s.stopped()
	}
	return s
}
