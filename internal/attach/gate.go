package attach

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/dialout"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// probeTime is how long a machine that has just connected may take to say what it can do.
const probeTime = 30 * time.Second

// Gate lets agents in and keeps what is known of their machines up to date.
type Gate struct {
	db      *store.DB
	targets *driver.Registry
	log     *slog.Logger
	next    func(*store.Watch) ([]berth.Event, error) // how events are read; another one in tests

	mu     sync.Mutex
	closed bool
	open   sync.WaitGroup // connections that are looked after
}

// NewGate makes a gate to the targets of a registry. What an earlier server had connected it writes
// down as away.
func NewGate(ctx context.Context, db *store.DB, targets *driver.Registry, log *slog.Logger) (*Gate, error) {
	g := &Gate{db: db, targets: targets, log: log, next: (*store.Watch).Next}
	return g, g.reset(ctx)
}

// reset writes down that nobody is connected to a server that has just begun.
func (g *Gate) reset(ctx context.Context) error {
	var left []*store.Doc
	err := g.db.View(ctx, func(tx *store.Tx) error {
		all, err := computes(tx)
		for _, d := range all {
			if st, err := target.State(d); err == nil && st.Attached != nil && st.Attached.Connected {
				left = append(left, d)
			}
		}
		return err
	})
	for _, d := range left {
		err = errors.Join(err, g.away(ctx, d.Workspace, d.Name, "", "the server was restarted"))
	}
	return err
}

// Close lets all agents go, and returns when nothing more is written.
func (g *Gate) Close() error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	err := g.targets.Close()
	g.open.Wait()
	return err
}

// Check refuses a compute that this server has no driver for, that could never work, or that cannot
// take the place of old, which is nil for a new one.
func (g *Gate) Check(workspace, name string, old, body json.RawMessage) error {
	return g.targets.Check(driver.Compute{Workspace: workspace, Name: name, Body: body}, old)
}

// Drop ends the connection of a compute's machine, if it has one, because its token is not good any
// more. Its tasks run on.
func (g *Gate) Drop(d *store.Doc) {
	target, err := g.targets.Of(driver.Compute{Workspace: d.Workspace, Name: d.Name, Body: d.Body})
	if err != nil {
		return // there is nothing to end
	}
	if a, ok := target.Driver().(interface{ Drop(error) }); ok {
		a.Drop(errUnknown)
	}
}

// errUnknown is the answer to every agent that is not known, whatever is wrong: it tells a stranger
// nothing.
var errUnknown = berth.Errorf(berth.Unauthenticated, "this agent's token is not valid: its compute was detached, or `berth agent join` has created another one since; create a new file with `berth agent join`")

// An Agent is one that has shown the token of its compute, or of its node.
type Agent struct {
	compute *store.Doc
	state   *berth.AttachedState
	node    string // of a cluster whose nodes connect by themselves
}

// Authenticate finds out whose agent sends a request, or says why it is refused. Nothing is read of
// its connection.
func Authenticate(r *http.Request, db *store.DB, keys *auth.Keys, token string) (Agent, error) {
	ws, compute := dialout.Place(r)
	var d *store.Doc
	node := r.Header.Get(dialout.HeaderID)
	err := db.View(r.Context(), func(tx *store.Tx) (err error) {
		if d, err = tx.Get(ws.Key(), kindCompute, compute, ""); err != nil || !provided(d) {
			return err
		}
		if !keys.CheckNode(token, d.Workspace, d.Name, node) {
			return errUnknown
		}
		_, n, err := target.LoadNode(tx, d.Workspace, node)
		if err == nil && (n.State == berth.NodeLeaving || !strings.EqualFold(n.Compute, d.Name)) {
			return errGivenBack
		}
		return err
	})
	if err == nil && provided(d) {
		auth.Known(r.Context(), "node "+node+" of "+d.Workspace+"/"+d.Name)
		return Agent{compute: d, node: node}, nil
	}
	if berth.CodeOf(err) == berth.NotFound {
		return Agent{}, errUnknown
	}
	if err != nil {
		return Agent{}, err
	}
	st, err := target.State(d)
	if err != nil || !Uses(d) || !opens(st.Attached, token) {
		return Agent{}, errUnknown
	}
	auth.Known(r.Context(), "machine of "+d.Workspace+"/"+d.Name)
	return Agent{compute: d, state: st.Attached}, nil
}

// errGivenBack is the answer to a node that nobody wants any more.
var errGivenBack = berth.Errorf(berth.Unauthenticated, "the node was given back")

// provided says whether the nodes of a compute connect by themselves.
func provided(d *store.Doc) bool {
	spec, err := berth.ReadPool(d.Body)
	return err == nil && spec.Provider != ""
}

// Connect takes the connection of an agent and looks after it until it ends or the context of the
// request does, or says why not.
func (g *Gate) Connect(w http.ResponseWriter, r *http.Request, a Agent) error {
	d, id, host := a.compute, r.Header.Get(dialout.HeaderID), dialout.Clean(r.Header.Get(dialout.HeaderHost), 253)
	if err := dialout.Check(r); err != nil {
		return err
	}
	if id == "" || len(id) > 100 || dialout.Clean(id, 100) != id {
		return berth.Errorf(berth.Invalid, "the agent did not identify its machine")
	}
	if a.node == "" {
		if err := mine(d.Name, a.state, id); err != nil {
			return err
		}
	}
	target, err := g.targets.Of(driver.Compute{Workspace: d.Workspace, Name: d.Name, Body: d.Body})
	if err != nil {
		return err
	}
	accept, ok := acceptor(target.Driver(), a.node)
	if !ok {
		return berth.Errorf(berth.Unsupported, "compute %s is not a machine that connects to the server", d.Name)
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return berth.Errorf(berth.Unavailable, "the server is shutting down")
	}
	g.open.Add(1)
	g.mu.Unlock()
	defer g.open.Done()
	conn, err := dialout.Upgrade(w)
	if err != nil {
		return err
	}
	defer conn.Close()
	ended, err := accept(r.Context(), conn)
	if err != nil {
		g.log.Info("machine not connected", "compute", d.Name, "host", host, "err", err)
		return nil // there is nobody to answer to any more
	}
	if a.node != "" { // what is known of it is the control loop's
		g.log.Info("node connected", "compute", d.Name, "node", a.node, "host", host)
		select {
		case why := <-ended:
			g.log.Info("node disconnected", "compute", d.Name, "node", a.node, "err", why)
		case <-r.Context().Done():
		}
		return nil
	}
	_ = g.attend(r.Context(), d, target, &driver.Connection{Ended: ended}, berth.AttachedState{ // it has been said
		TokenHash: a.state.TokenHash, Machine: id, Host: host, Version: dialout.Clean(r.Header.Get(dialout.HeaderVersion), 40), Session: berth.NewGUID(),
	})
	return nil
}

// acceptor is how a driver takes over the connection of its machine, or of one of its nodes.
func acceptor(d driver.Driver, node string) (accept func(context.Context, net.Conn) (<-chan error, error), ok bool) {
	if node != "" {
		n, ok := d.(driver.NodeAcceptor)
		return func(ctx context.Context, c net.Conn) (<-chan error, error) { return n.AcceptNode(ctx, node, c) }, ok
	}
	a, ok := d.(driver.Acceptor)
	if !ok {
		return nil, false
	}
	return a.Accept, true
}

// attend keeps the state of a machine up to date while it is connected. The error is why it was not
// used at all.
func (g *Gate) attend(ctx context.Context, d *store.Doc, target *driver.Target, c *driver.Connection, a berth.AttachedState) error {
	if err := g.look(ctx, d, target, a); err != nil {
		g.log.Warn("connected machine rejected", "compute", d.Name, "host", a.Host, "err", err)
		return err
	}
	g.log.Info("machine connected", "compute", d.Name, "host", a.Host)
	wctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { g.watch(wctx, d, a.TokenHash) })
	defer watching.Wait()
	defer stop()
	var why error
	for why == nil {
		select {
		case why = <-c.Ended:
		case <-c.Changed:
			a.HostKeys = c.Keys()
			if err := g.look(ctx, d, target, a); err != nil {
				g.log.Warn("what is new of a compute was not recorded", "compute", d.Name, "err", err)
			}
		case <-ctx.Done():
			return nil // the next server writes it down
		}
	}
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed {
		return nil // as above
	}
	g.log.Info("machine disconnected", "compute", d.Name, "host", a.Host, "err", why)
	actx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTime)
	defer cancel()
	if err := g.away(actx, d.Workspace, d.Name, a.Session, why.Error()); err != nil && berth.CodeOf(err) != berth.NotFound {
		g.log.Error("machine's disconnection not recorded", "compute", d.Name, "err", err)
	}
	return nil
}

// look asks a machine what it can do, and writes it down.
func (g *Gate) look(ctx context.Context, d *store.Doc, target *driver.Target, a berth.AttachedState) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	info, err := target.Probe(ctx)
	if err != nil {
		return err
	}
	return g.here(ctx, d, a, info)
}

// watch ends the connection of a machine when its token is not good any more, whichever server was
// told so.
func (g *Gate) watch(ctx context.Context, d *store.Doc, tokenHash string) {
	for ctx.Err() == nil {
		// What happens after this revision wakes it, what happened before is seen by good.
		w := g.db.WatchSubject(ctx, g.db.Rev(), d.Workspace, "computes/"+d.Name)
		good, err := g.good(ctx, d, tokenHash)
		if err == nil && !good {
			g.Drop(d)
			return
		}
		if err == nil {
			_, err = g.next(w)
		}
		if err != nil && berth.CodeOf(err) != berth.Gone {
			rest(ctx, firstPause)
		}
	}
}

// good says whether the token of a hash is that of a compute.
func (g *Gate) good(ctx context.Context, d *store.Doc, tokenHash string) (good bool, err error) {
	err = g.db.View(ctx, func(tx *store.Tx) error {
		now, err := tx.Get(d.Workspace, kindCompute, d.Name, "")
		if err != nil {
			return err
		}
		st, err := target.State(now)
		good = st.Attached != nil && st.Attached.TokenHash == tokenHash
		return err
	})
	if berth.CodeOf(err) == berth.NotFound {
		return false, nil
	}
	return good, err
}

// rest waits, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// here writes down that a machine is connected, and what it can do.
func (g *Gate) here(ctx context.Context, d *store.Doc, a berth.AttachedState, info driver.Info) error {
	a.Connected, a.Since = true, g.db.Now()
	a.SharedDisk, a.Queues, a.Distributed, a.Address = info.SharedDisk, info.Queues, info.Distributed, info.Address
	a.MaxNodes, a.Dials = min(max(0, info.MaxNodes), maxSlots), info.Dials
	for _, n := range info.Nodes {
		a.CPUs, a.Memory, a.GPUs, a.Slots = a.CPUs+n.CPUs, a.Memory+n.Memory, a.GPUs+n.GPUs, a.Slots+n.Slots
		a.OS, a.Arch = dialout.Clean(n.OS, 20), dialout.Clean(n.Arch, 20)
	}
	a.Slots = min(max(1, a.Slots), maxSlots)
	if info.Places {
		a.Machines = machines(info.Nodes)
	}
	for _, w := range info.Warnings[:min(len(info.Warnings), 10)] {
		a.Warnings = append(a.Warnings, dialout.Clean(w, 500))
	}
	return change(ctx, g.db, d.Workspace, d.Name, func(_ *store.Doc, st *berth.ComputeState) (string, error) {
		if st.Attached == nil {
			st.Attached = &berth.AttachedState{}
		}
		if st.Attached.TokenHash != a.TokenHash {
			return "", errUnknown // another token was made meanwhile
		}
		if err := mine(d.Name, st.Attached, a.Machine); err != nil {
			return "", err
		}
		was := *st.Attached
		st.Attached = &a
		if was.Connected && was.Session == a.Session {
			a.Since = was.Since
			return changesOf(&a, was, g.db.Now()), nil
		}
		changesOf(&a, was, a.Since)
		return "machine " + a.Host + " connected", nil
	})
}

// changesOf says which machines of a pool have come and gone, and since when each is what it is.
func changesOf(a *berth.AttachedState, was berth.AttachedState, now time.Time) string {
	var say []string
	for i := range a.Machines {
		m := &a.Machines[i]
		m.Since = now
		k := slices.IndexFunc(was.Machines, func(x berth.AttachedMachine) bool { return x.Name == m.Name })
		switch {
		case k >= 0 && was.Machines[k].Refuses() == m.Refuses():
			m.Since = was.Machines[k].Since
		case m.Refuses() != "":
			say = append(say, "machine "+m.Name+" is drained: "+m.Refuses())
		case k >= 0 && was.Machines[k].Away == "":
			say = append(say, "machine "+m.Name+" takes jobs again")
		default:
			say = append(say, "machine "+m.Name+" connected")
		}
		if k >= 0 && m.Machine == "" {
			m.Machine = was.Machines[k].Machine
		}
	}
	for _, w := range a.Warnings {
		if was.Connected && !slices.Contains(was.Warnings, w) {
			say = append(say, w)
		}
	}
	return strings.Join(say, "; ")
}

// machines are the machines of a pool.
func machines(nodes []driver.Node) (all []berth.AttachedMachine) {
	for _, n := range nodes {
		all = append(all, berth.AttachedMachine{
			Name: n.Name, Address: n.Address, Machine: n.Machine, Away: dialout.Clean(n.Away, 500), Drained: dialout.Clean(n.Drained, 500), CPUs: n.CPUs, Memory: n.Memory, GPUs: n.GPUs,
			OS: dialout.Clean(n.OS, 20), Arch: dialout.Clean(n.Arch, 20), Slots: min(max(1, n.Slots), maxSlots),
		})
	}
	return all
}

// maxSlots bounds what a machine may say of itself.
const maxSlots = 10000

// away writes down that a connection is over. A newer one is left alone.
func (g *Gate) away(ctx context.Context, workspace, name, session, why string) error {
	return change(ctx, g.db, workspace, name, func(_ *store.Doc, st *berth.ComputeState) (string, error) {
		a := st.Attached
		if a == nil || !a.Connected || session != "" && a.Session != session {
			return "", nil
		}
		a.Connected, a.Since, a.Why = false, g.db.Now(), dialout.Clean(why, 500)
		return "machine " + a.Host + " is not connected: " + a.Why, nil
	})
}

// mine refuses a machine that is not the compute's. The tasks of a compute are known to one
// machine: those of another one would seem to have disappeared.
func mine(compute string, a *berth.AttachedState, id string) error {
	if a.Machine == "" || a.Machine == id {
		return nil
	}
	if a.TokenHash == "" {
		return berth.Errorf(berth.Denied, "compute %s is no longer the same machine (it was %s), so its jobs are gone; detach the compute and attach it again", compute, a.Host)
	}
	return berth.Errorf(berth.Conflict, "compute %s belongs to another machine, %s; to move it to this one, wait until it has no jobs and create a new file with `berth agent join %s`", compute, a.Host, compute)
}
