// Package control holds the loops that make what the store says come true: jobs become tasks, tasks are placed and started, what
// ended is recorded, what was left behind is swept up.
//
// Nothing here is called by a handler. A loop reads what changed, asks the pure packages what should be, writes that, and only
// then acts; a crash between any two steps is repaired by doing the step again.
package control

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/blob/front"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/locate"
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
	// Targets are the computes tasks can be placed on, by name.
	Targets map[string]Target
	// Curated is the environment behind a curated name.
	Curated func(name string) (berth.LaunchEnv, bool)
	// ImagesOnHost lets jobs that name only an image run without a container.
	ImagesOnHost bool
}

// Target is one compute as control uses it.
type Target struct {
	Driver *driver.Target
	Slots  int
	// Queues says that the target keeps tasks above its slots in line itself, so that some can be handed over early.
	Queues bool
	// SharedDisk says that its tasks write their logs straight into our files.
	SharedDisk bool
	// Home is how its runners reach this server, without a token.
	Home berth.Home
}

// Control runs the loops.
type Control struct {
	o Options

	// The following belong to the loop of Run; nobody else touches them.
	waiting map[string][]*berth.Task // by compute, in the order they should run
	used    map[string]int           // slots taken, by compute
	placed  map[berth.TaskID]*placement
	pace    map[string]*pace // how fast tasks end, by compute

	acts sync.WaitGroup // driver calls under way
	logs shards
}

// placement is a task that was given to a target and has not ended.
type placement struct {
	task    berth.Task
	handle  atomic.Pointer[driver.Handle] // nil until the driver said it
	since   time.Time
	started chan struct{} // closed when Start has answered
	missing int           // how many observations in a row did not list it
}

// New returns a Control that does nothing until Run.
func New(o Options) *Control {
	return &Control{
		o: o, waiting: map[string][]*berth.Task{}, used: map[string]int{}, placed: map[berth.TaskID]*placement{},
		pace: map[string]*pace{},
		logs: shards{dir: o.Blobs.Dir()},
	}
}

// jobKey names a job across workspaces.
type jobKey struct{ workspace, name string }

// Run works until ctx ends, and returns when every call it made has returned.
func (c *Control) Run(ctx context.Context) error {
	defer c.acts.Wait()
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
	observe := newPacer()
	defer observe.stop()
	for {
		observe.set(len(c.placed) > 0)
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
			touched := map[jobKey]bool{}
			c.touch(touched, batch)
			// Everything that came meanwhile goes with it: one commit for all.
			for more := true; more; {
				select {
				case batch := <-events:
					c.touch(touched, batch)
				default:
					more = false
				}
			}
			if len(touched) > 0 {
				c.advance(ctx, touched)
			}
		case <-observe.c():
			c.observe(ctx)
		}
	}
}

// touch collects the jobs whose next step may have changed. Our own job.status events are not among the reasons.
func (c *Control) touch(touched map[jobKey]bool, batch []berth.Event) {
	for _, e := range batch {
		switch e.Type {
		case berth.EventJobCreated, berth.EventJobCancel, berth.EventTaskState:
			if name, ok := cutJob(e.Subject); ok {
				touched[jobKey{e.Workspace, name}] = true
			}
		}
	}
}

func cutJob(subject string) (string, bool) {
	const p = "jobs/"
	if len(subject) > len(p) && subject[:len(p)] == p {
		return subject[len(p):], true
	}
	return "", false
}

// load takes up what an earlier process left: tasks that wait, tasks that were placed, jobs without a task.
func (c *Control) load(ctx context.Context) error {
	touched := map[jobKey]bool{}
	err := c.o.DB.View(ctx, func(tx *store.Tx) error {
		tasks, err := tx.ActiveTasks()
		if err != nil {
			return err
		}
		for _, t := range tasks {
			touched[jobKey{t.Workspace, t.Job}] = true
			if t.State == berth.TaskWaiting {
				c.waiting[t.Compute] = append(c.waiting[t.Compute], t)
				continue
			}
			c.used[t.Compute]++
			c.placed[t.ID] = &placement{task: *t, since: time.Now()}
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
					touched[jobKey{d.Workspace, d.Name}] = true
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
	c.advance(ctx, touched, slices.Collect(maps.Keys(c.waiting))...)
	for id, p := range c.placed {
		if p.started == nil {
			c.restart(ctx, id, p)
		}
	}
	return nil
}
