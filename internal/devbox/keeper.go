package devbox

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// A keeper looks after one instance.
type keeper struct {
	l    *Loop
	key  key
	wake chan struct{}

	// The following belong to run.
	follow   *follower // of the agent that is followed now
	status   *Status   // what it said last; nil when it does not answer
	lost     time.Time // since when it does not
	added    string    // the node that was asked for and is there
	started  int       // the agent that was asked for
	deaths   int       // agents that ended by themselves in a row
	fails    int       // steps that failed in a row
	look     time.Time // when to look at the signals again
	measured time.Time // when the disk was measured
	clock    time.Time // of the last look, for jumps
	awake    string    // what kept it awake at the last look
	awakeAt  time.Time
	said     string // last activity that was made an event
}

func newKeeper(l *Loop, k key) *keeper { return &keeper{l: l, key: k, wake: make(chan struct{}, 1)} }

func (k *keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// view is an instance as the store has it.
type view struct {
	doc    *store.Doc
	state  berth.ComputeState
	it     berth.InstanceState
	spec   Spec
	node   *berth.Node // nil when it has none
	unpaid string      // why nothing is paid for it now; empty when it is
}

func (v *view) op() string {
	if v.it.LastOperation == nil {
		return ""
	}
	return v.it.LastOperation.Name
}

// run goes from one thing to the next until the instance is gone or ctx ends.
func (k *keeper) run(ctx context.Context) {
	defer func() { k.unfollow() }()
	for {
		wait, err := k.step(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case errors.Is(err, errGone):
			k.unfollow()
			if k.l.forget(k) {
				return
			}
			wait = 0
		case errors.Is(err, errAgain):
			wait = 0
		case err != nil:
			k.fails++
			k.l.o.Log.Warn("instance not reconciled; trying again", "instance", k.key.name, "err", err)
			wait = retryAfter(k.fails)
		default:
			k.fails = 0
		}
		k.sleep(ctx, wait)
	}
}

// forever is longer than anybody waits.
const forever = 24 * time.Hour

// sleep waits until something happens or d is over.
func (k *keeper) sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	var said chan report
	if k.follow != nil {
		said = k.follow.said
	}
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-k.wake:
	case r := <-said:
		if r.err != nil {
			if k.status != nil || k.lost.IsZero() {
				k.lost = time.Now()
			}
			k.status = nil
			return
		}
		k.status, k.lost = &r.status, time.Time{}
	}
}

var (
	// errGone says that there is no such instance.
	errGone = errors.New("the instance no longer exists")
	// errAgain says that the instance changed under a step: look again.
	errAgain = errors.New("look again")
)

// step does the next thing and says how long nothing else is to be done.
func (k *keeper) step(ctx context.Context) (time.Duration, error) {
	v, err := k.read(ctx)
	if err != nil {
		return 0, err
	}
	k.syncFollower(ctx, v)
	switch {
	case v.state.State == berth.InstanceDeleting:
		return k.remove(ctx, v)
	case v.it.Want == berth.InstanceRunning && v.it.Node != "" && v.unpaid != "":
		return 0, again(k.change(ctx, v, func(tx *store.Tx, now *view) error {
			if now.unpaid != "" {
				now.it.Ask("Stop", berth.InstanceStopped, "Budget", now.unpaid, tx.Now())
			}
			return nil
		}))
	case v.it.Want == berth.InstanceStopped && v.it.Node != "":
		return k.takeDown(ctx, v, berth.InstanceStopping)
	case v.it.Want == berth.InstanceStopped:
		return k.reconcileStopped(ctx, v)
	case v.it.Node != "" && v.it.Made != v.it.Attempt:
		return k.takeDown(ctx, v, berth.InstanceRestarting)
	case v.it.Node == "":
		return k.requestNode(ctx, v)
	}
	return k.reconcileRunning(ctx, v)
}

// read reads the instance. One that is no longer in the store is taken apart.
func (k *keeper) read(ctx context.Context) (*view, error) {
	v := &view{}
	err := k.l.o.DB.View(ctx, func(tx *store.Tx) error { return v.read(tx, k.key) })
	if berth.CodeOf(err) == berth.NotFound {
		return nil, k.endOrphan(ctx)
	}
	return v, err
}

func (v *view) read(tx *store.Tx, k key) (err error) {
	*v = view{}
	if v.doc, err = tx.Get(k.workspace, "computes", k.name, ""); err != nil {
		return err
	}
	if !IsInstance(v.doc) {
		return berth.Errorf(berth.NotFound, "compute %s is not an instance", k.name)
	}
	if v.state, err = target.State(v.doc); err != nil || v.state.Instance == nil {
		return berth.Errorf(berth.Internal, "the record of instance %s is damaged (%v)", k.name, err)
	}
	v.it = *v.state.Instance
	var body struct {
		Properties json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(v.doc.Body, &body); err != nil {
		return err
	}
	if v.spec, err = Parse(body.Properties); err != nil {
		return err
	}
	if v.unpaid, err = unpaid(tx, k.workspace, v.it.User); err != nil || v.it.Node == "" {
		return err
	}
	_, n, err := target.LoadNode(tx, k.workspace, v.it.Node)
	if berth.CodeOf(err) == berth.NotFound {
		return nil
	}
	v.node = &n
	return err
}

// kindMeter is the kind of the documents that say what was used; control writes them too.
const kindMeter = "meters"

// change reads the instance, lets f change it and writes it, in one transaction. When somebody
// asked for something else since v was read it changes nothing and says errAgain.
func (k *keeper) change(ctx context.Context, v *view, f func(tx *store.Tx, now *view) error) error {
	err := k.l.o.DB.Update(ctx, func(tx *store.Tx) error {
		now := &view{}
		if err := now.read(tx, k.key); err != nil {
			return err
		}
		if now.it.Attempt != v.it.Attempt || now.state.State != v.state.State && now.state.State == berth.InstanceDeleting {
			return errAgain
		}
		if err := f(tx, now); err != nil {
			return err
		}
		now.state.Instance = &now.it
		own, err := json.Marshal(now.state)
		if err != nil {
			return err
		}
		now.doc.Own = own
		return tx.Save(now.doc)
	})
	if berth.CodeOf(err) == berth.NotFound {
		return errAgain
	}
	return err
}

// become moves the instance to a state, with an event that says why.
func (v *view) become(tx *store.Tx, state, why string) {
	v.it.Reason = why
	if v.it.State != state {
		v.it.State, v.it.Since = state, tx.Now()
	}
	data, err := json.Marshal(map[string]any{"state": state})
	if err != nil {
		return
	}
	v.emit(tx, berth.EventCompute, why, data)
}

func (v *view) emit(tx *store.Tx, typ, why string, data json.RawMessage) {
	tx.Emit(berth.Event{Workspace: v.doc.Workspace, Subject: "computes/" + v.doc.Name, Type: typ, Reason: why, Data: data})
}

// warn adds a warning once.
func (v *view) warn(tx *store.Tx, text string) {
	if !slices.Contains(v.it.Warnings, text) {
		v.it.Warnings = append(v.it.Warnings, text)
		v.emit(tx, berth.EventWarning, text, nil)
	}
}

// done ends the operation that is under way.
func (v *view) done(status string) {
	if v.it.LastOperation != nil && v.it.LastOperation.Status == "InProgress" {
		v.it.LastOperation.Status = status
	}
}

// saveNode writes the instance's node and tells the scheduler.
func (v *view) saveNode(tx *store.Tx, n *berth.Node, fresh bool) error {
	d, err := target.NewNode(*n)
	if err != nil {
		return err
	}
	if fresh {
		err = tx.Insert(d)
	} else {
		err = tx.Save(d)
	}
	if err != nil {
		return err
	}
	data, err := json.Marshal(map[string]any{"node": n.Name, "state": n.State})
	if err != nil {
		return err
	}
	v.emit(tx, berth.EventNode, n.Says(), data)
	return nil
}
