//go:build !windows

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/local"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/host"
)

// node is one node. Its file says what it is; this is what the driver has in hand.
type node struct {
	d     *Driver
	name  string
	dir   string
	local *local.Driver

	watch watch

	mu  sync.Mutex
	rec record
}

// record is what is kept of a node.
type record struct {
	Spec   driver.NodeSpec `json:"spec"`
	Groups runner.Groups   `json:"groups"`
	// Warning says which limit does not hold.
	Warning string `json:"warning,omitempty"`
}

const (
	recordFile  = "node.json"
	removedFile = "removed.json"
)

func (d *Driver) open(name string, r record) *node {
	n := &node{d: d, name: name, dir: filepath.Join(d.c.Dir, name), rec: r}
	c := d.c
	c.Name, c.Dir = name, n.dir
	n.local = local.New(c, name, n.restart)
	return n
}

func (n *node) spec() driver.NodeSpec {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rec.Spec
}

func (n *node) warning() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rec.Warning
}

// here says whether the node takes tasks.
func (n *node) here() bool {
	_, err := os.Lstat(filepath.Join(n.dir, recordFile))
	return err == nil
}

// fit gives a launch what the node has, and no more. A task that has the node to itself may use all
// of it; saying so in the launch lets the runner tell a task that needed more than there is, and
// limits containers, which are not below the node's groups.
func (n *node) fit(l berth.Launch) berth.Launch {
	s := n.spec()
	alone := s.Slots <= 1
	if s.Memory > 0 && (l.Memory > s.Memory || l.Memory == 0 && alone) {
		l.Memory = s.Memory
	}
	if s.CPUs > 0 && (l.CPUs > s.CPUs || l.CPUs == 0 && alone) {
		l.CPUs = s.CPUs
	}
	if alone && len(l.GPUs) == 0 && !l.NoGPU {
		l.GPUs = s.GPUs
	}
	l.GPUs = slices.DeleteFunc(slices.Clone(l.GPUs), func(i int) bool { return !slices.Contains(s.GPUs, i) })
	l.NoGPU = len(l.GPUs) == 0
	return l
}

// node finds a node that takes tasks.
func (d *Driver) node(name string) (*node, error) {
	if name == "" {
		return nil, berth.Errorf(berth.Invalid, "the launch names no node")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.nodes[name]
	if n != nil && n.here() {
		return n, nil
	}
	if n != nil {
		d.drop(name)
	}
	if berth.CheckName("node", name) == nil {
		if r, err := load(filepath.Join(d.c.Dir, name, recordFile)); err == nil {
			return d.adopt(name, r), nil
		}
	}
	return nil, berth.Errorf(berth.NotFound, "there is no node %s: it was given back, or its directory was removed", name)
}

// adopt takes a node into the list. The mutex is held.
func (d *Driver) adopt(name string, r record) *node {
	n := d.open(name, r)
	d.nodes[name] = n
	if d.watching > 0 && !d.closed {
		n.watch.begin(n)
	}
	return n
}

// drop takes a node off the list. The mutex is held.
func (d *Driver) drop(name string) {
	if n := d.nodes[name]; n != nil {
		delete(d.nodes, name)
		n.watch.end()
		_ = n.local.Close()
	}
}

// scan reads the directory: the nodes that take tasks, by name, and the names of those that are not
// quite there.
func (d *Driver) scan() (nodes []*node, halves []string, err error) {
	list, err := os.ReadDir(d.c.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, berth.Errorf(berth.Unavailable, "listing the nodes: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	seen := map[string]bool{}
	for _, e := range list {
		name := e.Name()
		if !e.IsDir() || berth.CheckName("node", name) != nil {
			continue
		}
		n := d.nodes[name]
		if n == nil {
			r, err := load(filepath.Join(d.c.Dir, name, recordFile))
			if err == nil {
				n = d.adopt(name, r)
			} else if !errors.Is(err, fs.ErrNotExist) { // it is as good as not quite there, and holds up no other
				d.log.Error("record of a node not understood", "node", name, "err", err)
			}
		}
		if n == nil || !n.here() {
			halves = append(halves, name)
			continue
		}
		seen[name] = true
		nodes = append(nodes, n)
	}
	for name := range d.nodes {
		if !seen[name] {
			d.drop(name)
		}
	}
	return nodes, halves, nil
}

func load(path string) (r record, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(b, &r)
}

// save keeps the record of a node. Nothing is synced: what a power cut takes, it takes together
// with the node.
func (n *node) save(r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	path := filepath.Join(n.dir, recordFile)
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rec = r
	return nil
}

// restart starts the host of a node that lost it; for one that was removed meanwhile it is
// NotFound.
func (n *node) restart(ctx context.Context) error {
	release, err := n.d.hold(ctx, n.name)
	if err != nil {
		return err
	}
	defer release()
	if !n.here() {
		return berth.Errorf(berth.NotFound, "node %s is gone", n.name)
	}
	n.d.log.Warn("starting the host of a node again", "node", n.name)
	return n.start(ctx)
}

// start makes the node's groups and starts its host in them, unless they are there. The node is
// held.
func (n *node) start(ctx context.Context) error {
	n.mu.Lock()
	r := n.rec
	n.mu.Unlock()
	was := r.Groups
	groups, err := was.Make(r.Spec.CPUs, r.Spec.Memory)
	if errors.Is(err, fs.ErrNotExist) {
		// What they were in is gone: the machine was started again. What is left of them is, too.
		r.Groups = runner.NodeGroups(n.unique())
		if err := n.save(r); err != nil {
			return err
		}
		groups, err = r.Groups.Make(r.Spec.CPUs, r.Spec.Memory)
	}
	warning := ""
	if err != nil {
		warning = "its limits are not enforced: " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	if warning != r.Warning {
		r.Warning = warning
		if err := n.save(r); err != nil {
			return err
		}
	}
	s := local.Settings(n.d.c)
	s.Slots, s.KeepAlive = r.Spec.Slots, true
	if err := s.Save(n.dir); err != nil {
		return err
	}
	if err := host.Start(ctx, n.dir, n.d.c.Host, groups); err != nil {
		return err
	}
	n.attend()
	return nil
}

// unique names the node on this machine, which may have several servers with nodes of the same
// name.
func (n *node) unique() string { return GroupName(n.d.c.Dir) + n.name }

// GroupName is what the names of the control groups of all nodes below a directory have in common,
// after what those of all nodes have.
func GroupName(dir string) string {
	h := fnv.New32a()
	h.Write([]byte(dir))
	return strconv.FormatUint(uint64(h.Sum32()), 36) + "-"
}
