package kind

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// pipeline runs steps, each a job of its own, in the order their inputs and outputs demand.
type pipeline struct{}

// Validate checks what can be said without the components: see Unfold for the rest.
func (pipeline) Validate(props json.RawMessage) error {
	g, err := ReadGraph(props)
	if err != nil {
		return err
	}
	return g.validate()
}

// Step begins a step when all it takes its inputs from have completed.
func (pipeline) Step(j Job, _ []*berth.Task) Step {
	if j.Status.Terminal() {
		return Step{Status: j.Status, State: j.State}
	}
	g, err := ReadGraph(j.Props)
	if err != nil {
		s := Step{Status: berth.Failed, State: j.State}
		s.State.Reason = "the pipeline's document cannot be read: " + err.Error()
		return s
	}
	return StepChildren(j, Children{Names: g.Nodes(), Needs: func(node string) []string { return g.Jobs[node].needs() }, Continue: g.Settings.Continue})
}

// Defaults writes where the outputs are kept, when that is another datastore than usual.
func (pipeline) Defaults(props map[string]any) {
	settings, _ := props["settings"].(map[string]any)
	id, _ := settings["default_datastore"].(string)
	name := datastoreOf(id)
	if name == "" {
		return
	}
	outputs, _ := props["outputs"].(map[string]any)
	for k, v := range outputs {
		o, ok := v.(map[string]any)
		if !ok {
			o = map[string]any{}
			outputs[k] = o
		}
		if o["uri"] == nil {
			o["uri"] = "azureml://datastores/" + name + "/paths/azureml/${{name}}/${{output_name}}/"
		}
	}
}

// Complete gives a pipeline that is a component as a whole the steps of that.
func (pipeline) Complete(props map[string]any, component func(id string) (*Component, error)) error {
	id, _ := props["componentId"].(string)
	if id == "" {
		return nil
	}
	whole, err := component(id)
	if err != nil {
		return err
	}
	return whole.Adopt(props, members(props, "inputs"), members(props, "outputs"))
}

// members is an object of a document, empty where there is none.
func members(props map[string]any, name string) map[string]any {
	if m, ok := props[name].(map[string]any); ok && m != nil {
		return m
	}
	return map[string]any{}
}

func (pipeline) Word() string { return "pipeline" }

func (pipeline) RunType() string { return "azureml.PipelineRun" }

func (k pipeline) Log(status berth.JobStatus, st berth.JobState) string {
	return ParentLog(k.Word(), status, st)
}

// Child makes the job of a step from the pipeline, the step and its component.
func (pipeline) Child(p Parent, node string) (ChildJob, error) {
	g, err := ReadGraph(p.Props)
	if err != nil {
		return ChildJob{}, err
	}
	n := g.Jobs[node]
	if n == nil {
		return ChildJob{}, berth.Errorf(berth.Internal, "the pipeline has no step %s", node)
	}
	body := json.RawMessage(`{}`)
	c, err := n.component(func(id string) (*Component, error) {
		name, b, err := p.Component(id)
		if err != nil {
			return nil, err
		}
		body = b
		return ReadComponent(name, b)
	})
	if err != nil {
		return ChildJob{}, err
	}
	props, err := Maker{Graph: g, Name: p.Name, Workspace: p.Workspace, Output: p.Output}.Make(node, c)
	if err != nil {
		return ChildJob{}, err
	}
	doc, err := StepBody(props, node, p.Props, body)
	jobType, _ := props["jobType"].(string)
	return ChildJob{Body: doc, Type: jobType, Experiment: g.ExperimentName}, err
}

// Unfold is [Composite.Unfold].
func (pipeline) Unfold(p Parent) ([]Unfolded, error) {
	u := &unfolder{workspace: p.Workspace, component: p.component, document: p.Component}
	err := u.pipeline(p.Name, "", p.Props, nil, p.Depth)
	return u.out, err
}

// stepsOf is the children of a job, with what is known of them.
func stepsOf(names []string, known []berth.PipelineStep) []berth.PipelineStep {
	steps := make([]berth.PipelineStep, 0, len(names))
	for _, node := range names {
		p := berth.PipelineStep{Node: node}
		if i := slices.IndexFunc(known, func(k berth.PipelineStep) bool { return k.Node == node }); i >= 0 {
			p = known[i]
		}
		steps = append(steps, p)
	}
	return steps
}

// follow takes over what the jobs of the steps say. What begins and ends gets a line in the log,
// each in its turn; a line that was given stays.
func follow(steps []berth.PipelineStep, children map[string]Child) {
	line := 0
	for _, p := range steps {
		line = max(line, p.FirstLine, p.LastLine)
	}
	for i := range steps {
		p := &steps[i]
		if p.Job != "" && !p.Status.Terminal() {
			c, ok := children[p.Node]
			if !ok {
				c = Child{Status: berth.Failed, Reason: "its job " + p.Job + " was deleted"}
			}
			p.Status = c.Status
			if c.Status.Terminal() {
				p.Reason, p.Ended = c.Reason, c.Ended
			}
		}
		if p.Job != "" && p.FirstLine == 0 {
			line++
			p.FirstLine = line
		}
		if p.Status.Terminal() && p.LastLine == 0 {
			line++
			p.LastLine = line
		}
	}
}

// firstFailed is the step that ended otherwise than well first, nil when none did. One that failed
// goes before one that was canceled: the cancelling may have been ours.
func firstFailed(steps []berth.PipelineStep) *berth.PipelineStep {
	var first *berth.PipelineStep
	for i := range steps {
		p := &steps[i]
		if p.Status != berth.Failed && p.Status != berth.Canceled {
			continue
		}
		if first == nil || p.Status != first.Status && p.Status == berth.Failed || p.Status == first.Status && p.LastLine < first.LastLine {
			first = p
		}
	}
	return first
}

func parentTimes(w berth.Waterfall, steps []berth.PipelineStep) berth.Waterfall {
	w.Started, w.Ended = time.Time{}, time.Time{}
	for _, p := range steps {
		if !p.Began.IsZero() && (w.Started.IsZero() || p.Began.Before(w.Started)) {
			w.Started = p.Began
		}
		if p.Ended.After(w.Ended) {
			w.Ended = p.Ended
		}
	}
	w.Placed = w.Started
	return w
}

// progress is the reason of a pipeline that runs.
func progress(steps []berth.PipelineStep) string {
	done := 0
	for _, p := range steps {
		if p.Status.Terminal() {
			done++
		}
	}
	return fmt.Sprintf("%d of %d steps have ended; %s", done, len(steps), waitsFor(steps))
}

// waitsFor names the steps that are under way.
func waitsFor(steps []berth.PipelineStep) string {
	const most = 3
	var now []string
	for _, p := range steps {
		if p.Job != "" && !p.Status.Terminal() {
			now = append(now, fmt.Sprintf("%s (%s)", p.Node, p.Status))
		}
	}
	if len(now) == 0 {
		return "the next begins"
	}
	text := "it waits for " + strings.Join(now[:min(len(now), most)], ", ")
	if len(now) > most {
		text += fmt.Sprintf(" and %d more", len(now)-most)
	}
	return text
}

// verdict is how a pipeline ended of which nothing runs or will.
func verdict(st *berth.JobState, failed *berth.PipelineStep) (berth.JobStatus, string) {
	idle := 0
	for _, p := range st.Steps {
		if p.Status == "" {
			idle++
		}
	}
	switch {
	case failed == nil && idle == 0 && len(st.Steps) == 1:
		return berth.Completed, "its step completed"
	case failed == nil && idle == 0:
		return berth.Completed, fmt.Sprintf("all %d steps completed", len(st.Steps))
	case st.Cancel && (failed == nil || failed.Status == berth.Canceled):
		if idle == len(st.Steps) {
			return berth.Canceled, "canceled before a step began"
		}
		return berth.Canceled, "canceled by the user"
	case failed == nil:
		return berth.Failed, "the steps that are left wait for each other"
	}
	reason := "step " + failed.Node + " failed: " + failed.Reason
	if failed.Status == berth.Canceled {
		reason = "step " + failed.Node + " was canceled: " + failed.Reason
	}
	if idle > 0 {
		reason += fmt.Sprintf("; %d did not run", idle)
	}
	return berth.Failed, reason
}

// ParentLog is a log of a job with children, a line for each thing that happened. It only ever
// grows. Word is what such a job is called.
func ParentLog(word string, status berth.JobStatus, st berth.JobState) string {
	type said struct {
		n    int
		text string
	}
	var lines []said
	add := func(n int, at time.Time, format string, args ...any) {
		if n > 0 {
			text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ") + "\n"
			if !at.IsZero() {
				text = at.UTC().Format("[2006-01-02T15:04:05Z] ") + text
			}
			lines = append(lines, said{n, text})
		}
	}
	for _, p := range st.Steps {
		add(p.FirstLine, p.Began, "%s: begins as job %s", p.Node, p.Job)
		switch {
		case p.Status == berth.Completed && !p.Began.IsZero():
			add(p.LastLine, p.Ended, "%s: Completed after %s", p.Node, p.Ended.Sub(p.Began).Round(time.Millisecond))
		default:
			add(p.LastLine, p.Ended, "%s: %s: %s", p.Node, p.Status, p.Reason)
		}
	}
	slices.SortFunc(lines, func(a, b said) int { return cmp.Compare(a.n, b.n) })
	if status == berth.Finalizing {
		add(len(lines)+1, st.Times.Ended, "the %s ends: %s", word, st.Reason)
	}
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text)
	}
	return b.String()
}

// Nodes are the names of the steps, in order.
func (g *Graph) Nodes() []string { return slices.Sorted(maps.Keys(g.Jobs)) }
