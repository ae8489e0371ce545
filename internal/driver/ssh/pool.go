package ssh

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/dialout"
)

// Pool runs tasks on several machines, each of which is a node. It keeps one connection to each.
type Pool struct {
	log      *slog.Logger
	jobs     string // per node; see slots
	machines []*member

	mu  sync.Mutex
	run *poolRun // nil while there is no connection
}

// member is a machine of a pool.
type member struct {
	name string
	peer string // where the others reach it
	d    *Driver

	// With the pool's mutex:

	body []byte      // its document, as that of a single machine
	id   string      // of its agent; empty until it was connected
	away string      // why it is not connected; empty when it is
	info driver.Node // as it was last probed; what it says of Drained is renewed
	full time.Time   // until when it takes no tasks because it had no room for one
	seen time.Time   // when it was last asked whether it takes tasks
}

// openPool opens the driver of several machines.
func openPool(c driver.Config, v document) (driver.Driver, error) {
	p := &Pool{log: c.Log, jobs: v.jobs}
	for _, x := range v.machines {
		own := c
		own.Dir, own.Properties = filepath.Join(c.Dir, driver.Key(x.name)), x.body
		d, err := openMachine(own)
		if err != nil {
			return nil, err
		}
		p.machines = append(p.machines, &member{name: x.name, peer: x.peer, body: x.body, d: d, away: untried})
	}
	return p, nil
}

// untried is why a machine is away before the first attempt.
const untried = "it has not been connected to yet"

// poolRun is the connections to the machines from one Connect on.
type poolRun struct {
	cancel  context.CancelFunc
	changed chan struct{} // has room for one
	ended   chan error
	once    sync.Once
	first   sync.WaitGroup // the first attempts
	keepers sync.WaitGroup
	keys    map[string]string
	there   int // machines that are connected
}

func (r *poolRun) end(why error) {
	r.once.Do(func() {
		r.cancel()
		r.ended <- why
	})
}

// notify says that something changed.
func (r *poolRun) notify() {
	select {
	case r.changed <- struct{}{}:
	default: // it was said already
	}
}

// Connect is [driver.Connector.Connect]. The connection stands while one machine is connected;
// meanwhile the others are tried again.
func (p *Pool) Connect(ctx context.Context, a driver.Access) (*driver.Connection, error) {
	v, err := readDocument(a.Properties)
	if err != nil {
		return nil, err
	}
	p.Drop(berth.Errorf(berth.Conflict, "it is connected to again"))
	keep, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &poolRun{cancel: cancel, changed: make(chan struct{}, 1), ended: make(chan error, 1), keys: maps.Clone(a.HostKeys)}
	if r.keys == nil {
		r.keys = map[string]string{}
	}
	connected := make(chan struct{}, len(p.machines))
	p.mu.Lock()
	p.run = r
	for i, m := range p.machines {
		if i < len(v.machines) {
			m.body = v.machines[i].body
		}
		m.away = untried
		r.first.Add(1)
		r.keepers.Go(func() { p.keep(keep, r, m, a, connected) })
	}
	p.mu.Unlock()
	tried := make(chan struct{})
	go func() {
		r.first.Wait()
		close(tried)
	}()
	select {
	case <-connected:
	case <-tried:
	case <-ctx.Done():
	}
	select { // those that are as quick as the first are seen at once
	case <-tried:
	case <-time.After(firstTime):
	case <-ctx.Done():
	}
	p.mu.Lock()
	there, refusal := r.there, p.refusal()
	p.mu.Unlock()
	if there == 0 {
		p.Drop(refusal)
		return nil, refusal
	}
	keys := func() map[string]string {
		p.mu.Lock()
		defer p.mu.Unlock()
		return maps.Clone(r.keys)
	}
	return &driver.Connection{
		Machine: "pool", Host: strconv.Itoa(len(p.machines)) + " machines", HostKeys: keys(), Ended: r.ended, Changed: r.changed, Keys: keys,
	}, nil
}

// firstTime is how long the machines of a pool are waited for once one of them is connected.
const firstTime = 2 * time.Second

// refusal is why no machine could be connected to. The mutex is held.
func (p *Pool) refusal() error {
	var all []string
	for _, m := range p.machines {
		all = append(all, m.name+": "+m.away)
	}
	return berth.Errorf(berth.Unavailable, "%s", strings.Join(all, "; "))
}

// Pauses between attempts to connect to a machine, as those of a single one.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// keep keeps one machine connected until ctx ends.
func (p *Pool) keep(ctx context.Context, r *poolRun, m *member, a driver.Access, connected chan<- struct{}) {
	tried := sync.OnceFunc(r.first.Done)
	defer tried()
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		ended, err := p.connect(ctx, r, m, a)
		if err == nil {
			connected <- struct{}{}
			r.notify()
			tried()
			if err = p.watch(ctx, m, ended); err == nil {
				return
			}
			p.gone(r, m, err)
			pause = firstPause / 2
			connected = make(chan struct{}, 1) // nobody waits for it any more
			if !rest(ctx, pause) {
				return
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		p.log.Info("machine of a pool not reachable", "machine", m.name, "err", err)
		p.setAway(r, m, dialout.Clean(err.Error(), 500))
		tried()
		switch berth.CodeOf(err) {
		case berth.Denied, berth.Invalid, berth.Unsupported:
			pause = lastPause
		}
		if !rest(ctx, pause) {
			return
		}
	}
}

func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// connect connects to one machine and asks it what it has.
func (p *Pool) connect(ctx context.Context, r *poolRun, m *member, a driver.Access) (<-chan error, error) {
	p.mu.Lock()
	own := driver.Access{Properties: m.body, Secrets: a.Secrets, HostKeys: maps.Clone(r.keys)}
	p.mu.Unlock()
	c, err := m.d.Connect(ctx, own)
	if err != nil {
		return nil, err
	}
	if known := a.Machines[m.name]; known != "" && known != c.Machine {
		err = berth.Errorf(berth.Denied, "it is no longer the same machine, so its jobs are gone; detach the compute and attach it again")
	}
	var info driver.Info
	if err == nil {
		info, err = m.d.Probe(ctx)
	}
	if err == nil && len(info.Nodes) == 0 {
		err = berth.Errorf(berth.Unavailable, "its agent says nothing of the machine")
	}
	if err != nil {
		m.d.Drop(err)
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m.id, m.away, m.info = c.Machine, "", info.Nodes[0]
	maps.Copy(r.keys, c.HostKeys)
	r.there++
	return c.Ended, nil
}

// gone notes that the connection to a machine has ended. The last one ends that of the pool.
func (p *Pool) gone(r *poolRun, m *member, why error) {
	p.mu.Lock()
	r.there--
	left := r.there
	p.mu.Unlock()
	p.setAway(r, m, dialout.Clean(why.Error(), 500))
	if left == 0 {
		r.end(berth.Errorf(berth.Unavailable, "none of its machines is connected; of the last one: %w", why))
	}
}

func (p *Pool) setAway(r *poolRun, m *member, why string) {
	p.mu.Lock()
	changed := m.away != why
	m.away = why
	p.mu.Unlock()
	if changed {
		r.notify()
	}
}

// Drop is [driver.Connector.Drop]. When it returns nothing connects to the machines any more.
func (p *Pool) Drop(why error) {
	p.mu.Lock()
	r := p.run
	p.run = nil
	p.mu.Unlock()
	if r != nil {
		r.end(why)
		r.keepers.Wait()
	}
	p.mu.Lock()
	for _, m := range p.machines {
		if m.away == "" {
			m.away = dialout.Clean(why.Error(), 500)
		}
	}
	p.mu.Unlock()
	for _, m := range p.machines {
		m.d.Drop(why)
	}
}

// Close lets go of the machines. Their tasks run on.
func (p *Pool) Close() error {
	p.Drop(berth.Errorf(berth.Unavailable, "the server is shutting down"))
	var err error
	for _, m := range p.machines {
		err = errors.Join(err, m.d.Close())
	}
	return err
}

// Probe is [driver.Driver.Probe]. Machines are probed when they are connected.
func (p *Pool) Probe(context.Context) (driver.Info, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	info := driver.Info{Places: true, Distributed: true, Dials: true, MaxNodes: len(p.machines)}
	there := false
	for _, m := range p.machines {
		n := m.info
		n.Name, n.Address, n.Away, n.Machine = m.name, m.peer, m.away, m.id
		n.Slots = slots(p.jobs, n)
		n.CPUs = max(1, n.CPUs)
		info.Nodes = append(info.Nodes, n)
		there = there || m.away == ""
	}
	if !there {
		return driver.Info{}, p.refusal()
	}
	return info, nil
}

// jobsAuto is the word for as many jobs on a node as it has resources for.
const jobsAuto = "auto"

// memoryPerJob is what a job has to itself where the number of jobs follows from the resources.
const memoryPerJob = 2 << 30

// slots is how many tasks a machine runs at once: one unless the compute says otherwise, or one for
// each GPU, or else for each CPU, as far as there is memory.
func slots(jobs string, n driver.Node) int {
	if jobs != jobsAuto {
		most, _ := strconv.Atoi(jobs)
		return max(1, most)
	}
	most := int(n.CPUs)
	if n.GPUs > 0 {
		most = n.GPUs
	}
	return max(1, min(most, int(n.Memory/memoryPerJob)))
}

// Start is [driver.Driver.Start]. What a machine that is not connected was to run is not sent.
func (p *Pool) Start(ctx context.Context, l berth.Launch) (driver.Handle, error) {
	m := p.machine(l.Node)
	if m == nil {
		return "", berth.Errorf(berth.Invalid, "the pool has no machine %q", l.Node)
	}
	if l.GPUCount == 0 && !l.NoGPU {
		l.GPUCount = p.share(m)
	}
	if why := p.refuses(ctx, m); why != "" && lacks(ctx, m, l.Task) {
		return "", &driver.Unsent{Err: berth.Errorf(berth.Unavailable, "machine %s: %s", m.name, why)}
	}
	h, err := m.d.Start(ctx, l)
	switch {
	case errors.Is(err, errAway):
		return "", &driver.Unsent{Err: berth.Errorf(berth.Unavailable, "machine %s is not connected: %s", m.name, p.awayOf(m))}
	case err != nil && p.refusedFor(ctx, m, l.Task, err):
		return "", &driver.Unsent{Err: berth.Errorf(berth.Unavailable, "machine %s: %w", m.name, err)}
	}
	return poolHandle(m.name, h), err
}

// share is how many GPUs a job has that does not say how many it needs, 0 for all.
func (p *Pool) share(m *member) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return berth.ShareOfGPUs(m.info.GPUs, slots(p.jobs, m.info))
}

func (p *Pool) awayOf(m *member) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return m.away
}

func (p *Pool) machine(name string) *member {
	for _, m := range p.machines {
		if m.name == name {
			return m
		}
	}
	return nil
}

// poolHandle and of are the two ends of a handle: the machine, and its own handle.
func poolHandle(machine string, h driver.Handle) driver.Handle {
	return driver.Handle("pool1:"+machine+"/") + h
}

func (p *Pool) of(h driver.Handle) (*member, driver.Handle, error) {
	rest, ok := strings.CutPrefix(string(h), "pool1:")
	name, inner, found := strings.Cut(rest, "/")
	if m := p.machine(name); ok && found && m != nil {
		return m, driver.Handle(inner), nil
	}
	return nil, "", berth.Errorf(berth.Invalid, "%q is not a handle of this pool", h)
}

// Observe is [driver.Driver.Observe].
func (p *Pool) Observe(ctx context.Context) ([]driver.Observed, error) {
	nodes := make(map[string]driver.Driver, len(p.machines))
	for _, m := range p.machines {
		nodes[m.name] = m.d
	}
	return driver.ObserveNodes(ctx, nodes, poolHandle)
}

// Stop is [driver.Driver.Stop].
func (p *Pool) Stop(ctx context.Context, h driver.Handle, s driver.Stop) error {
	m, inner, err := p.of(h)
	if err != nil {
		return err
	}
	return m.d.Stop(ctx, inner, s)
}

// Dial is [driver.Dialer.Dial].
func (p *Pool) Dial(ctx context.Context, h driver.Handle, port int) (net.Conn, error) {
	m, inner, err := p.of(h)
	if err != nil {
		return nil, err
	}
	return m.d.Dial(ctx, inner, port)
}

// Remove is [driver.Driver.Remove].
func (p *Pool) Remove(ctx context.Context, h driver.Handle) error {
	m, inner, err := p.of(h)
	if err != nil {
		return err
	}
	return m.d.Remove(ctx, inner)
}
