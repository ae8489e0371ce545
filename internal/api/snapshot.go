package api

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/plan"
	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/sched"
	"github.com/berthml/berth/internal/sizes"
	"github.com/berthml/berth/internal/store"
)

// snapshot reads computes as the pure packages see them. It belongs to one transaction.
type snapshot struct {
	s    *Server
	tx   *store.Tx
	ws   string // key of the workspace
	user string // who asks
	now  time.Time

	sizes *sizes.Catalogue
	tasks []*berth.Task // that are not done, of all workspaces
	runs  map[string][]cost.Run
	// priced wants to know what earlier runs cost, too.
	priced bool
}

func (c *call) snapshot(tx *store.Tx) *snapshot {
	return &snapshot{s: c.s, tx: tx, ws: c.ws.Key(), user: c.who.User, now: c.now, runs: map[string][]cost.Run{}}
}

func (x *snapshot) size(name string) (berth.Size, bool, error) {
	if x.sizes == nil {
		c, err := sizes.LoadTx(x.tx)
		if err != nil {
			return berth.Size{}, false, err
		}
		x.sizes = &c
	}
	z, ok := x.sizes.Find(name)
	return z, ok, nil
}

func (x *snapshot) active() ([]*berth.Task, error) {
	if x.tasks != nil {
		return x.tasks, nil
	}
	var err error
	x.tasks, err = x.tx.ActiveTasks()
	return x.tasks, err
}

// pool is a compute with its nodes and what runs on it and waits for it.
func (x *snapshot) pool(d *store.Doc) (p plan.Pool, st berth.ComputeState, err error) {
	if strings.EqualFold(d.Name, berth.LocalCompute) {
		p, err = x.local()
		return p, st, err
	}
	spec, err := berth.ReadPool(d.Body)
	if err != nil {
		return p, st, err
	}
	if st, err = computeState(d); err != nil {
		return p, st, err
	}
	if spec.Attached() {
		p = attachedPool(d.Name, st)
		return p, st, x.gangs(&p)
	}
	p = plan.Pool{
		Name: d.Name, Type: plan.Cluster, Low: spec.Low(), Min: spec.Min, Max: spec.Max, Slots: spec.Slots, Idle: spec.Idle, Spread: spec.Spread,
		Room: plan.NoBound, Expect: map[string]plan.Expect{},
	}
	switch {
	case strings.EqualFold(spec.ComputeType, berth.TypeInstance):
		p.Type, p.Min, p.Max, p.Idle = plan.Instance, 0, 1, 0
	case st.Serverless:
		p.Type = plan.Serverless
	}
	if size, ok, err := x.size(spec.Properties.VMSize); err != nil {
		return p, st, err
	} else if ok {
		p.Size = &size
	} else {
		p.Size = &berth.Size{Name: spec.Properties.VMSize}
	}
	nodes, err := nodesOf(x.tx, d.Workspace, d.Name)
	if err != nil {
		return p, st, err
	}
	for _, n := range nodes {
		p.Nodes = append(p.Nodes, plan.Node{Node: n})
	}
	if p.Type == plan.Instance && len(nodes) == 0 {
		p.Down = stopped(d.Name, st)
	}
	if err := x.gangs(&p); err != nil {
		return p, st, err
	}
	return p, st, x.bars(&p)
}

// bars fills in how many tasks more the users who wait for a cluster, and the one who asks, may have where they are limited.
func (x *snapshot) bars(p *plan.Pool) error {
	if p.Type == plan.Instance || len(p.Nodes) == 0 {
		return nil // an instance counts as a whole, and a pool without nodes grows by quota
	}
	limits, err := quota.LoadTx(x.tx, x.s.QuotaDefault)
	if err != nil {
		return err
	}
	if limits = limits.Personal(); len(limits.All) == 0 {
		return nil
	}
	running, err := quota.Running(x.tx)
	if err != nil {
		return err
	}
	n := p.Nodes[0]
	p.Bars = map[string]sched.Bar{}
	bar := func(user string) {
		ask := quota.Task{Workspace: x.ws, Family: n.Family, User: user, Low: n.Low, VCPUs: float64(n.VCPUs) / float64(max(1, n.Slots))}
		if tasks, unlimited, why := limits.Left(running, ask, x.now); !unlimited {
			p.Bars[user] = sched.Bar{Nodes: tasks, Why: why}
		}
	}
	bar(x.user)
	for _, g := range p.Waiting {
		if _, ok := p.Bars[g.User]; !ok {
			bar(g.User)
		}
	}
	return nil
}

// stopped is why an instance takes no jobs.
func stopped(name string, st berth.ComputeState) *berth.PlanLimit {
	state := "not running"
	if i := st.Instance; i != nil && i.State != "" {
		state = i.State
	}
	return &berth.PlanLimit{Kind: berth.LimitStopped, Whose: name, Why: "the instance is " + state + "; `berth compute start -n " + name + "` starts it"}
}

// attachedPool is a machine that connects by itself: one node, which takes nothing while it is away.
func attachedPool(name string, st berth.ComputeState) plan.Pool {
	slots := 1
	if st.Attached != nil {
		slots = max(1, st.Attached.Slots)
	}
	p := plan.Pool{
		Name: name, Type: plan.Attached, Max: 1, Slots: slots, Room: plan.NoBound, Expect: map[string]plan.Expect{},
		Nodes: []plan.Node{{Node: berth.Node{Name: name, State: berth.NodeIdle, Slots: slots}}},
	}
	if away := st.Attached.Away(name); away != "" {
		p.Down = &berth.PlanLimit{Kind: berth.LimitAway, Whose: name, Why: away}
	}
	return p
}

// local is the machine itself: one node that is always there.
func (x *snapshot) local() (plan.Pool, error) {
	p := plan.Pool{
		Name: berth.LocalCompute, Type: plan.Local, Max: 1, Slots: max(1, x.s.Slots), Room: plan.NoBound, Expect: map[string]plan.Expect{},
		Nodes: []plan.Node{{Node: berth.Node{Name: berth.LocalCompute, State: berth.NodeIdle, Slots: max(1, x.s.Slots)}}},
		Size:  x.s.Local.Size(),
	}
	m, err := x.machine()
	if err != nil {
		return p, err
	}
	if down := m.Local(); down != "" {
		p.Down = &berth.PlanLimit{Kind: berth.LimitMachine, Whose: p.Name, Why: down}
	}
	if err := x.gangs(&p); err != nil || x.s.Local.PerUser == 0 {
		return p, err
	}
	runs := map[string]int{}
	for _, r := range p.Running {
		runs[r.User]++
	}
	p.Bars = map[string]sched.Bar{x.user: sched.LocalBar(x.s.Local.PerUser, runs[x.user])}
	for _, g := range p.Waiting {
		p.Bars[g.User] = sched.LocalBar(x.s.Local.PerUser, runs[g.User])
	}
	return p, nil
}

// gangs fills in what runs on a pool and what waits for it.
func (x *snapshot) gangs(p *plan.Pool) error {
	tasks, err := x.active()
	if err != nil {
		return err
	}
	running, waiting := map[string]*sched.Running{}, map[string]bool{}
	var order []string
	for _, t := range tasks {
		if !strings.EqualFold(t.Compute, p.Name) || p.Type != plan.Local && t.Workspace != x.ws {
			continue
		}
		id := t.Gang()
		g := sched.Gang{
			ID: id, Name: t.Job, Nodes: max(1, t.Count), User: t.User, Priority: t.Priority, Seq: t.ID.Place(), Spot: t.Spot, Limit: t.Limit,
		}
		if t.State == berth.TaskWaiting {
			if !waiting[id] {
				waiting[id] = true
				p.Waiting = append(p.Waiting, g)
			}
			continue
		}
		node := t.Node
		if p.Single() {
			node = p.Name
		}
		for k := range p.Nodes {
			if p.Nodes[k].Name == node {
				p.Nodes[k].Used++
			}
		}
		r := running[id]
		if r == nil {
			r = &sched.Running{Gang: g, Since: t.Times.Placed}
			if !t.Times.Started.IsZero() {
				r.Since = t.Times.Started // limits count from here
			}
			running[id] = r
			order = append(order, id)
		}
		r.On = append(r.On, node)
		r.Stopping = r.Stopping || t.Stop || t.Evict
	}
	for _, id := range order {
		p.Running = append(p.Running, *running[id])
	}
	return x.expect(p, tasks)
}

// expected is for how many jobs it is worked out how long they take.
const expected = 200

// expect says how long what runs and waits takes, where a limit or a history tells.
func (x *snapshot) expect(p *plan.Pool, tasks []*berth.Task) error {
	n := 0
	for _, t := range tasks {
		if t.Rank != 0 || !strings.EqualFold(t.Compute, p.Name) || p.Type != plan.Local && t.Workspace != x.ws {
			continue
		}
		if n++; n > expected {
			return nil
		}
		if t.Limit > 0 {
			p.Expect[t.Gang()] = plan.Expect{Took: t.Limit, Limit: true}
			continue
		}
		d, err := x.tx.Get(t.Workspace, "jobs", t.Job, "")
		if berth.CodeOf(err) == berth.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		v, err := jobOf(d)
		if err != nil {
			continue
		}
		if limit, err := berth.ParseDuration(v.Limits.Timeout); err == nil && limit > 0 {
			p.Expect[t.Gang()] = plan.Expect{Took: limit, Limit: true}
			continue
		}
		if t.Workspace != x.ws {
			continue // others' history is not ours
		}
		h, known, err := x.history(v, d.Name)
		if err != nil {
			return err
		}
		if known {
			p.Expect[t.Gang()] = plan.Expect{Took: h.Median}
		}
	}
	return nil
}

// jobOf is the typed view of a job's document.
func jobOf(d *store.Doc) (v berth.CommandJob, err error) {
	var body struct {
		Properties *berth.CommandJob `json:"properties"`
	}
	body.Properties = &v
	err = json.Unmarshal(d.Body, &body)
	return v, err
}

// remembered is how many runs of an experiment are looked at, the newest.
const remembered = 100

// history is how long runs like a job took.
func (x *snapshot) history(v berth.CommandJob, name string) (cost.History, bool, error) {
	runs, ok := x.runs[v.ExperimentName]
	if !ok {
		docs, err := x.completed(v.ExperimentName)
		if err != nil {
			return cost.History{}, false, err
		}
		for _, d := range docs {
			r, ok := runOf(d)
			if !ok {
				continue
			}
			if x.priced {
				if err := x.price(&r); err != nil {
					return cost.History{}, false, err
				}
			}
			runs = append(runs, r)
		}
		x.runs[v.ExperimentName] = runs
	}
	h, known := cost.Like(run(v, name), runs)
	return h, known, nil
}

// among is how many jobs are looked at for those that completed. Of an experiment thousands may wait, and thousands of others may have
// completed since; a submit must not read them all.
const among = 500

// completed is the last jobs of an experiment that completed, those among its last jobs, or else among the last that completed at all.
func (x *snapshot) completed(experiment string) (docs []*store.Doc, err error) {
	done := []string{string(berth.Completed)}
	for _, q := range []store.Query{{Parent: experiment}, {Status: done}} {
		q.Workspace, q.Kind, q.Limit, q.NoBody = x.ws, "jobs", among, true
		last, err := x.tx.List(q)
		if err != nil {
			return nil, err
		}
		for _, d := range last {
			if d.Parent != experiment || d.Status != done[0] || len(docs) >= remembered {
				continue
			}
			if d, err = x.tx.Get(x.ws, "jobs", d.Name, ""); err != nil {
				return nil, err
			}
			docs = append(docs, d)
		}
		if len(docs) > 0 {
			break
		}
	}
	return docs, nil
}

func run(v berth.CommandJob, name string) cost.Run {
	r := cost.Run{Name: name, Experiment: v.ExperimentName, Command: v.Command, Display: v.DisplayName}
	if strings.EqualFold(r.Display, name) {
		r.Display = "" // it was given none
	}
	return r
}

// runOf is what a job that has ended tells of the next one like it.
func runOf(d *store.Doc) (cost.Run, bool) {
	v, err := jobOf(d)
	if err != nil {
		return cost.Run{}, false
	}
	var st berth.JobState
	if json.Unmarshal(d.Own, &st) != nil || st.Times.Placed.IsZero() || st.Times.Ended.IsZero() {
		return cost.Run{}, false
	}
	r := run(v, d.Name)
	r.Took = st.Times.Ended.Sub(st.Times.Placed)
	return r, r.Took > 0
}

// price fills in what a run cost, if that is known.
func (x *snapshot) price(r *cost.Run) error {
	lines, err := x.jobCost(r.Name)
	if len(lines) == 1 && lines[0].Unknown == 0 {
		r.Cost, r.Priced = lines[0].Cost, true
	}
	return err
}

// machine is this machine with everything that lives on it.
func (x *snapshot) machine() (sched.Machine, error) {
	m := x.s.Machine
	m.Nodes = slices.Clone(m.Nodes)
	tasks, err := x.active()
	if err != nil {
		return m, err
	}
	for _, t := range tasks {
		if t.State != berth.TaskWaiting && strings.EqualFold(t.Compute, berth.LocalCompute) {
			m.LocalTasks++
		}
	}
	workspaces, err := x.tx.All(store.Query{Kind: kindWorkspace, NoBody: true})
	if err != nil {
		return m, err
	}
	for _, w := range workspaces {
		docs, err := x.tx.All(store.Query{Workspace: w.Name, Kind: kindNode, Asc: true})
		if err != nil {
			return m, err
		}
		for _, d := range docs {
			var n berth.Node
			if err := json.Unmarshal(d.Own, &n); err != nil {
				return m, err
			}
			m.Nodes = append(m.Nodes, sched.Guest{
				Compute: n.Compute, Isolated: n.Isolated, GPUs: n.GPUs, VCPUs: n.VCPUs, Memory: n.Memory, Idle: n.State == berth.NodeIdle,
			})
		}
	}
	return m, nil
}

// room fills in how many nodes more a pool may have, by quota and by what the machine has, and whose limit that is.
func (x *snapshot) room(p *plan.Pool, user string, asks int) error {
	if p.Size == nil || p.Type == plan.Instance || p.Size.VCPUs == 0 {
		return nil
	}
	limits, err := quota.LoadTx(x.tx, x.s.QuotaDefault)
	if err != nil {
		return err
	}
	use, err := quota.Used(x.tx)
	if err != nil {
		return err
	}
	vcpus, unlimited, why := limits.Room(use, x.use(p, user, asks), x.now)
	if !unlimited {
		p.Room = min(vcpus/p.Size.VCPUs, math.MaxInt32)
		p.Bound = berth.PlanLimit{Kind: berth.LimitQuota, Whose: p.Name, Why: why}
	}
	for _, g := range p.Waiting {
		asks += g.Nodes
	}
	m, err := x.machine()
	if err != nil {
		return err
	}
	ask := askOf(p.Name, *p.Size)
	for n := range min(asks, p.Room, max(0, p.Max-len(p.Nodes))) {
		gpus, ok, why := m.Admit(ask)
		if !ok {
			p.Room, p.Bound = n, berth.PlanLimit{Kind: berth.LimitMachine, Whose: p.Name, Why: why}
			return nil
		}
		m.Nodes = append(m.Nodes, sched.Guest{Compute: p.Name, Isolated: p.Size.Isolated, GPUs: gpus, VCPUs: p.Size.VCPUs, Memory: p.Size.Memory()})
	}
	return nil
}

// use is what some nodes of a pool would take.
func (x *snapshot) use(p *plan.Pool, user string, nodes int) quota.Use {
	return quota.Use{Workspace: x.ws, Family: p.Size.Family, User: user, Low: p.Low, VCPUs: nodes * p.Size.VCPUs}
}

func askOf(compute string, z berth.Size) sched.Ask {
	return sched.Ask{Compute: compute, VCPUs: z.VCPUs, Memory: z.Memory(), GPUs: z.GPUs, Isolated: z.Isolated}
}

// fits refuses a size that this machine, if it is strict, can never give; else it warns of what it has too little of.
func (s *Server) fits(compute string, z berth.Size) (warnings []string, err error) {
	if why := s.never(compute, z); why != "" && s.Machine.Strict {
		return nil, berth.Errorf(berth.Invalid, "size %s does not fit this machine: %s", z.Name, why)
	}
	return s.Machine.Warnings(askOf(compute, z)), nil
}

// never is why this machine, were it empty, could not have a node of a size; "" when it could.
func (s *Server) never(compute string, z berth.Size) string {
	empty := s.Machine
	empty.Nodes, empty.LocalTasks, empty.Reserved = nil, 0, ""
	_, _, why := empty.Admit(askOf(compute, z))
	return why
}

// jobCost is what jobs have cost so far, one line for each currency.
func (x *snapshot) jobCost(jobs ...string) ([]berth.CostLine, error) {
	var tasks []*berth.Task
	for _, name := range jobs {
		more, err := x.tx.TasksOf(x.ws, name)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, more...)
	}
	meters, err := cost.Tasks(x.tx, x.ws, x.s.Local, tasks, x.now)
	if err != nil {
		return nil, err
	}
	return cost.Tally(meters, nil, cost.Window{Until: x.now.Add(time.Hour)}).Totals, nil
}
