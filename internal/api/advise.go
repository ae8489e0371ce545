package api

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/advise"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/sizes"
	"github.com/berthml/berth/internal/store"
)

// measured is how many late jobs are looked at for what they used.
const measured = 20

// advise answers where to run something and on what (ours): GET
// advise?case=…&dataGB=…&modelGB=…&ramGB=…&gpu=true&job=….
func (s *costService) advise(c *call) error {
	n := berth.AdviceNeeds{Case: strings.ToLower(c.q.Get("case"))}
	for key, into := range map[string]*float64{"dataGB": &n.DataGB, "modelGB": &n.ModelGB, "ramGB": &n.RAMGB} {
		if v := c.q.Get(key); v != "" {
			f, err := strconv.ParseFloat(v, 64)
			if err != nil {
				return berth.Errorf(berth.Invalid, "%s=%s is not a number", key, v)
			}
			*into = f
		}
	}
	n.GPU, _ = strconv.ParseBool(c.q.Get("gpu"))
	if err := advise.Check(n); err != nil {
		return err
	}
	var out berth.Advice
	err := s.db.View(c.ctx(), func(tx *store.Tx) error {
		catalogue, err := sizes.LoadTx(tx)
		if err != nil {
			return err
		}
		m := advise.Catalogue{Sizes: catalogue.In(s.location), Location: s.location, NoGPU: s.machine.GPUs == 0}
		x := c.snapshot(tx)
		x.sizes = &catalogue
		job := c.q.Get("job")
		if job == "" || n.Case != "" {
			out = advise.Targets(n, m)
		} else {
			out = berth.Advice{Needs: n, Targets: []berth.TargetAdvice{}, Measured: []berth.MeasuredAdvice{}}
		}
		docs, err := x.jobsFor(c, job)
		if err != nil {
			return err
		}
		for _, d := range docs {
			r, ok, err := x.used(d)
			if err != nil {
				return err
			}
			if ok {
				out.Measured = append(out.Measured, advise.Measure(r, m))
			}
		}
		if job != "" && len(out.Measured) == 0 {
			return berth.Errorf(berth.Invalid, "job %s did not run on a node of a cluster, so there is no size to compare its use with", job)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, out)
}

// jobsFor is the job that was asked about, or the late ones.
func (x *snapshot) jobsFor(c *call, name string) ([]*store.Doc, error) {
	if name != "" {
		d, err := x.Tx.Get(x.Workspace, "jobs", name, "")
		return []*store.Doc{d}, c.missing(err, x.s.docs.row("jobs"), name, "")
	}
	return x.Tx.List(store.Query{
		Workspace: x.Workspace, Kind: "jobs", Status: []string{string(berth.Completed), string(berth.Failed), string(berth.Running)}, Limit: measured,
	})
}

// used is what a job used of the nodes it ran on; ok is false when it ran on none.
func (x *snapshot) used(d *store.Doc) (r advise.Run, ok bool, err error) {
	tasks, err := x.Tx.TasksOf(x.Workspace, d.Name)
	if err != nil {
		return r, false, err
	}
	meters, err := cost.Tasks(x.Tx, x.Workspace, x.s.Local, tasks, x.Now)
	if err != nil || len(meters) == 0 {
		return r, false, err
	}
	last := meters[len(meters)-1]
	r = advise.Run{Job: d.Name, Compute: last.Compute, Low: last.Low}
	if r.Size, ok, err = x.size(last.Size); err != nil || !ok {
		return r, false, err
	}
	for _, t := range tasks {
		r.PeakGB = max(r.PeakGB, float64(t.Usage.MemoryBytes)/(1<<30))
		r.PeakCPUs = max(r.PeakCPUs, t.Usage.CPUPercent/100)
		r.OOM = r.OOM || t.Exit != nil && t.Exit.OOM
	}
	if st, err := job.State(d); err == nil && st.Exit != nil {
		r.OOM = r.OOM || st.Exit.OOM
	}
	return r, true, nil
}
