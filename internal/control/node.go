package control

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// nodeCall is a call to the provider about a node that is under way.
type nodeCall struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// addNode asks the provider for a node and writes down what became of it.
func (c *Control) addNode(ctx context.Context, n berth.Node) {
	ctx, cancel := context.WithCancel(ctx)
	w := &nodeCall{cancel: cancel, done: make(chan struct{})}
	c.nodeCalls[n.Name] = w
	maker := c.makes(n)
	c.acts.Go(func() {
		defer close(w.done)
		defer cancel()
		address, err := c.make(ctx, maker, n)
		if ctx.Err() != nil {
			return // it is not wanted any more, or we end: whoever comes next asks again
		}
		c.writeNode(ctx, n, func(n *berth.Node, now time.Time) string {
			if n.State != berth.NodePreparing {
				return ""
			}
			if err != nil {
				n.State, n.Why = berth.NodeUnusable, err.Error()
				return "node " + n.Name + " could not be made: " + err.Error()
			}
			n.State, n.Why, n.Ready, n.IdleSince, n.Address = berth.NodeIdle, "", now, now, address
			if why := c.o.Machine.Unlimited; why != "" && n.Provider == "" {
				return "node " + n.Name + " takes jobs; " + why
			}
			return "node " + n.Name + " takes jobs"
		})
	})
}

// make has a provider make a node and waits for it: with its own processes for a moment, with a
// queue of others as long as it takes. What the node waits for is written down.
func (c *Control) make(ctx context.Context, maker *driver.Target, n berth.Node) (address string, err error) {
	spec := driver.NodeSpec{Name: n.Name, Size: n.Size, CPUs: float64(n.VCPUs), Memory: n.Memory, GPUs: n.GPUs, Slots: n.Slots, Low: n.Low}
	if n.Provider == "" {
		return "", maker.AddNode(ctx, spec)
	}
	if spec.Boot, err = c.boot(n); err != nil {
		return "", err
	}
	for {
		err := maker.AddNode(ctx, spec)
		waits, ok := errors.AsType[*driver.Waiting](err)
		if !ok {
			return c.addressOf(ctx, maker, n.Name, err)
		}
		c.writeNode(ctx, n, func(n *berth.Node, _ time.Time) string {
			if n.State != berth.NodePreparing || n.Why == waits.Why {
				return ""
			}
			n.Why = waits.Why
			return "node " + n.Name + " is not there yet: " + waits.Why
		})
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// addressOf is where a node that has been made is reached by others. err is how making it went.
func (c *Control) addressOf(ctx context.Context, maker *driver.Target, name string, err error) (string, error) {
	if err != nil {
		return "", err
	}
	info, err := maker.Probe(ctx)
	return info.AddressOf(name), err
}

// boot is what a machine elsewhere needs to become a node.
func (c *Control) boot(n berth.Node) (*driver.Boot, error) {
	ref, err := berth.ParseRef(n.Workspace+"/computes/"+n.Compute, "computes")
	if err != nil {
		return nil, err
	}
	return &driver.Boot{Compute: n.Compute, Where: ref.Workspace, Token: c.o.Keys.NodeToken(n.Workspace, n.Compute, n.Name), Home: c.o.Far}, nil
}

// removeNode gives a node back, for as long as it takes, and then forgets it.
func (c *Control) removeNode(ctx context.Context, n berth.Node) {
	if c.removing[n.Name] {
		return
	}
	c.removing[n.Name] = true
	w := c.nodeCalls[n.Name]
	delete(c.nodeCalls, n.Name)
	maker := c.makes(n)
	c.acts.Go(func() {
		if w != nil {
			w.cancel()
			<-w.done
		}
		for backoff := 100 * time.Millisecond; ; backoff = min(2*backoff, 10*time.Second) {
			err := maker.RemoveNode(ctx, n.Name)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
			c.o.Log.Warn("node not given back yet", "node", n.Name, "err", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(backoff):
			}
		}
		c.forgetNode(ctx, n)
	})
}

// forgetNode deletes a node's document and writes down what its life cost.
func (c *Control) forgetNode(ctx context.Context, n berth.Node) {
	gone := false
	err := c.o.DB.Update(ctx, func(tx *store.Tx) error {
		gone = false
		// it may have been ready just before it was given up
		_, now, err := target.LoadNode(tx, n.Workspace, n.Name)
		if berth.CodeOf(err) == berth.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		gone = true
		now.Why = n.Why
		n = now
		if err := tx.Delete(n.Workspace, target.KindNode, n.Name, ""); err != nil {
			return err
		}
		if n.Ready.IsZero() { // it never was
			return emitNode(tx, n, "gone", "node "+n.Name+" was given up: "+n.Why)
		}
		err = meter(tx, n.Name, berth.Meter{
			Compute: n.Compute, Node: n.Name, Size: n.Size, Low: n.Low, Rate: n.Price, Priced: n.Priced,
			Currency: n.Currency, Slots: n.Slots, User: n.User, From: n.CostsFrom(), To: tx.Now(),
		}, n.Workspace)
		if err != nil {
			return err
		}
		return emitNode(tx, n, "gone", "node "+n.Name+" was given back: "+n.Why)
	})
	switch {
	case err == nil && gone:
		c.o.Moved(n.State, "")
	case err != nil && ctx.Err() == nil:
		c.o.Log.Error("node not forgotten", "node", n.Name, "err", err)
	}
}

// writeNode changes a node's document. change returns what to say about it, or "" to leave it as it
// is.
func (c *Control) writeNode(ctx context.Context, n berth.Node, change func(n *berth.Node, now time.Time) string) {
	var from, to berth.NodeState
	err := c.o.DB.Update(ctx, func(tx *store.Tx) error {
		from, to = "", ""
		d, v, err := target.LoadNode(tx, n.Workspace, n.Name)
		if berth.CodeOf(err) == berth.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		was := v.State
		say := change(&v, tx.Now())
		if say == "" {
			return nil
		}
		from, to = was, v.State
		if err := target.SetNode(d, v); err != nil {
			return err
		}
		if err := tx.Save(d); err != nil {
			return err
		}
		return emitNode(tx, v, string(v.State), say)
	})
	switch {
	case err == nil && from != to:
		c.o.Moved(from, to)
	case err != nil && ctx.Err() == nil:
		c.o.Log.Error("node not written", "node", n.Name, "err", err)
	}
}

func emitNode(tx *store.Tx, n berth.Node, state, say string) error {
	data, err := json.Marshal(map[string]any{"node": n.Name, "state": state})
	if err != nil {
		return err
	}
	tx.Emit(berth.Event{Workspace: n.Workspace, Subject: "computes/" + n.Compute, Type: berth.EventNode, Reason: say, Data: data})
	return nil
}

// resumeNodes takes up the nodes an earlier process was making or giving back, drops those that are
// gone, and gives back those nobody knows.
func (c *Control) resumeNodes(ctx context.Context) {
	known := map[string]bool{}
	list := c.readyNodes()
	for _, p := range c.state.pools.All() {
		if p.single() {
			continue
		}
		for _, n := range p.nodes {
			known[n.Name] = true
			switch {
			case p.spec.Instance():
			case n.State == berth.NodePreparing:
				c.addNode(ctx, n.Node)
			case n.State == berth.NodeLeaving:
				c.removeNode(ctx, n.Node)
			}
		}
	}
	for _, maker := range c.makers() {
		c.acts.Go(func() {
			info, err := maker.Probe(ctx)
			if err != nil {
				return
			}
			c.dropMissing(ctx, list[maker], info)
			c.dropUnknown(ctx, maker, info, known)
		})
	}
}

// dropUnknown gives back the nodes that nobody knows.
func (c *Control) dropUnknown(ctx context.Context, maker *driver.Target, info driver.Info, known map[string]bool) {
	for _, n := range info.Nodes {
		if known[n.Name] || c.nodeKnown(ctx, n.Name) {
			continue
		}
		c.o.Log.Warn("a node nobody knows is given back", "node", n.Name)
		if err := maker.RemoveNode(ctx, n.Name); err != nil && ctx.Err() == nil {
			c.o.Log.Warn("node not given back", "node", n.Name, "err", err)
		}
	}
}

// tidyKept deletes what jobs kept that have ended while nobody looked.
func (c *Control) tidyKept() {
	dirs, err := os.ReadDir(c.o.Keep)
	if err != nil {
		return // nothing was ever kept
	}
	live := map[string]bool{}
	for _, p := range c.state.placed {
		live[keepName(&p.task)] = true
	}
	for id := range c.state.gangs.All() {
		live[id[:strings.LastIndexByte(id, '.')]] = true
	}
	for _, d := range dirs {
		if !live[d.Name()] {
			c.discard(filepath.Join(c.o.Keep, d.Name()))
		}
	}
}

// nodeKnown says whether some workspace has a node of a name now.
func (c *Control) nodeKnown(ctx context.Context, name string) bool {
	found := true
	err := c.o.DB.View(ctx, func(tx *store.Tx) error {
		workspaces, err := tx.List(store.Query{Kind: "workspaces"})
		if err != nil {
			return err
		}
		for _, w := range workspaces {
			if _, err := tx.Get(w.Name, target.KindNode, name, ""); berth.CodeOf(err) != berth.NotFound {
				return err
			}
		}
		found = false
		return nil
	})
	return err != nil || found
}
