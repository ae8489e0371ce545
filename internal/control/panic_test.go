package control_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/kind"
)

// faulty is a kind whose steps panic, from the beginning or once a task runs.
type faulty struct {
	kind.Kind
	late bool
}

func (f faulty) Step(j kind.Job, tasks []*berth.Task) kind.Step {
	if !f.late || len(tasks) > 0 && tasks[0].State == berth.TaskRunning {
		panic("a fault of its kind")
	}
	return f.Kind.Step(j, tasks)
}

// TestOneJobPanics: a job whose step panics ends with its reason, and what ran of it too; the
// others go on.
func TestOneJobPanics(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := build(t, 2)
			synctest.Wait()
			p.stop()
			p.options.KindOf = func(jobType string) (kind.Kind, error) {
				if jobType != "Faulty" {
					return kind.Of(jobType)
				}
				k, err := kind.Of("Command")
				return faulty{k, late}, err
			}
			p.run()
			p.submit("before", "sleep 60")
			p.until("before", berth.Running)
			p.plantDoc("jobs", "odd", "", `{"properties":{"jobType":"Faulty","command":"forever"}}`, `{"compute":"local"}`)
			if st := p.until("odd", berth.Failed); !strings.Contains(st.Reason, "a fault of its kind") {
				t.Errorf("reason %q", st.Reason)
			}
			p.submit("after", "true")
			p.until("after", berth.Completed)
			p.until("before", berth.Completed)
			p.settle("nothing runs", func() bool { return p.driver.Running() == 0 })
			p.stop() // and again after a restart
			p.run()
			p.submit("again", "true")
			p.until("again", berth.Completed)
		})
	}
}

// TestOnePipelinePanics: a pipeline whose step panics ends with its reason, and its steps are asked
// to end.
func TestOnePipelinePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 2)
		synctest.Wait()
		p.stop()
		p.options.KindOf = func(jobType string) (kind.Kind, error) {
			k, err := kind.Of(jobType)
			if jobType == "Pipeline" {
				return faultyPipeline{k.(kind.Composite)}, err
			}
			return k, err
		}
		p.run()
		if why := p.offer("pipe", p.chain()); why != "" {
			t.Fatal(why)
		}
		if st := p.until("pipe", berth.Failed); !strings.Contains(st.Reason, "a fault of its kind") {
			t.Errorf("reason %q", st.Reason)
		}
		if st := p.until("pipe_a", berth.Canceled); !strings.Contains(st.Reason, "an internal error of this server ended its pipeline") {
			t.Errorf("its step says %q", st.Reason)
		}
		p.submit("after", "true")
		p.until("after", berth.Completed)
	})
}

// faultyPipeline is pipelines that panic once a step runs.
type faultyPipeline struct{ kind.Composite }

func (f faultyPipeline) Step(j kind.Job, tasks []*berth.Task) kind.Step {
	for _, c := range j.Children {
		if c.Status == berth.Running {
			panic("a fault of its kind")
		}
	}
	return f.Composite.Step(j, tasks)
}

// TestOneLaunchPanics: a job that waited, and whose launch panics, ends with its reason; the others
// go on.
func TestOneLaunchPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		synctest.Wait()
		p.stop()
		p.options.Curated = func(string) (berth.LaunchEnv, bool) { panic("a fault of its launch") }
		p.run()
		p.submit("first", "forever")
		p.until("first", berth.Running)
		p.plantDoc("jobs", "odd", "", `{"properties":{"jobType":"Command","command":"true","environmentId":"azureml:odd:1"}}`, `{"compute":"local"}`)
		p.until("odd", berth.Queued)
		p.submit("last", "true")
		p.driver.Finish(p.task("first"), berth.Exit{})
		if st := p.until("odd", berth.Failed); !strings.Contains(st.Reason, "a fault of its launch") {
			t.Errorf("reason %q", st.Reason)
		}
		p.until("last", berth.Completed)
	})
}
