// Package control holds the loops that make what the store says come true: jobs become tasks, tasks are placed and started, what
// ended is recorded, what was left behind is swept up.
//
// Nothing here is called by a handler. A loop reads what changed, asks the pure packages what should be, writes that, and only
// then acts; a crash between any two steps is repaired by doing the step again.
package control

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/blob/front"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/metrics"
	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/sched"
	"github.com/berthml/berth/internal/store"
)

// Options is what a Control is made of.
type Options struct {
	DB      *store.DB
	Blobs   *blob.Store
	Keys    *auth.Keys
	Signer  *front.Signer
	Locator locate.Locator
	Log     *slog.Logger
	// Targets finds where the tasks of a compute run.
	Targets *driver.Registry
	// Near and Far are how runners reach this server, without a token: those that share its disk, and all others.
	Near, Far berth.Home
	// KindOf is the kind of a jobType; nil is kind.Of.
	KindOf func(jobType string) (kind.Kind, error)
	// Curated is the environment behind a curated name.
	Curated func(name string) (berth.LaunchEnv, bool)
	// ImagesOnHost lets jobs that name only an image run without a container.
	ImagesOnHost bool
	// Machine is what this machine has, for deciding which nodes can be on it at once.
	Machine sched.Machine
	// Local is on which terms jobs run on the machine itself.
	Local berth.LocalTerms
	// QuotaDefault is how many vCPUs of a family may be in use where no limit was set; 0 is no limit.
	QuotaDefault int
	// Location is where the pools of steps without a compute are made.
	Location string
	// Moved is told of each change of a node's state, "" before it was asked for and after it is gone; nil in a server.
	Moved func(from, to berth.NodeState)
	// Keep is a directory for what the attempts at a job hand on to each other.
	Keep string
}

// Control runs the loops.
type Control struct {
	o Options
	targets
	cycles metrics.Histogram

	// The following belong to the loop of Run; nobody else touches them.
	pools    map[poolKey]*pool
	gangs    map[string]*gang          // what waits, by the id of its first task
	usedUp   map[string][]berth.Budget // by workspace
	personal quota.Limits              // of single users
	placed   map[berth.TaskID]*placement
	pace     map[string]*pace // how fast tasks end, by compute
	works    map[string]*nodeWork
	said     sayings
	removing map[string]bool
	leaving  map[berth.TaskID]*placement // ended while Start had not answered: only when it has may their targets forget them
	met      int64                       // the last node that was looked for among those that others make
	faults   map[jobKey]*fault           // of jobs at which a cycle failed
	stale    bool                        // the picture above is not what the store says
	missed   map[*driver.Target]bool     // those that did not see a task when they were last asked
	asking   map[*driver.Target]bool     // those that have not answered yet; true when they are to be asked again

	looks chan look // answers of targets

	acts    sync.WaitGroup // driver calls under way
	logs    logFolders
	shifted time.Duration // how far the clock had been set when the picture was made

	logged map[jobKey]logProgress // of jobs without tasks of their own
	later  map[jobKey]time.Time   // jobs to look at again although nothing happened
	ports  ports
}

// placement is a task that was given to a target and has not ended.
type placement struct {
	task    berth.Task
	handle  atomic.Pointer[driver.Handle] // nil until the driver said it
	started chan struct{}                 // closed when Start has answered for good
	over    atomic.Bool                   // it has ended: it is not started any more
	left    bool                          // by an earlier process: it has to be taken up
	missing int                           // how many observations in a row did not list it
}

// New returns a Control that does nothing until Run.
func New(o Options) *Control {
	if o.KindOf == nil {
		o.KindOf = kind.Of
	}
	if o.Moved == nil {
		o.Moved = func(_, _ berth.NodeState) {}
	}
	return &Control{
		o: o, placed: map[berth.TaskID]*placement{}, pace: map[string]*pace{}, works: map[string]*nodeWork{}, said: sayings{}, removing: map[string]bool{}, leaving: map[berth.TaskID]*placement{},
		usedUp: map[string][]berth.Budget{}, faults: map[jobKey]*fault{}, missed: map[*driver.Target]bool{}, asking: map[*driver.Target]bool{}, looks: make(chan look), logs: logFolders{dir: o.Blobs.Dir()}, stale: true,
		logged: map[jobKey]logProgress{}, later: map[jobKey]time.Time{},
	}
}

// jobKey names a job across workspaces.
type jobKey struct{ workspace, name string }

// Run works until ctx ends, and returns when every call it made has returned.
func (c *Control) Run(ctx context.Context) error {
	defer c.acts.Wait()
	defer c.ports.close()
	c.o.DB.OnJump(shift)
	defer c.o.DB.OnJump(nil)
	if err := c.openTargets(); err != nil {
		return err
	}
	from := c.o.DB.Rev()
	if err := c.load(ctx); err != nil {
		return err
	}
	events := make(chan []berth.Event)
	watchErr := make(chan error, 1)
	go func() {
		w := c.o.DB.Watch(ctx, from)
		for {
			batch, err := w.Next()
			if err != nil {
				watchErr <- err
				return
			}
			select {
			case events <- batch:
			case <-ctx.Done():
				watchErr <- ctx.Err()
				return
			}
		}
	}()
	c.observe(ctx)
	hints := c.hints(ctx)
	observe := newPacer()
	defer observe.stop()
	clock := newPacer()
	defer clock.stop()
	for {
		observe.set(c.every())
		clock.set(map[bool]time.Duration{true: clockEvery}[c.dated()])
		wake, off := c.alarm()
		select {
		case <-ctx.Done():
			<-watchErr
			return nil
		case err := <-watchErr:
			if ctx.Err() != nil {
				return nil
			}
			return err
		case batch := <-events:
			t := touched{jobs: map[jobKey]bool{}, pools: map[poolKey]bool{}, nodes: map[poolKey]map[string]bool{}}
			c.touch(&t, batch)
			// Everything that came meanwhile goes with it: one commit for all.
			for more := true; more; {
				select {
				case batch := <-events:
					c.touch(&t, batch)
				default:
					more = false
				}
			}
			if len(t.jobs)+len(t.pools)+len(t.nodes)+len(t.due)+len(t.budgets) > 0 || t.limits || t.clock {
				c.advance(ctx, t)
			}
		case <-wake:
			now := c.o.DB.Now()
			c.advance(ctx, touched{jobs: c.dueJobs(now), due: c.due(now)})
		case l := <-c.looks:
			c.saw(ctx, l)
		case <-hints:
			c.checkNodes(ctx)
			c.observe(ctx)
		case <-observe.c():
			observe.rang()
			c.observe(ctx)
		case <-clock.c():
			clock.rang()
			c.checkClock(ctx)
		}
		off()
	}
}

// alarm rings when the first pool or job has to be looked at although nothing happened.
func (c *Control) alarm() (ring <-chan time.Time, off func()) {
	var first time.Time
	for _, p := range c.pools {
		if !p.wake.IsZero() && (first.IsZero() || p.wake.Before(first)) {
			first = p.wake
		}
	}
	for _, at := range c.later {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	if first.IsZero() {
		return nil, func() {}
	}
	t := time.NewTimer(max(0, first.Sub(c.o.DB.Now())))
	return t.C, func() { t.Stop() }
}

// due are the pools whose time has come.
func (c *Control) due(now time.Time) (out []poolKey) {
	for k, p := range c.pools {
		if !p.wake.IsZero() && !p.wake.After(now) {
			out = append(out, k)
			p.wake = time.Time{}
		}
	}
	return out
}

// dueJobs are the jobs whose time has come.
func (c *Control) dueJobs(now time.Time) map[jobKey]bool {
	out := map[jobKey]bool{}
	for k, at := range c.later {
		if !at.After(now) {
			out[k] = true
			delete(c.later, k)
		}
	}
	return out
}

// touch collects the jobs and pools whose next step may have changed. Our own events about jobs and sizes are not among the reasons.
func (c *Control) touch(t *touched, batch []berth.Event) {
	room := false
	for _, e := range batch {
		switch e.Type {
		case berth.EventJobCreated, berth.EventJobCancel, berth.EventTaskState:
			if name, ok := strings.CutPrefix(e.Subject, "jobs/"); ok {
				t.jobs[jobKey{e.Workspace, name}] = true
			}
		case berth.EventResourcePut, berth.EventResourceDel, berth.EventComputes, berth.EventCompute, berth.EventNode:
			name, ok := strings.CutPrefix(e.Subject, "computes/")
			if !ok {
				room = room || strings.HasPrefix(e.Subject, "sizes/") // it may be there again, or need no approval any more
				continue
			}
			if e.Type != berth.EventNode {
				t.pools[keyOf(e.Workspace, name)] = true
				continue
			}
			t.node(keyOf(e.Workspace, name), e.Data)
			room = true // what was full may not be so any more
		case berth.EventClock:
			t.clock = true
		case berth.EventQuota:
			room, t.limits = true, true
		case berth.EventBudget, berth.EventBudgetExhausted, berth.EventBudgetRenewed:
			if t.budgets == nil {
				t.budgets = map[string]bool{}
			}
			t.budgets[e.Workspace] = true
		}
	}
	if room {
		t.due = append(t.due, c.short()...)
	}
}

// node notes that a node changed, as the data of its event say.
func (t *touched) node(k poolKey, data json.RawMessage) {
	var v struct{ Node string }
	if json.Unmarshal(data, &v) != nil || v.Node == "" {
		t.pools[k] = true
		return
	}
	if t.nodes[k] == nil {
		t.nodes[k] = map[string]bool{}
	}
	t.nodes[k][v.Node] = true
}

// short are the pools that have fewer nodes than they want, and the machine's own.
func (c *Control) short() (out []poolKey) {
	for k, p := range c.pools {
		if p.local || p.state.Short != "" || p.alone || p.barred {
			out = append(out, k)
		}
	}
	return out
}

// load takes up what an earlier process left: tasks that wait, tasks that were placed, jobs without a task, nodes on their way.
func (c *Control) load(ctx context.Context) error {
	t := touched{jobs: map[jobKey]bool{}}
	err := c.o.DB.View(ctx, func(tx *store.Tx) error {
		if err := c.read(tx); err != nil {
			return err
		}
		for _, p := range c.placed {
			t.jobs[jobKey{p.task.Workspace, p.task.Job}] = true
		}
		for _, g := range c.gangs {
			t.jobs[g.job] = true
		}
		workspaces, err := tx.List(store.Query{Kind: "workspaces"})
		if err != nil {
			return err
		}
		for _, w := range workspaces {
			for after := int64(0); ; {
				jobs, err := tx.List(store.Query{Workspace: w.Name, Kind: "jobs", Status: berth.StatusTexts(berth.ActiveStatuses), After: after, NoBody: true})
				if err != nil {
					return err
				}
				for _, d := range jobs {
					t.jobs[jobKey{d.Workspace, d.Name}] = true
					after = d.ID
				}
				if len(jobs) == 0 {
					break
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.resume(ctx)
	t.pools = map[poolKey]bool{} // what was asked of them and not done yet is done first
	for k := range c.pools {
		t.pools[k] = true
		t.due = append(t.due, k)
	}
	c.advance(ctx, t)
	c.tidyKept()
	for id, p := range c.placed {
		if p.left {
			c.restart(ctx, id, p)
		}
	}
	return nil
}
