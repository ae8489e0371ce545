package provided

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/dialout"
)

const (
	// addTime is how long AddNode waits for a node before it says what the node waits for.
	addTime = 4 * time.Second
	// lookEvery is how often the provider is asked meanwhile.
	lookEvery = time.Second
	// watchEvery is how often the provider is asked whether a node is gone.
	watchEvery = 10 * time.Second
)

// Driver runs tasks on nodes that its provider makes.
type Driver struct {
	c       driver.Config
	log     *slog.Logger
	cluster string // what the provider lists its nodes under

	mu     sync.Mutex
	nodes  map[string]*node // that were connected, or are asked for
	hints  map[chan struct{}]bool
	closed bool
}

// node is the server's end of a node's connection.
type node struct {
	*dialout.Driver
	here chan struct{} // closed while the node is connected
	left chan struct{} // closed when it is not; nil before the first connection
}

// Open is the driver's [driver.Open].
func Open(c driver.Config) (driver.Driver, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Provider == nil {
		return nil, berth.Errorf(berth.Invalid, "compute %s: nodes that another compute makes are those of a cluster with the tag %s", c.Name, berth.TagProvider)
	}
	return &Driver{c: c, log: c.Log, cluster: strings.ToLower(c.Name), nodes: map[string]*node{}, hints: map[chan struct{}]bool{}}, nil
}

// Close lets go of the nodes, which run on.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	all := d.nodes
	d.nodes = map[string]*node{}
	d.mu.Unlock()
	var err error
	for _, n := range all {
		err = errors.Join(err, n.Close())
	}
	return err
}

// Describe is [driver.Describer.Describe].
func (d *Driver) Describe() driver.Info {
	return driver.Info{Distributed: true, Scales: true, Watches: true}
}

// Probe is [driver.Driver.Probe]. Nodes that are gone are listed as leaving.
func (d *Driver) Probe(ctx context.Context) (driver.Info, error) {
	info := d.Describe()
	made, err := d.made(ctx)
	for _, m := range made {
		info.Nodes = append(info.Nodes, driver.Node{Name: m.Name, CPUs: 1, OS: "linux", Leaving: m.Gone, Taken: m.Taken, Away: m.Why, Address: m.Address})
	}
	return info, err
}

// made lists the machines of the provider.
func (d *Driver) made(ctx context.Context) ([]driver.MadeNode, error) {
	p, err := d.c.Provider()
	if err != nil {
		return nil, err
	}
	return p.MadeNodes(ctx, d.cluster)
}

// find is what the provider says of a machine, false when it has none of the name.
func (d *Driver) find(ctx context.Context, name string) (driver.MadeNode, bool, error) {
	all, err := d.made(ctx)
	i := slices.IndexFunc(all, func(m driver.MadeNode) bool { return m.Name == name })
	if err != nil || i < 0 {
		return driver.MadeNode{}, false, err
	}
	return all[i], true, nil
}

// node finds the connection of a node, or makes the place for it.
func (d *Driver) node(name string) (*node, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.nodes[name]; n != nil {
		return n, nil
	}
	if d.closed {
		return nil, berth.Errorf(berth.Unavailable, "the server is shutting down")
	}
	inner, err := dialout.Open(driver.Config{Name: name, Log: d.log})
	if err != nil {
		return nil, err
	}
	n := &node{Driver: inner.(*dialout.Driver), here: make(chan struct{})}
	n.RelayTo(nil, berth.Errorf(berth.Unavailable, "node %s is not connected", name)) // its tasks reach the server themselves
	d.nodes[name] = n
	return n, nil
}

// connected says whether a node is connected, and when that changes.
func (d *Driver) connected(n *node) (bool, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-n.here:
		return true, nil
	default:
		return false, n.here
	}
}

// AcceptNode is [driver.NodeAcceptor.AcceptNode].
func (d *Driver) AcceptNode(ctx context.Context, name string, c net.Conn) (<-chan error, error) {
	n, err := d.node(name)
	if err != nil {
		return nil, err
	}
	ended, err := n.Accept(ctx, c)
	if err != nil {
		return nil, err
	}
	out := make(chan error, 1)
	left := make(chan struct{})
	d.mu.Lock()
	n.left = left
	select {
	case <-n.here:
	default:
		close(n.here)
	}
	d.mu.Unlock()
	go func() {
		why := <-ended
		d.mu.Lock()
		if n.left == left { // it has not connected again
			n.here = make(chan struct{})
		}
		d.mu.Unlock()
		d.hint() // the node may be gone
		out <- why
	}()
	return out, nil
}

// AddNode is [driver.Scaler.AddNode].
func (d *Driver) AddNode(ctx context.Context, s driver.NodeSpec) error {
	if s.Boot == nil {
		return berth.Errorf(berth.Internal, "node %s cannot be made without a way to connect", s.Name)
	}
	n, err := d.node(s.Name)
	if err != nil {
		return err
	}
	if there, _ := d.connected(n); there {
		return nil
	}
	p, err := d.c.Provider()
	if err != nil {
		return waiting(err.Error())
	}
	boot := *s.Boot
	boot.Cluster = d.cluster
	if boot.Join, err = joinFile(s); err != nil {
		return err
	}
	s.Boot = &boot
	if err := p.MakeNode(ctx, s); err != nil {
		if berth.CodeOf(err) == berth.Unavailable {
			return waiting(err.Error())
		}
		return err
	}
	return d.await(ctx, n, s.Name)
}

// await waits until a node is connected, as long as its provider has it, and not too long.
func (d *Driver) await(ctx context.Context, n *node, name string) error {
	late := time.NewTimer(addTime)
	defer late.Stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for why := "asked for"; ; {
		there, here := d.connected(n)
		if there {
			return nil
		}
		select {
		case <-here:
			continue
		case <-ctx.Done():
			return waiting(why)
		case <-late.C:
			return waiting(why)
		case <-tick.C:
		}
		m, found, err := d.find(ctx, name)
		switch {
		case err != nil:
			why = err.Error()
		case !found || m.Gone:
			return berth.Errorf(berth.Unavailable, "node %s did not come: %s", name, m.Why)
		case m.Why != "":
			why = m.Why
		default:
			why = "its machine is there, and has not connected yet"
		}
	}
}

func waiting(why string) error {
	return berth.Errorf(berth.Unavailable, "%w", &driver.Waiting{Why: why})
}

// joinFile is the file that a node connects with.
func joinFile(s driver.NodeSpec) ([]byte, error) {
	b := s.Boot
	return json.Marshal(join{
		Join:  dialout.Join{Server: b.Home.URL, Workspace: b.Where, Compute: b.Compute, Token: b.Token, CA: b.Home.CA},
		Node:  s.Name,
		Slots: max(1, s.Slots),
	})
}

// join is what a node needs to connect.
type join struct {
	dialout.Join
	Node  string `json:"node"`
	Slots int    `json:"slots"`
}

// RemoveNode is [driver.Scaler.RemoveNode].
func (d *Driver) RemoveNode(ctx context.Context, name string) error {
	p, err := d.c.Provider()
	if err != nil {
		return err
	}
	if err := p.UnmakeNode(ctx, d.cluster, name); err != nil {
		return err
	}
	d.mu.Lock()
	n := d.nodes[name]
	delete(d.nodes, name)
	d.mu.Unlock()
	if n != nil {
		return n.Close()
	}
	return nil
}

// Start is [driver.Driver.Start]. A launch for a node that is gone is NotFound.
func (d *Driver) Start(ctx context.Context, l berth.Launch) (driver.Handle, error) {
	n, err := d.node(l.Node)
	if err != nil {
		return "", err
	}
	if there, _ := d.connected(n); !there {
		m, found, err := d.find(ctx, l.Node)
		if err == nil && (!found || m.Gone) {
			return "", berth.Errorf(berth.NotFound, "node %s is gone: %w", l.Node, &driver.Gone{Why: m.Why})
		}
		return "", &driver.Unsent{Err: berth.Errorf(berth.Unavailable, "node %s is not connected", l.Node)}
	}
	h, err := n.Start(ctx, l)
	return handle(l.Node, h), err
}

// handle and of are the two ends of a handle: the node, and its own handle.
func handle(node string, h driver.Handle) driver.Handle {
	return driver.Handle("provided1:"+node+"/") + h
}

// of finds the node of a handle, nil when it is gone.
func (d *Driver) of(h driver.Handle) (*node, driver.Handle, error) {
	rest, ok := strings.CutPrefix(string(h), "provided1:")
	name, inner, found := strings.Cut(rest, "/")
	if !ok || !found {
		return nil, "", berth.Errorf(berth.Invalid, "%q is not a handle of a provided node", h)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.nodes[name], driver.Handle(inner), nil
}

// Observe is [driver.Driver.Observe]. What was on nodes that are gone is gone with them; those that
// are there and not connected are not seen.
func (d *Driver) Observe(ctx context.Context) ([]driver.Observed, error) {
	made, err := d.made(ctx)
	if err != nil {
		return nil, err
	}
	nodes := map[string]driver.Driver{}
	for _, m := range made {
		if m.Gone {
			continue
		}
		if nodes[m.Name], err = d.node(m.Name); err != nil {
			return nil, err
		}
	}
	return driver.ObserveNodes(ctx, nodes, handle)
}

// Stop is [driver.Driver.Stop].
func (d *Driver) Stop(ctx context.Context, h driver.Handle, s driver.Stop) error {
	n, inner, err := d.of(h)
	if err != nil || n == nil {
		return err
	}
	return n.Stop(ctx, inner, s)
}

// Remove is [driver.Driver.Remove].
func (d *Driver) Remove(ctx context.Context, h driver.Handle) error {
	n, inner, err := d.of(h)
	if err != nil || n == nil {
		return err
	}
	return n.Remove(ctx, inner)
}

// Watch is [driver.Watcher.Watch]. It hints when a node has ended its connection, and when the
// provider says that one is gone.
func (d *Driver) Watch(ctx context.Context) (<-chan struct{}, error) {
	c := make(chan struct{}, 1)
	d.mu.Lock()
	d.hints[c] = true
	d.mu.Unlock()
	go func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				d.look(ctx)
			case <-ctx.Done():
				d.mu.Lock()
				delete(d.hints, c)
				d.mu.Unlock()
				close(c)
				return
			}
		}
	}()
	return c, nil
}

// look hints when a node is gone.
func (d *Driver) look(ctx context.Context) {
	d.mu.Lock()
	some := len(d.nodes) > 0
	d.mu.Unlock()
	if !some {
		return
	}
	all, err := d.made(ctx)
	if err == nil && slices.ContainsFunc(all, func(m driver.MadeNode) bool { return m.Gone }) {
		d.hint()
	}
}

// hint tells everybody who watches.
func (d *Driver) hint() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.hints {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
