package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/devbox"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/picture"
	"github.com/berthml/berth/internal/plan"
	"github.com/berthml/berth/internal/sched"
	"github.com/berthml/berth/internal/store"
)

// maxHistory is how many events an explanation has at most.
const maxHistory = 200

// explain answers why a job is where it is: the reason now, who is ahead, what it cost, and how it
// came there.
func (s *jobService) explain(c *call, name string) error {
	var e berth.Explanation
	err := s.db.View(c.ctx(), func(tx *store.Tx) error {
		d, err := tx.Get(c.ws.Key(), "jobs", name, "")
		if err != nil {
			return c.missing(err, s.docs.row("jobs"), name, "")
		}
		st, err := job.State(d)
		if err != nil {
			return err
		}
		e = berth.Explanation{
			Name: d.Name, Status: berth.JobStatus(d.Status), Reason: st.Reason, Compute: st.Compute, Attempt: st.Attempt, Times: st.Times,
			Exit: st.Exit, Usage: st.Usage, Steps: st.Steps, Running: []string{}, InTheWay: []berth.PlanJob{},
		}
		x := c.snapshot(tx)
		if trouble := s.health.trouble(); trouble != "" && !e.Status.Terminal() {
			e.Reason = trouble
		} else if e.Status == berth.Queued {
			if err := x.waiting(d, &e); err != nil {
				return err
			}
		}
		all, err := family(tx, d)
		if err != nil {
			return err
		}
		names := make([]string, len(all))
		for i, d := range all {
			names[i] = d.Name
		}
		if e.Cost, err = x.jobCost(names...); err != nil {
			return err
		}
		e.Advice = append(e.Advice, c.lacking(tx, d, st.Reason)...)
		e.Advice = append(e.Advice, advice(e, st, d)...)
		e.History, err = history(tx, d)
		e.Reason = canceledBy(e)
		return err
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, e)
}

// waiting says why a job waits now. What is kept with the job was true when the scheduler last
// looked at it; numbers may have changed since.
func (x *snapshot) waiting(d *store.Doc, e *berth.Explanation) error {
	compute, err := x.Tx.Get(x.Workspace, "computes", e.Compute, "")
	if berth.CodeOf(err) == berth.NotFound {
		return nil // it is on its way out, and so is the job
	}
	if err != nil {
		return err
	}
	p, err := x.pool(compute)
	if err != nil {
		return err
	}
	p.Short = p.State.Short
	if p.Down() != nil && p.Type() == picture.Local {
		e.Advice = append(e.Advice, "berth explain compute/"+p.Name)
	}
	for _, n := range p.Nodes {
		if n.State == berth.NodePreparing {
			e.Starting++
		}
	}
	for _, r := range p.Running {
		e.Running = append(e.Running, r.Name)
	}
	tasks, err := x.Tasks()
	if err != nil {
		return err
	}
	for _, t := range tasks {
		if t.Job != d.Name || t.Workspace != d.Workspace || t.State != berth.TaskWaiting || t.Rank != 0 {
			continue
		}
		why, ahead, in, waits := plan.Why(p, t.Gang(), x.Now)
		e.Ahead, e.InTheWay = ahead, in
		if waits {
			e.Reason = why
			if e.Attempt > 1 {
				e.Reason = fmt.Sprintf("attempt %d: %s", e.Attempt, why)
			}
		}
		if p.Type() == picture.Cluster && t.Count > p.Max {
			e.Advice = append(e.Advice, raise(p, t.Count))
		}
	}
	return nil
}

// outOfMemory is advice for a job that ran out of memory: a limit of its own can be raised.
func outOfMemory(e berth.Explanation, d *store.Doc) []string {
	var v struct{ Properties json.RawMessage }
	if json.Unmarshal(d.Body, &v) == nil {
		if n, err := berth.NeedsOf(v.Properties); err == nil && n.Memory > 0 {
			return []string{"it ran out of the memory that it asked for: raise --memory (properties." + berth.MemoryProperty + "), or use a smaller batch", "berth logs " + e.Name}
		}
	}
	list := []string{"it ran out of memory: use a smaller batch or a larger target"}
	if !berth.IsLocal(e.Compute) {
		list = append(list, "berth advise --job "+e.Name)
	}
	return append(list, "berth logs "+e.Name)
}

// raise is the command that lets a cluster have more nodes.
func raise(p plan.Pool, most int) string {
	return fmt.Sprintf("berth compute update -n %s --max-instances %d", p.Name, most)
}

// advice is what the user can do now, as commands.
func advice(e berth.Explanation, st berth.JobState, d *store.Doc) []string {
	s, name := e.Status, e.Name
	failed := s == berth.Failed && st.Exit != nil
	switch {
	case failed && st.Exit.OOM:
		return outOfMemory(e, d)
	case failed && st.Exit.Cause == "timeout":
		return []string{"raise limits.timeout, or make the job shorter", "berth logs " + name}
	case s == berth.Failed && len(st.Steps) > 0 || s == berth.Running && len(st.Steps) > 0:
		return append(stepAdvice(s, st), "berth logs "+name)
	case failed && st.Exit.Cause == "lost":
		return []string{"how its command ended is not known: look at what it left behind before you submit it again", "berth logs " + name}
	case s == berth.Failed && st.Times.Started.IsZero():
		return []string{"fix what the reason says and submit it again; its command never ran"}
	case s == berth.Failed:
		return []string{"berth logs " + name + " --tail 50"}
	case s == berth.Canceled && st.StopCause == "budget":
		return []string{"berth budget list", "berth job download -n " + name + " --all"}
	case s == berth.Queued && !berth.IsLocal(e.Compute):
		return []string{"berth explain compute/" + e.Compute, "berth job cancel -n " + name}
	case s == berth.Queued:
		return []string{"berth ps", "berth job cancel -n " + name}
	case s == berth.Completed:
		return []string{"berth job download -n " + name + " --all"}
	case s.Terminal():
		return []string{"berth logs " + name}
	}
	return []string{"berth logs -f " + name}
}

// explainCompute answers why a compute has the size it has.
func (s *computeService) explainCompute(c *call, name string) error {
	var e berth.ComputeExplanation
	err := s.db.View(c.ctx(), func(tx *store.Tx) error {
		d, err := tx.Get(c.ws.Key(), "computes", name, "")
		if err != nil {
			return c.missing(err, s.docs.row("computes"), name, "")
		}
		x := c.snapshot(tx)
		p, err := x.pool(d)
		if err != nil {
			return err
		}
		st := p.State
		e = berth.ComputeExplanation{
			Name: d.Name, Type: p.Type(), State: orElse(st.State, "Succeeded"), Reason: st.Reason, Short: st.Short, Target: st.Target,
			Min: p.Min, Max: p.Max, Slots: p.Slots, Idle: p.Idle.Seconds(), Waiting: len(p.Waiting), Warnings: nonNil(warnings(st)),
			Errors: nonNil(st.Errors), Advice: []string{}, Nodes: []berth.NodeExplanation{},
		}
		if p.Size != nil {
			e.Size, e.Tier = p.Size.Name, tier(p.Low())
		}
		if st.Error != "" {
			e.Errors = append(e.Errors, st.Error)
		}
		p.Short = st.Short
		e.Next = plan.Deadline(p, x.Now)
		if err := x.explainNodes(p, &e); err != nil {
			return err
		}
		unpaid, err := explainReason(tx, d, p, st, &e)
		if err != nil {
			return err
		}
		e.Advice = computeAdvice(e, p, st, unpaid && !p.Single(), stopsItself(d))
		e.History, err = history(tx, d)
		return err
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, e)
}

// explainReason fills in why a compute is in the state it is in. unpaid says that a budget that
// pays for it is used up.
func explainReason(tx *store.Tx, d *store.Doc, p plan.Pool, st berth.ComputeState, e *berth.ComputeExplanation) (unpaid bool, err error) {
	if p.Type() == picture.Cluster && p.Down() == nil && e.Waiting == 0 {
		e.Reason = standing(e.Nodes)
	}
	ended, err := cost.UsedUp(tx, d.Workspace)
	if err != nil {
		return false, err
	}
	payer := d.CreatedBy
	if st.Instance != nil {
		payer = st.Instance.User
	}
	budget := cost.Charged(ended, payer)
	if budget != "" && p.Type() == picture.Cluster {
		e.Reason += "; no idle nodes are kept, because " + budget + " is used up"
	}
	if i := st.Instance; i != nil {
		e.State, e.Reason, e.Next = i.State, i.Reason, i.StopsAt
		e.Warnings, e.Errors = append(e.Warnings, i.Warnings...), append(e.Errors, i.Errors...)
	}
	if p.Type() == picture.Attached {
		e.State, e.Reason = st.Attached.Says(d.Name)
		if st.Attached != nil {
			e.Warnings = append(e.Warnings, st.Attached.Warnings...)
		}
	}
	return budget != "", nil
}

// standing is why a cluster nobody waits for has the nodes it has. Why it grew or shrank last is in
// its history.
func standing(nodes []berth.NodeExplanation) string {
	if len(nodes) == 0 {
		return "no job waits, and it has no nodes"
	}
	count := map[string]int{}
	for _, n := range nodes {
		switch {
		case len(n.Jobs) > 0:
			count["run"]++
		case n.State == berth.NodeIdle:
			count["idle"]++
		default:
			count["come"]++
		}
	}
	var parts []string
	say := func(n int, one, many string) {
		switch {
		case n == 0:
			return
		case n == 1:
			many = one
		}
		noun := ""
		if len(parts) == 0 {
			noun = map[bool]string{true: " node", false: " nodes"}[n == 1]
		}
		parts = append(parts, fmt.Sprint(n)+noun+" "+many)
	}
	say(count["run"], "runs jobs", "run jobs")
	say(count["idle"], "is idle", "are idle")
	say(count["come"], "comes or goes", "come or go")
	return "no job waits: " + strings.Join(parts, ", ")
}

func tier(low bool) string { return map[bool]string{true: "low_priority", false: "dedicated"}[low] }

func nonNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// explainNodes lists the nodes with what they run and what they cost.
func (x *snapshot) explainNodes(p plan.Pool, e *berth.ComputeExplanation) error {
	tasks, err := x.Tasks()
	if err != nil {
		return err
	}
	runs := map[string][]string{}
	for _, t := range tasks {
		switch {
		case t.State == berth.TaskWaiting:
		case p.Single() && p.Has(t, x.Workspace):
			runs[p.Name] = append(runs[p.Name], t.Job)
		case t.Node != "" && t.Workspace == x.Workspace:
			runs[t.Node] = append(runs[t.Node], t.Job)
		}
	}
	goes := plan.Leaving(p, x.Now)
	for _, n := range p.Nodes {
		v := berth.NodeExplanation{
			Name: n.Name, State: n.State, Why: n.Why, Jobs: nonNil(runs[n.Name]), User: n.User, Created: n.Created, IdleSince: n.IdleSince, Goes: goes[n.Name],
		}
		switch {
		case p.Single():
			if n.Used > 0 {
				v.State = berth.NodeRunning
			}
		case n.Priced:
			v.Price = &n.Price
			e.PerHour += n.Price
			e.Currency = orElse(n.Currency, p.Size.Currency)
		default:
			e.Unknown++
		}
		e.Nodes = append(e.Nodes, v)
	}
	return nil
}

// stopsItself says whether an instance has an idle time: when that is over is not known until its
// signals were looked at.
func stopsItself(d *store.Doc) bool {
	var v struct {
		Properties json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(d.Body, &v) != nil {
		return false
	}
	spec, err := devbox.Parse(v.Properties)
	return err == nil && spec.Idle > 0
}

// computeAdvice is what the user can do about a compute now.
func computeAdvice(e berth.ComputeExplanation, p plan.Pool, st berth.ComputeState, unpaid, stops bool) []string {
	out := []string{}
	idle := 0
	for _, n := range p.Nodes {
		if n.State == berth.NodeIdle && n.Used == 0 {
			idle++
		}
	}
	var largest sched.Gang
	for _, g := range p.Waiting {
		if g.Nodes > largest.Nodes {
			largest = g
		}
	}
	switch {
	case unpaid: // before that nothing else helps
		out = append(out, "berth budget list")
	case p.Down() != nil && p.Type() == picture.Attached && st.Attached.Reached():
		out = append(out, "berth compute show -n "+e.Name, "berth events -f")
	case p.Down() != nil && p.Type() == picture.Attached && (st.Attached == nil || st.Attached.TokenHash == ""):
		out = append(out, "berth agent join "+e.Name)
	case p.Down() != nil && p.Type() == picture.Attached:
		out = append(out, "on its machine: berth agent run")
	case p.Down() != nil && p.Type() == picture.Instance:
		out = append(out, "berth compute start -n "+e.Name)
	case p.Type() == picture.Instance && !stops && st.Instance != nil && st.Instance.Up():
		out = append(out, "it does not stop by itself: set idle_time_before_shutdown_minutes, or `berth compute stop -n "+e.Name+"`")
	case largest.Nodes > p.Max && p.Type() == picture.Cluster:
		out = append(out, fmt.Sprintf("job %s needs %d nodes at once: `%s`", largest.Name, largest.Nodes, raise(p, largest.Nodes)))
	case e.Waiting > 0 && len(p.Nodes) >= p.Max && p.Type() == picture.Cluster: // twice as many will do for a beginning
		out = append(out, fmt.Sprintf("jobs wait and it is as large as it may be: `%s`", raise(p, p.Max+min(e.Waiting, p.Max))))
	case e.Waiting == 0 && idle > 0 && p.Min > 0 && p.Type() == picture.Cluster:
		out = append(out, fmt.Sprintf("it keeps %d idle: `berth compute update -n %s --min-instances 0` lets it go to zero", min(idle, p.Min), e.Name))
	}
	if len(e.Errors) > 0 {
		out = append(out, "berth doctor")
	}
	if !p.Single() {
		out = append(out, "berth cost --by compute,user")
	}
	return out
}

// canceledBy is the reason of a job, with who canceled it where somebody did.
func canceledBy(e berth.Explanation) string {
	const by = "cancel requested by "
	for _, h := range e.History {
		if who, ok := strings.CutPrefix(h.Reason, by); ok && h.Type == berth.EventJobCancel && e.Status == berth.Canceled {
			if e.Reason == "canceled by the user" {
				return "canceled by " + who
			}
			return e.Reason + "; canceled by " + who
		}
	}
	return e.Reason
}

// history is the last of what happened to a job or a compute, the oldest first: not to another of
// that name which was deleted before. What is only measured, again and again, is not part of it.
func history(tx *store.Tx, d *store.Doc) ([]berth.Event, error) {
	out := []berth.Event{}
	q := store.EventQuery{Workspace: d.Workspace, Subject: d.Kind + "/" + d.Name, Desc: true}
	for range 20 { // pages
		events, err := tx.Events(q)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			q.From = e.Rev
			if e.Type != berth.EventActivity && e.Type != berth.EventTaskUsage && len(out) < maxHistory && !e.Time.Before(d.Created) {
				out = append(out, e)
			}
		}
		if len(events) == 0 || len(out) == maxHistory {
			break
		}
	}
	slices.Reverse(out)
	return out, nil
}

// since is a query's time: RFC 3339, or a date of UTC.
func (c *call) since(key string, otherwise time.Time) (time.Time, error) {
	v := c.q.Get(key)
	if v == "" {
		return otherwise, nil
	}
	for _, form := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(form, v); err == nil {
			return t, nil
		}
	}
	return otherwise, berth.Errorf(berth.Invalid, "%s=%s is not a time such as 2026-03-01T12:00:00Z or a date such as 2026-03-01", key, v)
}
