// Package control holds the loops that make what the store says come true: jobs become tasks, tasks
// are placed and started, what ended is recorded, what was left behind is swept up.
//
// Nothing here is called by a handler. A loop reads what changed, asks the pure packages what
// should be, writes that, and only then acts; a crash between any two steps is repaired by doing
// the step again.
package control

import (
	"context"
	"log/slog"
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
	// Near and Far are how runners reach this server, without a token: those that share its disk,
	// and all others.
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
	// QuotaDefault is how many vCPUs of a family may be in use where no limit was set; 0 is no
	// limit.
	QuotaDefault int
	// Location is where the pools of steps without a compute are made.
	Location string
	// Moved is told of each change of a node's state, "" before it was asked for and after it is
	// gone; nil in a server.
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
	pools     map[poolKey]*pool
	gangs     map[string]*gang          // what waits, by the id of its first task
	exhausted map[string][]berth.Budget // by workspace
	personal  quota.Limits              // of single users
	placed    map[berth.TaskID]*placement
	endRates  map[string]*endRate // how fast tasks end, by compute
	nodeCalls map[string]*nodeCall
	jobCache  jobCache
	removing  map[string]bool
	// ended while Start had not answered: only when it has may their targets forget them
	unanswered map[berth.TaskID]*placement
	// the last node that was looked for among those that others make
	lastNodeID int64
	faults     map[jobKey]*fault       // of jobs at which a cycle failed
	stale      bool                    // the picture above is not what the store says
	missed     map[*driver.Target]bool // those that did not see a task when they were last asked
	// those that have not answered yet; true when they are to be asked again
	observing map[*driver.Target]bool

	observations chan observation // answers of targets

	acts    sync.WaitGroup // driver calls under way
	logs    logFolders
	shifted time.Duration // how far the clock had been set when the picture was made

	logged  map[jobKey]logProgress // of jobs without tasks of their own
	revisit map[jobKey]time.Time   // jobs to look at again although nothing happened
	ports   ports
}

// placement is a task that was given to a target and has not ended.
type placement struct {
	task      berth.Task
	handle    atomic.Pointer[driver.Handle] // nil until the driver said it
	started   chan struct{}                 // closed when Start has answered for good
	over      atomic.Bool                   // it has ended: it is not started any more
	inherited bool                          // by an earlier process: it has to be taken up
	missing   int                           // how many observations in a row did not list it
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
		o: o, placed: map[berth.TaskID]*placement{}, endRates: map[string]*endRate{}, nodeCalls: map[string]*nodeCall{}, jobCache: jobCache{}, removing: map[string]bool{}, unanswered: map[berth.TaskID]*placement{},
		exhausted: map[string][]berth.Budget{}, faults: map[jobKey]*fault{}, missed: map[*driver.Target]bool{}, observing: map[*driver.Target]bool{}, observations: make(chan observation), logs: logFolders{dir: o.Blobs.Dir()}, stale: true,
		logged: map[jobKey]logProgress{}, revisit: map[jobKey]time.Time{},
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
	events, watchErr := c.follow(ctx, from)
	c.observe(ctx)
	hints := c.hints(ctx)
	observe, clock := newPacer(), newPacer()
	defer observe.stop()
	defer clock.stop()
	for {
		observe.set(c.observeInterval())
		clock.set(c.clockInterval())
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
			if ch := c.collectAll(batch, events); !ch.empty() {
				c.runUntilCommitted(ctx, ch)
			}
		case <-wake:
			now := c.o.DB.Now()
			c.runUntilCommitted(ctx, changes{jobs: c.dueJobs(now), due: c.duePools(now)})
		case o := <-c.observations:
			c.onObserved(ctx, o)
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

// load takes up what an earlier process left: tasks that wait, tasks that were placed, jobs without
// a task, nodes on their way.
func (c *Control) load(ctx context.Context) error {
	ch := changes{jobs: map[jobKey]bool{}}
	err := c.o.DB.View(ctx, func(tx *store.Tx) error {
		if err := c.readAll(tx); err != nil {
			return err
		}
		for _, p := range c.placed {
			ch.jobs[jobKey{p.task.Workspace, p.task.Job}] = true
		}
		for _, g := range c.gangs {
			ch.jobs[g.job] = true
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
					ch.jobs[jobKey{d.Workspace, d.Name}] = true
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
	c.resumeNodes(ctx)
	ch.pools = map[poolKey]bool{} // what was asked of them and not done yet is done first
	for k := range c.pools {
		ch.pools[k] = true
		ch.due = append(ch.due, k)
	}
	c.runUntilCommitted(ctx, ch)
	c.tidyKept()
	for id, p := range c.placed {
		if p.inherited {
			c.takeUp(ctx, id, p)
		}
	}
	return nil
}
