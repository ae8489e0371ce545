package kubernetes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/dir"
	"github.com/berthml/berth/internal/kubeconfig"
)

// Name is that of the driver.
const Name = "kubernetes"

// ownPrefix is before the namespace in which an operator lets computes use the server's own service
// account.
const ownPrefix = "in-cluster/"

// Driver runs tasks as Jobs of a namespace.
type Driver struct {
	c   driver.Config
	log *slog.Logger
	dir *dir.Dir

	mu      sync.Mutex
	site    site
	client  *client              // nil until it was connected to
	compute string               // value of the label of what is ours; empty until it has been read
	drop    func(error)          // ends the connection that stands; nil when there is none
	stuck   map[string]time.Time // by pod, since when its image could not be had, or it does not end
	listing listing
	tunnels tunnels
	routes  routes
}

// Open is the driver's [driver.Open].
func Open(c driver.Config) (driver.Driver, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s, err := readSite(c.Properties)
	if err != nil {
		return nil, err
	}
	return &Driver{
		c: c, log: c.Log, site: s, dir: dir.Open(c.Dir), stuck: map[string]time.Time{}, routes: routes{pods: map[driver.Handle]*pod{}},
		tunnels: tunnels{reached: map[string]bool{}, kept: map[string]context.CancelFunc{}, seen: map[string]time.Time{}, told: make(chan struct{}, 1)},
	}, nil
}

// pollEvery is how often a cluster is asked whether it is there.
const pollEvery = 15 * time.Second

// Connect is [driver.Connector.Connect]: there is nothing to keep open, so the connection stands as
// long as the cluster answers.
func (d *Driver) Connect(ctx context.Context, a driver.Access) (*driver.Connection, error) {
	s, err := readSite(a.Properties)
	if err != nil {
		return nil, err
	}
	text := a.Secrets[kubeconfigPath]
	var offered offer
	if text == "" {
		if offered, err = offerOf(s, d.c.Home, d.c.Consents[Name]); err != nil {
			return nil, err
		}
	}
	c, err := connect(s, text, offered)
	if err != nil {
		return nil, err
	}
	text = cmp.Or(text, offered.text)
	version, err := c.version(ctx)
	if err == nil {
		err = c.mayAll(ctx)
	}
	if err != nil {
		return nil, err
	}
	d.Drop(berth.Errorf(berth.Conflict, "it is connected to again"))
	d.tunnels.end() // the next look at the tasks opens them again
	ended := make(chan error, 1)
	polling, cancel := context.WithCancel(context.Background())
	var once sync.Once
	end := func(why error) {
		once.Do(func() {
			cancel()
			ended <- why
		})
	}
	d.mu.Lock()
	d.site, d.client, d.drop = s, c, end
	d.mu.Unlock()
	go poll(polling, c, end)
	return &driver.Connection{
		Machine: "kubernetes:" + identity(text, s, c), Host: c.namespace + " at " + c.server, Version: version, Ended: ended,
		Changed: d.tunnels.told, Keys: func() map[string]string { return nil },
	}, nil
}

// identity tells a cluster from others: by its authority, which stays when its address changes.
func identity(text string, s site, c *client) string {
	k, err := kubeconfig.Parse([]byte(text), s.Context)
	if err != nil || len(k.CA) == 0 {
		return c.server
	}
	sum := sha256.Sum256(k.CA)
	return hex.EncodeToString(sum[:8])
}

// poll ends the connection when the cluster has not answered twice.
func poll(ctx context.Context, c *client, end func(error)) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for missed := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asking, cancel := context.WithTimeout(ctx, pollEvery)
		_, err := c.version(asking)
		cancel()
		if err == nil {
			missed = 0
			continue
		}
		if missed++; missed == 2 {
			end(err)
			return
		}
	}
}

// Drop is [driver.Connector.Drop].
func (d *Driver) Drop(why error) {
	d.mu.Lock()
	end := d.drop
	d.drop = nil
	d.mu.Unlock()
	if end != nil {
		end(why)
	}
}

// Close lets go of the cluster. Its tasks run on.
func (d *Driver) Close() error {
	d.Drop(berth.Errorf(berth.Unavailable, "the server is shutting down"))
	d.tunnels.end()
	return nil
}

// api is the client, what the compute says and the label of what is ours, once it is connected.
func (d *Driver) api() (*client, site, string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.client == nil {
		return nil, d.site, "", berth.Errorf(berth.Unavailable, "its cluster is not connected")
	}
	if d.compute == "" {
		id, err := d.dir.ID()
		if err != nil {
			return nil, d.site, "", err
		}
		d.compute = driver.Key(id)
	}
	return d.client, d.site, d.compute, nil
}

// Probe is [driver.Driver.Probe]. The cluster counts as one node: which of its own nodes a task
// gets is for Kubernetes to decide.
func (d *Driver) Probe(ctx context.Context) (driver.Info, error) {
	c, s, _, err := d.api()
	if err != nil {
		return driver.Info{}, err
	}
	if _, err := c.version(ctx); err != nil {
		return driver.Info{}, err
	}
	info := d.Describe()
	n := &info.Nodes[0]
	n.OS, n.CPUs = "linux", 1
	nodes, err := list[node](ctx, c, "/api/v1/nodes", "", "")
	switch {
	case berth.CodeOf(err) == berth.Denied:
		info.Warnings = append(info.Warnings, "its account may not list nodes, so their CPUs and memory are not known")
	case err != nil:
		return driver.Info{}, err
	default:
		info.Warnings = append(info.Warnings, sum(n, nodes)...)
	}
	if why := d.tunnels.why(); why != "" {
		info.Warnings = append(info.Warnings, why)
	}
	if s.Image == "" {
		info.Warnings = append(info.Warnings, "it has no image: only jobs whose environment names one run there")
	}
	return info, nil
}

// sum adds up what the nodes of a cluster have, and says what is wrong with them.
func sum(n *driver.Node, nodes []node) (warnings []string) {
	n.CPUs = 0
	away := 0
	for _, x := range nodes {
		if _, ready := is(x.Status.Conditions, "Ready"); !ready || x.Spec.Unschedulable {
			away++
		}
		a := x.Status.Allocatable
		n.CPUs += amount(a["cpu"])
		n.Memory += int64(amount(a["memory"]))
		n.GPUs += int(amount(a["nvidia.com/gpu"]) + amount(a["amd.com/gpu"]))
	}
	if n.CPUs == 0 { // a cluster may have none until something waits for one
		n.CPUs = 1
		warnings = append(warnings, "it has no nodes yet")
	}
	if away > 0 {
		warnings = append(warnings, strconv.Itoa(away)+" of its "+strconv.Itoa(len(nodes))+" nodes are not ready or take no pods")
	}
	return warnings
}

// units are the suffixes of quantities.
var units = map[string]float64{
	"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60,
}

// amount is the value of a quantity, 0 for one that cannot be read.
func amount(q string) float64 {
	end := len(q)
	for end > 0 && (q[end-1] < '0' || q[end-1] > '9') {
		end--
	}
	v, err := strconv.ParseFloat(q[:end], 64)
	if err != nil {
		return 0
	}
	return v * units[q[end:]]
}

// Describe is [driver.Describer.Describe].
func (d *Driver) Describe() driver.Info {
	d.mu.Lock()
	defer d.mu.Unlock()
	return driver.Info{Nodes: []driver.Node{{Name: d.c.Name, Slots: d.site.MaxTasks}}, Queues: true, Distributed: true, Gangs: true, Dials: true, MaxNodes: min(d.site.MaxTasks, mostNodes)}
}
