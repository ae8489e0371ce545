//go:build !windows

package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/host"
)

// HostMain is the hidden command that the driver starts: args are what follows it on the command
// line.
func HostMain(ctx context.Context, args []string) error { return host.Main(ctx, args) }

// Driver runs tasks on this machine.
type Driver struct {
	c      driver.Config
	client *host.Client
	node   string
	// machine gives out GPUs; nil on a node that has its own.
	machine *machine
	start   func(context.Context) error // starts the host unless there is one

	log      *slog.Logger
	starting sync.Mutex  // held while a host is being started
	renewed  atomic.Bool // it was seen to that the host is of this build
	low      atomic.Bool // there was too little room on the disk when it was last asked
}

// Open is the driver's [driver.Open].
func Open(c driver.Config) (driver.Driver, error) {
	if len(c.Host) == 0 {
		return nil, berth.Errorf(berth.Invalid, "the local driver requires the runner host's command")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, err
	}
	c.Dir = dir
	if err := Settings(c).Save(dir); err != nil {
		return nil, err
	}
	d := New(c, nodeName(), func(ctx context.Context) error { return host.Start(ctx, dir, c.Host, runner.Groups{}) })
	d.machine = &machine{gpus: OnceGPUs()}
	return d, nil
}

// Settings is what the host of a compute is told.
func Settings(c driver.Config) host.Settings {
	e := c.Environments
	return host.Settings{
		Home: c.Home, Slots: c.Slots, Environments: e.Dir, EnvironmentBytes: e.Bytes, Engine: e.Engine,
		Cache: c.Cache.Dir, CacheBytes: c.Cache.Bytes,
	}
}

// New makes a driver of one host, that of the directory c.Dir, for drivers of several. node is what
// it is called, and start starts it when it is not there.
func New(c driver.Config, node string, start func(context.Context) error) *Driver {
	log := c.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Driver{c: c, client: host.NewClient(c.Dir), node: node, start: start, log: log}
}

// Close lets go of the host, which runs on.
func (d *Driver) Close() error {
	d.client.Close()
	return nil
}

// Shutdown ends the host. Tasks run on, but how those end that end before the next host is lost: it
// is for the end of tests and of installations.
func (d *Driver) Shutdown(ctx context.Context) error { return host.Shutdown(ctx, d.c.Dir) }

// Probe is [driver.Driver.Probe].
func (d *Driver) Probe(ctx context.Context) (driver.Info, error) {
	if err := d.call(ctx, func() error { _, err := d.client.Info(ctx); return err }); err != nil {
		return driver.Info{}, err
	}
	info := d.Describe()
	if d.machine != nil {
		d.machine.add(ctx, &info)
	}
	info.Nodes[0].Drained = d.drained()
	return info, nil
}

// drained is why the machine should get no more tasks: there is no room for them.
func (d *Driver) drained() string {
	low := runner.DiskLow(d.c.Dir, d.low.Load())
	if d.low.Store(low); !low {
		return ""
	}
	return "its disk is full where its jobs work, at " + d.c.Dir
}

// Describe is [driver.Describer.Describe].
func (d *Driver) Describe() driver.Info {
	n := driver.Node{
		Name: d.node, CPUs: float64(runtime.NumCPU()), Memory: TotalMemory(), OS: runtime.GOOS, Arch: runtime.GOARCH, Slots: d.c.Slots,
	}
	return driver.Info{Nodes: []driver.Node{n}, SharedDisk: true, Queues: true, Distributed: true, Address: loopback, Dials: true, Execs: Execs}
}

// loopback is where the tasks of this machine reach one another.
const loopback = "127.0.0.1"

// Start is [driver.Driver.Start].
func (d *Driver) Start(ctx context.Context, l berth.Launch) (driver.Handle, error) {
	if m := d.machine; m != nil && l.GPUCount > 0 && len(l.GPUs) == 0 && !l.NoGPU {
		m.giving.Lock()
		defer m.giving.Unlock()
		var tasks []host.Status
		if err := d.call(ctx, func() (err error) { tasks, err = d.client.Tasks(ctx); return err }); err != nil {
			return "", err
		}
		if !slices.ContainsFunc(tasks, func(s host.Status) bool { return s.Task == l.Task }) { // else it has them
			if err := m.give(ctx, &l, tasks); err != nil {
				return "", err
			}
		}
	}
	err := d.call(ctx, func() error { return d.client.Start(ctx, &l) })
	return handle(l.Task), err
}

// Observe is [driver.Driver.Observe].
func (d *Driver) Observe(ctx context.Context) ([]driver.Observed, error) {
	var all []host.Status
	err := d.call(ctx, func() (err error) { all, err = d.client.Tasks(ctx); return err })
	if err != nil {
		return nil, err
	}
	out := make([]driver.Observed, len(all))
	for i, s := range all {
		out[i] = driver.Observed{Task: s.Task, Handle: handle(s.Task), State: s.State, Node: d.node, Exit: s.Exit}
	}
	return out, nil
}

// Stop is [driver.Driver.Stop].
func (d *Driver) Stop(ctx context.Context, h driver.Handle, s driver.Stop) error {
	id, err := taskOf(h)
	if err != nil {
		return err
	}
	return d.call(ctx, func() error { return d.client.Stop(ctx, id, host.Stop(s)) })
}

// Remove is [driver.Driver.Remove].
func (d *Driver) Remove(ctx context.Context, h driver.Handle) error {
	id, err := taskOf(h)
	if err != nil {
		return err
	}
	return d.call(ctx, func() error { return d.client.Remove(ctx, id) })
}

// Dial is [driver.Dialer.Dial]: a task's ports are this machine's.
func (d *Driver) Dial(ctx context.Context, _ driver.Handle, port int) (net.Conn, error) {
	var n net.Dialer
	c, err := n.DialContext(ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return nil, berth.Errorf(berth.Unavailable, "port %d: %w", port, err)
	}
	return c, nil
}

// nodeName is what this machine calls itself.
var nodeName = sync.OnceValue(func() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
})

// handle and taskOf are the two ends of a handle: a version and the task's id.
func handle(id berth.TaskID) driver.Handle { return driver.Handle("local1:" + string(id)) }

func taskOf(h driver.Handle) (berth.TaskID, error) {
	id, ok := strings.CutPrefix(string(h), "local1:")
	if !ok {
		return "", berth.Errorf(berth.Invalid, "%q is not a local driver handle", h)
	}
	return berth.TaskID(id), nil
}

// call calls the host, and starts one when there is none.
func (d *Driver) call(ctx context.Context, f func() error) error {
	if !d.renewed.Swap(true) {
		d.renew(ctx)
	}
	err := f()
	if !errors.Is(err, host.ErrGone) {
		return err
	}
	if err := d.ensure(ctx); err != nil {
		return err
	}
	return f()
}

// ensure starts a host unless somebody else just did.
func (d *Driver) ensure(ctx context.Context) error {
	d.starting.Lock()
	defer d.starting.Unlock()
	if _, err := d.client.Info(ctx); err == nil {
		return nil
	}
	if err := d.start(ctx); err != nil {
		if _, coded := errors.AsType[*berth.Error](err); coded {
			return err
		}
		return berth.Errorf(berth.Unavailable, "starting the runner host: %w", err)
	}
	return nil
}

// renew replaces a host of another build by one of this: its tasks run on.
func (d *Driver) renew(ctx context.Context) {
	at, err := d.client.Info(ctx)
	if build := host.Build(d.c.Host[0]); err != nil || build == "" || build == at.Build {
		return
	}
	if err := d.client.Restart(ctx, d.c.Host); err != nil {
		d.log.Warn("runner host of another build not replaced", "compute", d.c.Name, "err", err)
		return
	}
	d.log.Info("replaced the runner host of another build", "compute", d.c.Name)
}

// memoryLimits are where a container finds how much memory it may use, in either version of
// cgroups.
var memoryLimits = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// TotalMemory is the memory in bytes of the machine, or of the container that this process is in if
// that may use less; 0 when it is not known.
func TotalMemory() int64 { return limited(machineMemory(), memoryLimits) }

// limited is the least of total and what files say that are there and have a number.
func limited(total int64, files []string) int64 {
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 && n < total {
			total = n
		}
	}
	return total
}

func machineMemory() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	var kb int64
	if _, err := fmt.Sscanf(string(b), "MemTotal: %d kB", &kb); err != nil {
		return 0
	}
	return kb << 10
}

// ForgetTerms has the runner host in dir take tasks of another server than before, whatever its
// term is.
func ForgetTerms(dir string) error { return host.ForgetTerms(dir) }

// StopIdle stops the runner host in dir, if there is one and it has no tasks, and returns when its
// processes have ended.
func StopIdle(ctx context.Context, dir string) error {
	if host.Busy(ctx, dir) {
		return nil
	}
	return host.Shutdown(ctx, dir)
}
