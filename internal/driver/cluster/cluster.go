//go:build !windows

package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/local"
	"github.com/berthml/berth/internal/runner"
)

// Driver runs tasks on nodes that it makes.
type Driver struct {
	c    driver.Config
	log  *slog.Logger
	gpus func(context.Context) ([]GPU, error)

	search search

	mu       sync.Mutex
	nodes    map[string]*node         // those of the directory, as last seen
	held     map[string]chan struct{} // nodes that are being made, removed or started; closed when that is over
	watching int                      // calls of Watch under way
	hints    map[chan struct{}]bool
	closed   bool
	group    sync.WaitGroup // of watchers
}

// Open is the driver's [driver.Open]. One driver can serve all clusters of a server: the names of
// nodes tell them apart.
func Open(c driver.Config) (driver.Driver, error) {
	if len(c.Host) == 0 {
		return nil, berth.Errorf(berth.Invalid, "the cluster driver needs the command of its runner hosts")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, err
	}
	c.Dir = dir
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Driver{
		c: c, log: c.Log, gpus: local.OnceGPUs(), nodes: map[string]*node{}, held: map[string]chan struct{}{}, hints: map[chan struct{}]bool{},
	}, nil
}

// Close lets go of the nodes, which run on.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	for name := range d.nodes {
		d.drop(name)
	}
	d.mu.Unlock()
	d.group.Wait()
	return nil
}

// Probe is [driver.Driver.Probe]. It lists also what is left of nodes that were not quite made or
// not quite removed.
func (d *Driver) Probe(ctx context.Context) (driver.Info, error) {
	nodes, halves, err := d.scan()
	if err != nil {
		return driver.Info{}, err
	}
	info := d.Describe()
	unlimited := Unlimited()
	if unlimited != "" {
		info.Warnings = append(info.Warnings, unlimited)
	}
	for _, n := range nodes {
		s := n.spec()
		v := driver.Node{
			Name: n.name, CPUs: s.CPUs, Memory: s.Memory, GPUs: len(s.GPUs), OS: runtime.GOOS, Arch: runtime.GOARCH,
			Labels: map[string]string{"size": s.Size},
		}
		if v.CPUs <= 0 {
			v.CPUs = float64(runtime.NumCPU())
		}
		if v.Memory <= 0 {
			v.Memory = local.TotalMemory()
		}
		if v.GPUs > 0 {
			if all, err := d.gpus(ctx); err == nil {
				v.GPUModel = modelOf(all, s.GPUs[0])
			}
		}
		if w := n.warning(); w != "" && unlimited == "" { // otherwise it is said already
			info.Warnings = append(info.Warnings, "node "+n.name+": "+w)
		}
		info.Nodes = append(info.Nodes, v)
	}
	for _, name := range halves {
		info.Nodes = append(info.Nodes, driver.Node{
			Name: name, CPUs: float64(runtime.NumCPU()), OS: runtime.GOOS, Arch: runtime.GOARCH, Leaving: true,
		})
	}
	return info, nil
}

// Unlimited says why nodes of this process have no CPU and memory limits, "" when they have.
func Unlimited() string {
	if err := runner.NodeGroups("x").Check(); err != nil {
		return "the CPU and memory limits of nodes are not enforced: " + err.Error()
	}
	return ""
}

// Describe is [driver.Describer.Describe]: what holds for every node.
func (d *Driver) Describe() driver.Info {
	return driver.Info{SharedDisk: true, Distributed: true, Address: "127.0.0.1", Scales: true, Watches: true, Dials: true, Execs: local.Execs}
}

// Start is [driver.Driver.Start]. A launch for a node that is not there is NotFound.
func (d *Driver) Start(ctx context.Context, l berth.Launch) (driver.Handle, error) {
	n, err := d.node(l.Node)
	if err != nil {
		return "", err
	}
	h, err := n.local.Start(ctx, n.fit(l))
	return handle(n.name, h), err
}

// Observe is [driver.Driver.Observe]. It starts hosts that are not there: they find out what became
// of their tasks.
func (d *Driver) Observe(ctx context.Context) ([]driver.Observed, error) {
	nodes, _, err := d.scan()
	if err != nil {
		return nil, err
	}
	each := make([][]driver.Observed, len(nodes))
	errs := make([]error, len(nodes))
	var group sync.WaitGroup
	turns := make(chan struct{}, 32)
	for i, n := range nodes {
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			if each[i], errs[i] = n.local.Observe(ctx); errs[i] == nil {
				n.attend()
			} else if !n.here() {
				errs[i] = nil // it was removed meanwhile, and its tasks with it
			}
		})
	}
	group.Wait()
	var all []driver.Observed
	var unseen driver.Unseen
	for i, list := range each {
		if errs[i] != nil {
			unseen.Nodes = append(unseen.Nodes, nodes[i].name)
			continue
		}
		for _, o := range list {
			o.Handle = handle(nodes[i].name, o.Handle)
			all = append(all, o)
		}
	}
	if unseen.Err = errors.Join(errs...); unseen.Err != nil {
		return all, berth.Errorf(berth.Unavailable, "observing: %w", &unseen)
	}
	return all, nil
}

// Stop is [driver.Driver.Stop].
func (d *Driver) Stop(ctx context.Context, h driver.Handle, s driver.Stop) error {
	n, inner, err := d.find(h)
	if berth.CodeOf(err) == berth.NotFound {
		return nil // its node is gone, and with it the task
	}
	if err != nil {
		return err
	}
	return n.local.Stop(ctx, inner, s)
}

// Remove is [driver.Driver.Remove].
func (d *Driver) Remove(ctx context.Context, h driver.Handle) error {
	n, inner, err := d.find(h)
	if berth.CodeOf(err) == berth.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return n.local.Remove(ctx, inner)
}

// Dial is [driver.Dialer.Dial]: the ports of all nodes are this machine's.
func (d *Driver) Dial(ctx context.Context, h driver.Handle, port int) (net.Conn, error) {
	n, inner, err := d.find(h)
	if err != nil {
		return nil, err
	}
	return n.local.Dial(ctx, inner, port)
}

// handle and find are the two ends of a handle: a version, the node, and the host's own handle.
func handle(node string, inner driver.Handle) driver.Handle {
	return driver.Handle("cluster1:" + node + ":" + string(inner))
}

func (d *Driver) find(h driver.Handle) (*node, driver.Handle, error) {
	rest, ok := strings.CutPrefix(string(h), "cluster1:")
	name, inner, ok2 := strings.Cut(rest, ":")
	if !ok || !ok2 {
		return nil, "", berth.Errorf(berth.Invalid, "%q is not a handle of the cluster driver", h)
	}
	n, err := d.node(name)
	return n, driver.Handle(inner), err
}
