// Package control holds the loops that make true what the store says: jobs become tasks, tasks are
// placed and started, what ended is recorded, and what was left behind is removed.
//
// Nothing here is called by a handler. A cycle (cycle.go) reads what changed, asks the pure
// packages what should be, and writes that in one transaction; only when it is durable are the
// state changed (state.go) and the plan carried out (plan.go). A crash between any two steps is
// repaired by doing the step again.
package control

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/blob/front"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/metrics"
	"github.com/berthml/berth/internal/sched"
	"github.com/berthml/berth/internal/store"
)

// Options configures a Control.
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
	// CheckJob returns an error with the code Conflict if a new job of a user cannot have a name,
	// although there is no job of that name: it is the id of a run that is not a job, be it the
	// user's own, or the run of a deleted job of somebody else. Nil refuses none.
	CheckJob func(tx *store.Tx, workspace, name, user string) error
	// Replica is what a job that is a replica of an online deployment finds in its environment
	// besides; nil is nothing.
	Replica func(job string) map[string]string
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
	// Location is where pools for steps without a compute are created.
	Location string
	// Moved is called for each change of a node's state, "" before it was requested and after it is
	// gone; nil in a server.
	Moved func(from, to berth.NodeState)
	// Keep is a directory for what the attempts at a job hand on to each other.
	Keep string
	// KeepDays is for how many days each kind of what jobs left is kept, where their workspace does
	// not say; 0 is for ever.
	KeepDays map[string]int
	// KeepMeters is for how many days meters are kept before they are rolled up, KeepEvents for how
	// many days events are; 0 is for ever.
	KeepMeters, KeepEvents int
}

// Control runs the loops.
type Control struct {
	o Options
	targets
	cycles metrics.Histogram
	// probe is called before each try at a cycle or at a task that is taken up, which it names, and
	// what it returns after it, with the outcome; nil but in tests.
	probe func(takenUp berth.TaskID, outcome *error) (after func())

	// The following belong to the loop of Run; nobody else touches them.

	state    *state
	jobCache jobCache
	faults   map[jobKey]*fault      // of jobs at which a cycle failed
	revisit  map[jobKey]time.Time   // jobs to look at again although nothing happened
	logged   map[jobKey]logProgress // of jobs without tasks of their own
	endRates map[string]*endRate    // how fast tasks end, by compute
	ports    ports
	logs     logFolders

	// Calls under way, and what they wait for:

	acts                 sync.WaitGroup
	nodeCalls            map[string]*nodeCall
	removing             map[string]bool         // nodes that are given back
	observations         chan observation        // answers of targets
	missed               map[*driver.Target]bool // those that did not see a task when they were last asked
	checking, checkAgain bool                    // the nodes are being looked at, and are to be once more
	checked              chan struct{}           // they were looked at
	watched              map[*driver.Target]bool // those that tell when a node is not what it was
	hints                chan struct{}           // one of them did

	// observing are targets that have not answered yet; true when they are to be asked again.
	observing map[*driver.Target]bool
	// unanswered are tasks that ended while Start had not answered: only when it has may their
	// targets forget them.
	unanswered map[berth.TaskID]*placement
	// endedOfGangs are tasks that ended and whose gangs go on, by gang.
	endedOfGangs map[string][]*placement
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
		o: o, state: &state{}, jobCache: jobCache{}, faults: map[jobKey]*fault{}, revisit: map[jobKey]time.Time{},
		logged: map[jobKey]logProgress{}, endRates: map[string]*endRate{}, logs: logFolders{dir: o.Blobs.Dir()},
		nodeCalls: map[string]*nodeCall{}, removing: map[string]bool{}, observations: make(chan observation), checked: make(chan struct{}),
		watched: map[*driver.Target]bool{}, hints: make(chan struct{}, 1),
		missed: map[*driver.Target]bool{}, observing: map[*driver.Target]bool{}, unanswered: map[berth.TaskID]*placement{}, endedOfGangs: map[string][]*placement{},
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
	observe, clock := newPacer(), newPacer()
	defer observe.stop()
	defer clock.stop()
	for {
		c.watchMakers(ctx)
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
				if len(ch.nodes) > 0 {
					c.checkNodes(ctx)
				}
			}
		case <-wake:
			now := c.o.DB.Now()
			c.runUntilCommitted(ctx, changes{jobs: c.dueJobs(now), due: c.duePools(now)})
		case o := <-c.observations:
			c.onObserved(ctx, o)
		case <-c.checked:
			c.onChecked(ctx)
		case <-c.hints:
			c.checkNodes(ctx)
			c.observe(ctx)
		case <-observe.c():
			observe.rang()
			c.takeUpInherited(ctx)
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
	ch := newChanges()
	ch.reload = true
	err := c.o.DB.View(ctx, func(tx *store.Tx) (err error) {
		if c.state, err = c.readState(tx, &state{}); err != nil {
			return err
		}
		return activeJobs(tx, ch.jobs)
	})
	if err != nil {
		return err
	}
	c.resumeNodes(ctx)
	for _, p := range c.state.placed {
		ch.jobs[jobKey{p.task.Workspace, p.task.Job}] = true
	}
	for _, g := range c.state.gangs.All() {
		ch.jobs[g.job] = true
	}
	for k := range c.state.pools.All() { // what was asked of them and not done yet is done first
		ch.pools[k] = true
		ch.due = append(ch.due, k)
	}
	c.runUntilCommitted(ctx, ch)
	c.tidyKept()
	return nil
}

// activeJobs adds the jobs that are not over.
func activeJobs(tx *store.Tx, keys map[jobKey]bool) error {
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
				keys[jobKey{d.Workspace, d.Name}] = true
				after = d.ID
			}
			if len(jobs) == 0 {
				break
			}
		}
	}
	return nil
}
