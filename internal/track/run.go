package track

import (
	"cmp"
	"fmt"
	"math/rand/v2"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/track/points"
)

const (
	tagRunName = "mlflow.runName"
	tagJob     = "berth.job" // ours: the job that made a run beside its own
	tagParent  = "mlflow.parentRunId"
)

// The states of a run.
const (
	running  = "RUNNING"
	finished = "FINISHED"
)

var runStates = map[string]bool{running: true, "SCHEDULED": true, finished: true, "FAILED": true, "KILLED": true}

func noRun(id string) error { return missing("Run with id=%s not found", id) }

// findRun reads a run in a change.
func (c *change) findRun(id string) (*run, error) {
	r, err := find[run](c, kindRuns, id, "")
	if err == nil && (r == nil || r.ID != id) { // names of documents are compared without case
		if r, err = c.adopt(id); err == nil && r == nil {
			err = noRun(id)
		}
	}
	if err == nil {
		r.follow(c.w.experiment(r.Experiment))
	}
	return r, err
}

func (r *run) mustBeActive() error {
	if r.Stage != active {
		return invalid("The run %s must be in the 'active' state. Current state is %s.", r.ID, r.Stage)
	}
	return nil
}

// runOf is a run as it is now, if the caller may see it.
func (c *call) runOf(id string) (*run, error) {
	r := c.run(id)
	if r == nil || r.doc == nil {
		var err error
		if r, err = c.jobRunOf(c.ctx, id); err != nil {
			return nil, err
		}
	}
	if r == nil {
		return nil, noRun(id)
	}
	return r, c.mayRun(r)
}

// changeRun changes a run.
func (c *call) changeRun(id string, fn func(*change, *run) error) error {
	if err := c.done(); err != nil {
		return err
	}
	return c.update(c.ctx, func(x *change) error {
		r, err := x.findRun(id)
		if err != nil {
			return err
		}
		if err := c.mayRun(r); err != nil {
			return err
		}
		if err := fn(x, r); err != nil {
			return err
		}
		return x.save(r)
	})
}

// newID is 32 hexadecimal digits.
func newID() string {
	id := berth.NewGUID()
	b := make([]byte, 0, 32)
	for i := range len(id) {
		if id[i] != '-' {
			b = append(b, id[i])
		}
	}
	return string(b)
}

var (
	adjectives = []string{
		"able", "bold", "bright", "calm", "capable", "clean", "fun", "gentle", "gifted", "kindly", "learned", "likeable", "nimble", "orderly",
		"peaceful", "placid", "polite", "rare", "salty", "silent", "skillful", "sincere", "smiling", "thoughtful", "unique", "upbeat", "useful", "wise",
	}
	animals = []string{
		"auk", "bear", "boar", "colt", "crab", "crow", "deer", "dove", "duck", "eel", "elk", "finch", "fox", "frog", "goat", "gull", "hare",
		"hawk", "jay", "kite", "lark", "lynx", "mole", "moth", "newt", "owl", "perch", "ram", "seal", "shrew", "snail", "stork", "swan", "tern",
		"toad", "trout", "wren",
	}
)

// randomName is what a thing is called that nobody named.
func randomName() string {
	return fmt.Sprintf("%s-%s-%d", adjectives[rand.IntN(len(adjectives))], animals[rand.IntN(len(animals))], rand.IntN(1000))
}

func createRun(c *call) (any, error) {
	experiment, name := c.text("experiment_id"), c.text("run_name")
	r := &run{ID: newID(), User: c.text("user_id"), Status: running, Stage: active, Start: c.int("start_time", 0), origin: c.who.origin()}
	tags := c.pairs("tags")
	if experiment == "" {
		c.fail(required("experiment_id"))
	}
	if err := c.done(); err != nil {
		return nil, err
	}
	if err := cmp.Or(checkLength("run_name", maxTagValue, name), checkLength("user_id", maxUser, r.User)); err != nil {
		return nil, err
	}
	for i := range tags {
		if err := checkRunTag(&tags[i], fmt.Sprintf("tags[%d].", i)); err != nil {
			return nil, err
		}
		setTag(&r.Tags, tags[i])
	}
	if tagged := r.Tags[tagRunName]; tagged != "" && name != "" && tagged != name {
		return nil, invalid("Both 'run_name' argument and 'mlflow.runName' tag are specified, but with different values "+
			"(run_name='%s', mlflow.runName='%s').", name, tagged)
	} else if name == "" {
		name = tagged
	}
	if name == "" {
		name = randomName()
	}
	r.Name = name
	setTag(&r.Tags, pair{tagRunName, name})
	if c.who.Job != "" {
		setTag(&r.Tags, pair{tagJob, c.who.Job})
	}
	err := c.update(c.ctx, func(x *change) error {
		e, err := x.findExperiment(experiment)
		if err != nil {
			return err
		}
		if err := c.mayExperiment(experiment); err != nil {
			return err
		}
		if e.Stage != active {
			return invalid("The experiment %s must be in the 'active' state. Current state is %s.", e.ID, e.Stage)
		}
		r.settle(e)
		r.doc = nil
		return x.save(r)
	})
	if err != nil {
		return nil, err
	}
	v, err := c.runView(r)
	return map[string]any{"run": v}, err
}

// runInfo is the part of a run that is about itself.
type runInfo struct {
	UUID       string `json:"run_uuid"`
	Name       string `json:"run_name"`
	Experiment string `json:"experiment_id"`
	User       string `json:"user_id,omitempty"`
	Status     string `json:"status"`
	Start      int64  `json:"start_time"`
	End        *int64 `json:"end_time,omitempty"`
	URI        string `json:"artifact_uri"`
	Stage      string `json:"lifecycle_stage"`
	ID         string `json:"run_id"`
}

type runData struct { // its metrics are added
	Params []pair `json:"params,omitempty"`
	Tags   []pair `json:"tags,omitempty"`

	AllMetrics int `json:"berth_metric_count,omitempty"` // where not all are there
}

type runInputs struct {
	Datasets []datasetInput `json:"dataset_inputs,omitempty"`
	Models   []modelInput   `json:"model_inputs,omitempty"`
}

type modelInput struct {
	ID string `json:"model_id"`
}

type runOutputs struct {
	Models []modelOutput `json:"model_outputs"`
}

type runView struct {
	Info    runInfo     `json:"info"`
	Inputs  runInputs   `json:"inputs"`
	Outputs *runOutputs `json:"outputs,omitempty"`
	Data    runData     `json:"data"` // the last, see [listWriter.addWith]
}

func (c *call) runInfo(r *run) runInfo {
	return runInfo{
		UUID: r.ID, Name: r.Name, Experiment: r.Experiment, User: r.User, Status: r.Status, Start: r.Start, End: r.End,
		URI: c.shownBelow(r.URI, r.Experiment, r.ID), Stage: r.Stage, ID: r.ID,
	}
}

func (c *call) runAnswer(r *run) (any, error) {
	return c.sendOne("run", func(out *listWriter) error { return c.addRun(out, r) })
}

// addRun writes a run as answers have it.
func (c *call) addRun(out *listWriter, r *run) error {
	done, err := c.turnFor(r.size + r.Apart + c.seriesSize(r.ID))
	if err != nil {
		return err
	}
	defer done()
	v, err := c.runView(r)
	if err != nil {
		return err
	}
	return out.addWith(v, func(add func(metricView) error) error {
		for _, s := range c.points.Latest(r.ID) {
			if err := add(viewOf(s.Key, s.Latest)); err != nil {
				return err
			}
		}
		return nil
	})
}

const summarySize = 48 // of a points.Summary in memory, in bytes

// seriesSize is how many bytes the summaries of a run's or model's series take up in memory.
func (c *call) seriesSize(owner string) (n int) {
	c.points.View(func(v points.View) {
		v.Each(owner, func(string, points.Point) { n += summarySize })
	})
	return n
}

// runView is a run as answers have it, without its metrics.
func (c *call) runView(r *run) (runView, error) {
	v := runView{Info: c.runInfo(r), Data: runData{Params: pairsOf(r.Params), Tags: pairsOf(r.Tags)}}
	var err error
	if v.Inputs.Datasets, err = c.datasets(r); err != nil {
		return v, err
	}
	for _, id := range r.ModelInputs {
		v.Inputs.Models = append(v.Inputs.Models, modelInput{id})
	}
	if len(r.ModelOutputs) > 0 {
		v.Outputs = &runOutputs{r.ModelOutputs}
	}
	return v, nil
}

func getRun(c *call) (any, error) {
	id := c.runID()
	if err := c.done(); err != nil {
		return nil, err
	}
	r, err := c.runOf(id)
	if err != nil {
		return nil, err
	}
	return c.runAnswer(r)
}

func (c *call) checkRunStatus(status string) {
	if !runStates[status] {
		c.fail(invalid("Invalid run status '%s'. Valid values are RUNNING, SCHEDULED, FINISHED, FAILED, KILLED.", status))
	}
}

func updateRun(c *call) (any, error) {
	id, status, name := c.runID(), c.text("status"), c.text("run_name")
	if status != "" {
		c.checkRunStatus(status)
	}
	if err := checkLength("run_name", maxTagValue, name); err != nil {
		c.fail(err)
	}
	end := c.int("end_time", 0)
	c.frees = name == ""
	var after *run
	err := c.changeRun(id, func(x *change, r *run) error {
		if err := r.mustBeActive(); err != nil {
			return err
		}
		x.state = name == "" || name == r.Name
		if status != "" {
			r.Status = status
		}
		if c.has("end_time") {
			r.End = &end
		}
		if name != "" {
			r.Name = name
			setTag(&r.Tags, pair{tagRunName, name})
		}
		after = r
		return nil
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"run_info": c.runInfo(after)}, nil
}

func deleteRun(c *call) (any, error) {
	return empty, c.changeRun(c.runID(), func(x *change, r *run) error {
		if err := c.mayDelete(x, file{run: r}); err != nil {
			return err
		}
		return x.stage(r, deleted)
	})
}

func restoreRun(c *call) (any, error) {
	return empty, c.changeRun(c.runID(), func(x *change, r *run) error {
		if r.Leaving {
			return noRun(r.ID)
		}
		return x.stage(r, active)
	})
}

// setTag sets a tag of a run, whose name is one.
func (r *run) setTag(t pair) {
	setTag(&r.Tags, t)
	if t.Key == tagRunName {
		r.Name = t.Value
	}
}

func setRunTag(c *call) (any, error) {
	id, t := c.runID(), pair{c.need("key"), c.text("value")}
	if err := checkRunTag(&t, ""); err != nil {
		c.fail(err)
	}
	return empty, c.changeRun(id, func(x *change, r *run) error {
		if err := r.mustBeActive(); err != nil {
			return err
		}
		r.setTag(t)
		return nil
	})
}

func deleteRunTag(c *call) (any, error) {
	id, key := c.runID(), c.need("key")
	return empty, c.changeRun(id, func(x *change, r *run) error {
		if err := r.mustBeActive(); err != nil {
			return err
		}
		if _, ok := r.Tags[key]; !ok {
			return missing("No tag with name: %s in run with id %s", key, id)
		}
		delete(r.Tags, key)
		return nil
	})
}

// setParam logs a parameter, which cannot be logged with another value later.
func (r *run) setParam(t pair) error {
	if old, ok := r.Params[t.Key]; ok && old != t.Value {
		return invalid("Changing param values is not allowed. Param with key='%s' was already logged with value='%s' for run ID='%s'. "+
			"Attempted logging new value '%s'.", t.Key, old, r.ID, t.Value)
	}
	setTag(&r.Params, t)
	return nil
}

func logParam(c *call) (any, error) {
	id, t := c.runID(), pair{c.need("key"), c.text("value")}
	if err := checkParam(&t, ""); err != nil {
		c.fail(err)
	}
	return empty, c.changeRun(id, func(x *change, r *run) error {
		if err := r.mustBeActive(); err != nil {
			return err
		}
		return r.setParam(t)
	})
}
