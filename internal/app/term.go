package app

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/attach"
	"github.com/berthml/berth/internal/control"
	"github.com/berthml/berth/internal/devbox"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/serve"
	"github.com/berthml/berth/internal/track"
)

// A term is what a server has while it leads: the loops, the way to what tasks run on, and the
// tracking of runs, whose files one process has open at a time.
type term struct {
	number   int64 // 0 where there can be no other server
	proof    string
	targets  *driver.Registry
	gate     *attach.Gate
	tracking *track.Service
	control  *control.Control
	devbox   *devbox.Loop
	serving  *serve.Loop
}

// terms is the present term of a server, if it leads.
type terms struct {
	mu    sync.Mutex
	now   *term
	moved chan struct{} // closed when now changes; nil when nobody waits
}

// set begins a term, or ends it with nil.
func (t *terms) set(now *term) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now = now
	if t.moved != nil {
		close(t.moved)
		t.moved = nil
	}
}

// get is the present term, nil when this server does not lead, and a channel that is closed when
// that changes.
func (t *terms) get() (*term, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.moved == nil {
		t.moved = make(chan struct{})
	}
	return t.now, t.moved
}

// lead is what a server does while it leads, until ctx ends.
func (a *App) lead(ctx context.Context) (err error) {
	if term := berth.TermOf(ctx); term != 0 {
		ctx = berth.WithTermProof(ctx, a.keys.TermProof(term))
	}
	t, err := a.openTerm(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	a.terms.set(t)
	defer a.terms.set(nil)
	defer a.drained()
	if t.number != 0 {
		a.pointHere()
	}
	group, ctx := errgroup.WithContext(ctx)
	keep := func(ctx context.Context) error { return t.gate.Keep(ctx, a.keys.Open) }
	for _, loop := range []func(context.Context) error{t.control.Run, t.devbox.Run, t.serving.Run, t.control.Sweep, t.control.Budgets, t.control.Limits, t.tracking.Run, a.tidyCache, keep} {
		group.Go(func() error { return a.keepRunning(ctx, loop) })
	}
	if t.number != 0 {
		group.Go(func() error { return a.keepPointing(ctx) })
	}
	return group.Wait()
}

// openTerm makes what a server needs to lead.
func (a *App) openTerm(ctx context.Context) (_ *term, err error) {
	t := &term{number: berth.TermOf(ctx), proof: berth.TermProof(ctx)}
	t.targets = a.registry()
	if t.gate, err = attach.NewGate(ctx, a.db, t.targets, a.log); err != nil {
		return nil, errors.Join(err, t.targets.Close())
	}
	o := track.Options{DB: a.db, Blobs: a.blobs, Locator: a.at, Sign: signBlob(a.at, a.signer), Dir: a.trackingDir(), Log: a.log}
	o.KeepDeleted = time.Duration(a.cfg.DeletedRunDays) * 24 * time.Hour
	if o.MaxMemory = a.cfg.TrackingMemory; o.MaxMemory == 0 {
		o.MaxMemory = a.machine.Memory / 4
	}
	if t.number != 0 {
		o.Leads = a.db.Leads
	}
	t.tracking = track.New(o)
	if err := a.openLoops(t); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *term) close() error { return errors.Join(t.gate.Close(), t.tracking.Close()) }

// in is a request that is answered in this term: what it writes is refused when another server
// leads.
func (t *term) in(r *http.Request) *http.Request {
	return r.WithContext(t.bind(r.Context()))
}

// bind makes a context of this term, as in does.
func (t *term) bind(ctx context.Context) context.Context {
	if t.number == 0 {
		return ctx
	}
	return berth.WithTermProof(berth.WithTerm(ctx, t.number), t.proof)
}

func (a *App) trackingDir() string { return filepath.Join(a.cfg.Home, "tracking") }
