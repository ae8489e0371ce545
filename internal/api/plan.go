package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/picture"
	"github.com/berthml/berth/internal/plan"
	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/sched"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

// placeholder begins a reference to something that a client would upload before it submits the job.
// A plan takes it for granted.
const placeholder = "local:"

// planJob says what would become of a job (ours): POST jobs/NAME/plan with the body of the PUT.
// Nothing is created. The environments and components that the client would make first are in
// berth.resources of the body, each with type, name, version and body.
func planJob(c *call, r *resource, name, _ string) error {
	if err := berth.CheckName(r.Noun, name); err != nil {
		return err
	}
	body, err := c.body()
	if err != nil {
		return err
	}
	props, err := object(body, "properties")
	if err != nil {
		return err
	}
	if c.made, err = madeFirst(body); err != nil {
		return err
	}
	jobDefaults(props, name)
	var p berth.Plan
	err = c.s.DB.View(c.ctx(), func(tx *store.Tx) (err error) {
		if err := track.CheckExperiment(tx, c.ws.Key(), text(props, "experimentName")); err != nil {
			return err
		}
		x := c.snapshot(tx)
		x.priced = true
		if k := c.s.jobs.composite(text(props, "jobType")); k != nil {
			p, err = x.planChildren(c, k, name, props)
			return err
		}
		s, err := x.planCommand(c, name, name, props)
		if err == nil {
			s.Budgets, err = x.budgets(c)
		}
		p = plan.Make(s)
		return err
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, p)
}

// madeFirst reads what a client would make before it submits a job.
func madeFirst(body map[string]any) (map[string]json.RawMessage, error) {
	list, ok := dig(body, "berth.resources").([]any)
	if !ok {
		return nil, nil
	}
	made := map[string]json.RawMessage{}
	for _, v := range list {
		res := asMap(v)
		raw, err := json.Marshal(res["body"])
		if err != nil {
			return nil, err
		}
		made[madeKey(text(res, "type"), text(res, "name"), text(res, "version"))] = raw
	}
	return made, nil
}

func madeKey(collection, name, version string) string {
	return strings.ToLower(collection + "/" + name + "/" + version)
}

// willMake is the document of an asset that the client would make first.
func (c jobCall) willMake(ref berth.Ref, collection string) (json.RawMessage, bool) {
	raw, ok := c.made[madeKey(collection, ref.Name, ref.Version)]
	return raw, ok
}

// planChildren plans each command of a job with children, and the whole.
func (x *snapshot) planChildren(c *call, k kind.Composite, name string, props map[string]any) (p berth.Plan, err error) {
	if err := (jobCall{c}).complete(x.Tx, k, props); err != nil {
		return p, err
	}
	if err := (jobCall{c}).checkReferences(x.Tx, props, true); err != nil {
		return p, err
	}
	unfolded, err := jobCall{c}.unfold(x.Tx, k, name, props)
	if err != nil {
		return p, err
	}
	(jobCall{c}).noteRegistered(unfolded)
	var steps []plan.Step
	for _, u := range unfolded {
		s, err := x.planCommand(c, u.Path, kind.ChildName(name, u.Root), u.Props)
		if err != nil {
			return p, berth.Errorf(berth.CodeOf(err), "step %s: %w", u.Path, err)
		}
		steps = append(steps, plan.Step{Snapshot: s, After: u.After})
	}
	budgets, err := x.budgets(c)
	return plan.Children(name, k.Word(), steps, budgets), err
}

// planCommand is everything the plan of a command job is made from, but for budgets. Title is what
// to call it; name is what it would be called.
func (x *snapshot) planCommand(c *call, title, name string, props map[string]any) (s plan.Snapshot, err error) {
	raw, err := json.Marshal(props)
	if err != nil {
		return s, err
	}
	k, err := c.s.KindOf(text(props, "jobType"))
	if err != nil {
		return s, err
	}
	if err := k.Validate(raw); err != nil {
		return s, err
	}
	var v berth.CommandJob
	if err := json.Unmarshal(raw, &v); err != nil {
		return s, berth.Errorf(berth.Invalid, "properties: %w", err)
	}
	if err := (jobCall{c}).checkReferences(x.Tx, props, true); err != nil {
		return s, err
	}
	s = plan.Snapshot{Now: x.Now, Job: plan.Job{Name: title, User: c.who.User, Nodes: max(1, v.Resources.InstanceCount)}}
	if s.Job.Timeout, err = berth.ParseDuration(v.Limits.Timeout); err != nil {
		return s, err
	}
	if err := x.target(c, v, &s); err != nil {
		return s, err
	}
	if needs, err := berth.NeedsOf(raw); err == nil {
		s.Job.GPUs = needs.TaskGPUs()
	}
	switch err := checkNeeds(c, x.Tx, s.Pool.Name, raw); {
	case berth.CodeOf(err) == berth.NotFound: // a pool that would be made
	case berth.CodeOf(err) == berth.Invalid:
		s.Refused = append(s.Refused, berth.PlanLimit{Kind: berth.LimitMachine, Ever: true, Whose: s.Pool.Name, Why: err.Error()})
	case err != nil:
		return s, err
	}
	if s.History, s.Known, err = x.history(v, name); err != nil {
		return s, err
	}
	tasks := k.Step(kind.Job{Name: name, Key: name, State: berth.JobState{Compute: s.Pool.Name}, Props: raw}, nil).Start
	if len(tasks) > 0 {
		s.Job.Nodes, s.Job.Priority, s.Job.Spot = len(tasks), tasks[0].Priority, tasks[0].Spot
	}
	if err := x.room(&s.Pool, c.who.User, s.Job.Nodes); err != nil {
		return s, err
	}
	environment, err := jobCall{c}.planEnvironment(x.Tx, props)
	s.Warnings = append(s.Warnings, environment...)
	return s, err
}

// budgets are those that the user's jobs are charged to.
func (x *snapshot) budgets(c *call) (out []berth.BudgetStatus, err error) {
	accounts, err := cost.Accounts(x.Tx, x.Workspace, x.s.Local, x.Now)
	for _, a := range accounts {
		if a.User == "" || strings.EqualFold(a.User, c.who.User) {
			out = append(out, a.BudgetStatus)
		}
	}
	return out, err
}

// target finds the pool a job would go to, as checkTarget does, without making one.
func (x *snapshot) target(c *call, v berth.CommandJob, s *plan.Snapshot) error {
	name, err := v.Compute()
	if err != nil {
		return err
	}
	name = cmp.Or(name, serverless)
	if berth.IsLocal(name) {
		if _, err = (jobCall{c}).chooser(x.Tx).Of(v); err != nil { // says why not
			return err
		}
	}
	switch {
	case berth.IsLocal(name), strings.EqualFold(name, serverless) && v.Resources.InstanceType == "" && s.Job.Nodes == 1 && !c.s.Local.Off:
		s.Pool, err = x.local()
		return err
	case strings.EqualFold(name, serverless):
		return x.serverless(c, v, s)
	}
	d, err := x.Tx.Get(x.Workspace, "computes", name, "")
	if berth.CodeOf(err) == berth.NotFound {
		return berth.Missingf("there is no compute %q in workspace %s; `berth compute list` shows what there is", name, c.ws.Name)
	}
	if err != nil {
		return err
	}
	return x.existing(c, d, s)
}

// existing is a pool that is there.
func (x *snapshot) existing(c *call, d *store.Doc, s *plan.Snapshot) error {
	var err error
	if s.Pool, err = x.pool(d); err != nil {
		return err
	}
	st := s.Pool.State
	refuse := func(kind, why string) {
		s.Refused = append(s.Refused, berth.PlanLimit{Kind: kind, Ever: true, Whose: d.Name, Why: why})
	}
	if st.Deleting() {
		refuse(berth.LimitDeleting, "compute "+d.Name+" is being deleted and accepts no more jobs")
	}
	if i := st.Instance; i != nil && i.User != "" && !strings.EqualFold(i.User, c.who.User) && c.who.Role != auth.Admin {
		refuse(berth.LimitOwner, fmt.Sprintf("compute %s belongs to %s; only they and administrators may run jobs on it", d.Name, i.User))
	}
	z := s.Pool.Size
	if z == nil {
		return nil
	}
	if z.VCPUs == 0 {
		refuse(berth.LimitSize, fmt.Sprintf("size %s of compute %s is no longer known to this server", z.Name, d.Name))
		return nil
	}
	for _, e := range st.Errors {
		s.Warnings = append(s.Warnings, "the last node of "+d.Name+" could not be made: "+e)
	}
	s.Warnings = append(s.Warnings, c.s.Machine.Warnings(sched.AskOf(d.Name, *z))...)
	if s.Pool.Type() == picture.Instance {
		return nil
	}
	return x.ever(s, c.who.User)
}

// serverless is the pool that would be made, or is there, for jobs of a size.
func (x *snapshot) serverless(c *call, v berth.CommandJob, s *plan.Snapshot) error {
	name := orElse(v.Resources.InstanceType, serverlessSize)
	low := strings.EqualFold(v.QueueSettings.JobTier, "Spot")
	size, err := c.s.sizes.checkSize(c, x.Tx, name, c.s.Location, berth.TypeCluster, low)
	if err != nil && berth.CodeOf(err) != berth.Limit { // limits are the plan's to tell
		return berth.Errorf(berth.CodeOf(err), "resources.instance_type: %w", err)
	}
	pool := serverlessPrefix + strings.ToLower(size.Name)
	if low {
		pool += "-low"
	}
	d, err := x.Tx.Get(x.Workspace, "computes", pool, "")
	if err == nil {
		return x.existing(c, d, s)
	}
	if berth.CodeOf(err) != berth.NotFound {
		return err
	}
	s.Pool = newPool()
	s.Pool.New, s.Pool.Size, s.Pool.State.Serverless = true, &size, true
	s.Pool.Name, s.Pool.ComputeType, s.Pool.Max, s.Pool.Slots = pool, berth.TypeCluster, max(s.Job.Nodes, serverlessNodes), 1
	if low {
		s.Pool.Properties.VMPriority = "LowPriority"
	}
	s.Warnings = append(s.Warnings, c.s.Machine.Warnings(sched.AskOf(pool, size))...)
	return x.ever(s, c.who.User)
}

// ever adds what no waiting would change: a quota below what the job needs, a machine that is
// strict.
func (x *snapshot) ever(s *plan.Snapshot, user string) error {
	limits, err := quota.LoadTx(x.Tx, x.s.QuotaDefault)
	if err != nil {
		return err
	}
	z := s.Pool.Size
	has := 0 // nodes that are there are left alone when a limit is lowered, and serve on
	for _, n := range s.Pool.Nodes {
		if n.State == berth.NodePreparing || n.State == berth.NodeIdle || n.State == berth.NodeRunning {
			has++
		}
	}
	if vcpus, unlimited, why := limits.Room(nil, x.use(&s.Pool, user, s.Job.Nodes), x.Now); !unlimited && vcpus < s.Job.Nodes*z.VCPUs && has < s.Job.Nodes {
		l := berth.PlanLimit{Kind: berth.LimitQuota, Ever: true, Whose: s.Pool.Name}
		if z.Restricted && vcpus == 0 {
			l.Kind = berth.LimitApproval
		}
		l.Why = fmt.Sprintf("it needs %s: %s", quota.Cores(s.Job.Nodes*z.VCPUs), why)
		s.Refused = append(s.Refused, l)
	}
	if s.Pool.Provider != "" {
		return nil // its nodes are not on this machine
	}
	if why := x.s.sizes.never(s.Pool.Name, *z); why != "" && has < s.Job.Nodes {
		s.Refused = append(s.Refused, berth.PlanLimit{
			Kind: berth.LimitMachine, Ever: true, Whose: s.Pool.Name, Why: fmt.Sprintf("size %s does not fit this machine: %s", z.Name, why),
		})
	}
	m, err := x.Occupied()
	if err != nil {
		return err
	}
	vcpus := s.Job.Nodes * z.VCPUs
	for _, n := range m.Nodes {
		vcpus += n.VCPUs
	}
	if !m.Strict && z.VCPUs <= m.CPUs && vcpus > m.CPUs {
		s.Warnings = append(s.Warnings, fmt.Sprintf("with it nodes of %s share the %d of this machine: they are slower than their sizes promise", quota.Cores(vcpus), m.CPUs))
	}
	return nil
}

// planEnvironment warns of an environment that may not be what the job names.
func (c jobCall) planEnvironment(tx *store.Tx, props map[string]any) ([]string, error) {
	var env map[string]any
	if id := text(props, "environmentId"); id != "" && !strings.HasPrefix(id, placeholder) {
		raw, err := c.environmentOf(tx, id)
		if err != nil || raw == nil {
			return nil, err
		}
		m := map[string]any{}
		if err := decodeJSON(raw, &m); err != nil {
			return nil, err
		}
		env = asMap(m["properties"])
	}
	image := text(env, "image")
	if image == "" && env["build"] == nil {
		return nil, nil
	}
	if image == "" {
		image = "the image it builds"
	}
	extra := asMap(props["properties"])
	if !c.s.ImagesOnHost && !strings.EqualFold(text(extra, berth.EnvironmentProperty), berth.OnHost) {
		return nil, nil
	}
	return []string{fmt.Sprintf("its environment names %s: where a node has no container engine the command runs on the machine as it is", image)}, nil
}

// environmentOf is the document of an environment, nil for one that is always there.
func (c jobCall) environmentOf(tx *store.Tx, id string) (json.RawMessage, error) {
	ref, err := berth.ParseRef(id, "environments")
	if err != nil || ref.Registry != "" {
		return nil, err
	}
	if raw, ok := c.willMake(ref, "environments"); ok {
		return raw, nil
	}
	d, err := locate.Version(tx, c.ws, "environments", ref)
	if err == nil {
		return d.Body, nil
	}
	if _, curated := c.s.Curated(ref.Name); curated {
		return nil, nil
	}
	return nil, err
}

// jobDefaults writes into a job what the service writes when the client gave nothing.
func jobDefaults(props map[string]any, name string) {
	delete(props, "status")
	keepServices(props)
	for _, k := range []string{runSource, pipelineRun} { // of a job that this one was copied from
		delete(asMap(props["properties"]), k)
	}
	setDefault(props, "experimentName", "Default")
	setDefault(props, "displayName", name)
	defaultModes(props)
}
