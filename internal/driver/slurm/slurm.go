package slurm

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/dir"
	"github.com/berthml/berth/internal/driver/ssh"
	"github.com/berthml/berth/internal/outbound"
)

// name is that of the driver.
const name = "slurm"

// Driver runs tasks as batch jobs of a Slurm cluster.
type Driver struct {
	c     driver.Config
	log   *slog.Logger
	slurm calls
	login *login // nil unless commands are run on a login node
	rest  *rest  // nil unless slurmrestd is asked
	dir   *dir.Dir

	mu      sync.Mutex
	site    site
	id      string                   // tells this server's jobs from those of others
	records map[berth.TaskID]*record // nil until they have been read
	arrays  map[string]*array        // by name, as records
	drop    func(error)              // ends the connection that stands; nil when there is none
	listing listing

	errands   errands
	gathering gathering
	maxArray  atomic.Int64 // how many tasks an array may have; 0 is not known
	longest   atomic.Int64 // how long a job of the partition may run; 0 is no limit, or not known
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
	d := &Driver{c: c, log: c.Log, site: s, dir: dir.Open(c.Dir), errands: newErrands()}
	if s.Address != "" {
		if err := ssh.CheckAgent(c); err != nil {
			return nil, err
		}
		d.login = &login{agent: c.SSHAgent}
	}
	d.slurm = commands{login: d.login}
	if s.Rest != nil {
		if err := outbound.Check(c.Hosts, s.Rest.Address); err != nil {
			return nil, err
		}
		d.rest = newRest(*s.Rest)
		d.slurm = d.rest
		d.maxArray.Store(1)
	}
	return d, nil
}

// site is how jobs are submitted, as the compute's document says.
type site struct {
	Partition  string `json:"partition"`
	Account    string `json:"account"`
	QOS        string `json:"qos"`
	Constraint string `json:"constraint"`
	TimeLimit  string `json:"timeLimit"` // ISO 8601
	// Options are more options of sbatch, each in the form --NAME or --NAME=VALUE.
	Options []string `json:"options"`
	// Sizes say where the nodes of managed clusters come from, by their size. What one does not say
	// is as for jobs.
	Sizes map[string]*sizeSite `json:"sizes"`
	// Address is that of a login node, on which commands are run over SSH; empty: they are run on
	// this machine.
	Address string `json:"address"`
	// Rest says where slurmrestd is; nil: commands are run.
	Rest *restSettings `json:"restSettings"`
	// MaxTasks is how many tasks are handed to Slurm at once, running and waiting; 0 is mostTasks.
	MaxTasks int `json:"maxTasks"`

	limit time.Duration // TimeLimit
}

// sizeSite is how nodes of a size are submitted.
type sizeSite struct {
	Partition  string   `json:"partition"`
	Account    string   `json:"account"`
	QOS        string   `json:"qos"`
	Constraint string   `json:"constraint"`
	TimeLimit  string   `json:"timeLimit"` // ISO 8601
	Options    []string `json:"options"`
	// LowPartition and LowQOS are those of nodes that may be taken away at any time.
	LowPartition string `json:"lowPriorityPartition"`
	LowQOS       string `json:"lowPriorityQos"`

	limit time.Duration // TimeLimit
}

// mostTasks is how many tasks are handed to Slurm at once, unless the compute says otherwise.
const mostTasks = 1000

func readSite(document []byte) (site, error) {
	var v struct {
		Properties struct {
			Properties site `json:"properties"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(document, &v); err != nil {
		return site{}, berth.Errorf(berth.Invalid, "properties: %w", err)
	}
	s := v.Properties.Properties
	err := checkWords("properties.properties.", map[string]string{"partition": s.Partition, "account": s.Account, "qos": s.QOS, "constraint": s.Constraint})
	if err != nil {
		return s, err
	}
	for _, o := range s.Options {
		if err := checkOption(o); err != nil {
			return s, err
		}
	}
	for name, x := range s.Sizes {
		if err := x.read("properties.properties.sizes." + name + "."); err != nil {
			return s, err
		}
	}
	if err := s.checkRest(); err != nil {
		return s, err
	}
	if s.MaxTasks < 0 {
		return s, berth.Errorf(berth.Invalid, "properties.properties.maxTasks %d must not be negative", s.MaxTasks)
	}
	if s.MaxTasks == 0 {
		s.MaxTasks = mostTasks
	}
	if s.limit, err = berth.ParseDuration(s.TimeLimit); err != nil || s.limit < 0 {
		return s, berth.Errorf(berth.Invalid, "properties.properties.timeLimit %q must be a duration such as PT8H", s.TimeLimit)
	}
	return s, nil
}

// read checks how nodes of a size are submitted. at is where it is written.
func (x *sizeSite) read(at string) error {
	if x == nil {
		return berth.Errorf(berth.Invalid, "%s says nothing of the size; remove it, or give a partition or a constraint", strings.TrimSuffix(at, "."))
	}
	err := checkWords(at, map[string]string{
		"partition": x.Partition, "account": x.Account, "qos": x.QOS, "constraint": x.Constraint,
		"lowPriorityPartition": x.LowPartition, "lowPriorityQos": x.LowQOS,
	})
	if err != nil {
		return err
	}
	for _, o := range x.Options {
		if err := checkOption(o); err != nil {
			return err
		}
	}
	if x.limit, err = berth.ParseDuration(x.TimeLimit); err != nil || x.limit < 0 {
		return berth.Errorf(berth.Invalid, "%stimeLimit %q must be a duration such as PT8H", at, x.TimeLimit)
	}
	return nil
}

// checkWords refuses values with spaces in them.
func checkWords(at string, words map[string]string) error {
	for name, value := range words {
		if strings.ContainsAny(value, " \t\r\n\x00") {
			return berth.Errorf(berth.Invalid, "%s%s %q must not have spaces", at, name, value)
		}
	}
	return nil
}

// allowed are the options of sbatch that a compute may add: those that choose nodes and what the
// job has there. Others would change whose job it is, what it runs or how it is found again.
var allowed = map[string]bool{
	"constraint": true, "contiguous": true, "core-spec": true, "cores-per-socket": true, "cpu-freq": true,
	"cpus-per-gpu": true, "cpus-per-task": true, "deadline": true, "exclude": true, "exclusive": true, "gpu-bind": true, "gpu-freq": true,
	"gpus": true, "gpus-per-node": true, "gpus-per-task": true, "gres": true, "gres-flags": true, "hint": true, "licenses": true,
	"mem": true, "mem-bind": true, "mem-per-cpu": true, "mem-per-gpu": true, "nice": true, "nodelist": true, "oversubscribe": true,
	"power": true, "prefer": true, "priority": true, "reservation": true, "sockets-per-node": true, "threads-per-core": true,
	"tmp": true, "use-min-nodes": true, "wckey": true,
}

func checkOption(o string) error {
	name, _, _ := strings.Cut(strings.TrimPrefix(o, "--"), "=")
	switch {
	case !strings.HasPrefix(o, "--") || name == "" || strings.ContainsAny(o, "\r\n\x00"):
		return berth.Errorf(berth.Invalid, "properties.properties.options: %q must have the form --NAME or --NAME=VALUE", o)
	case !allowed[name]:
		return berth.Errorf(berth.Invalid, "properties.properties.options: --%s cannot be set; options that choose nodes, CPUs, memory, GPUs or licenses can", name)
	}
	return nil
}

// Check refuses a compute's document that could never work, and another login node: the key or
// password was given for one machine, and its jobs are found there.
func Check(old, document []byte) error {
	s, err := readSite(document)
	if err != nil {
		return err
	}
	if old != nil {
		was, err := readSite(old)
		if err != nil || was.Address != s.Address {
			return berth.Errorf(berth.Conflict, "the login node of a Slurm cluster cannot be changed; detach it and attach it again")
		}
		if (was.Rest == nil) != (s.Rest == nil) || s.Rest != nil && *was.Rest != *s.Rest {
			return berth.Errorf(berth.Conflict, "the address, user and certificates of slurmrestd cannot be changed, only its token; detach the compute and attach it again")
		}
	}
	if s.Address == "" {
		return nil
	}
	return ssh.Check(old, document)
}

// AsServer says whether the jobs of a compute run with the account of the server: they do where
// neither a login node nor slurmrestd is named. What cannot be read is refused by Open, which says
// why.
func AsServer(document []byte) bool {
	s, err := readSite(document)
	return err == nil && s.Address == "" && s.Rest == nil
}

// pollEvery is how often a cluster is asked whether it is there.
const pollEvery = 15 * time.Second

// Connect is [driver.Connector.Connect]: there is nothing to keep open, so the connection stands as
// long as the controller answers.
func (d *Driver) Connect(ctx context.Context, a driver.Access) (*driver.Connection, error) {
	s, err := readSite(a.Properties)
	if err != nil {
		return nil, err
	}
	d.Drop(berth.Errorf(berth.Conflict, "it is connected to again"))
	var shell *ssh.Shell
	if d.login != nil {
		if shell, err = d.login.connect(ctx, a); err != nil {
			return nil, err
		}
	}
	if d.rest != nil {
		if err = d.rest.connect(a); err != nil {
			return nil, err
		}
	}
	about, err := d.slurm.cluster(ctx)
	if err != nil {
		d.logout()
		return nil, err
	}
	d.maxArray.Store(about.maxArray)
	ended := make(chan error, 1)
	polling, cancel := context.WithCancel(context.Background())
	var once sync.Once
	end := func(why error) {
		once.Do(func() {
			cancel()
			d.logout()
			ended <- why
		})
	}
	d.mu.Lock()
	d.site, d.drop = s, end
	d.mu.Unlock()
	go d.poll(polling, end)
	c := &driver.Connection{Machine: about.machine, Host: about.name, Version: about.version, Ended: ended}
	if shell != nil {
		c.HostKeys = shell.HostKeys()
		go func() {
			err := shell.Wait()
			end(berth.Errorf(berth.Unavailable, "the connection to the login node ended: %v", err))
		}()
	}
	return c, nil
}

// logout ends the connection to the login node or slurmrestd, if there is one.
func (d *Driver) logout() {
	if d.login != nil {
		d.login.close()
	}
	if d.rest != nil {
		d.rest.close()
	}
}

// poll ends the connection when the controller has not answered twice.
func (d *Driver) poll(ctx context.Context, end func(error)) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for missed := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_, err := d.slurm.cluster(ctx)
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

// Close lets go of the cluster, and waits until the driver does nothing there by itself any more.
// Its tasks run on.
func (d *Driver) Close() error {
	d.Drop(berth.Errorf(berth.Unavailable, "the server is shutting down"))
	d.errands.end()
	return nil
}

// Probe is [driver.Driver.Probe]. The cluster counts as one node: which of its own nodes a task
// gets is for Slurm to decide.
func (d *Driver) Probe(ctx context.Context) (driver.Info, error) {
	about, err := d.slurm.cluster(ctx)
	if err != nil {
		return driver.Info{}, err
	}
	d.maxArray.Store(about.maxArray)
	d.mu.Lock()
	s := d.site
	d.mu.Unlock()
	nodes, err := d.slurm.nodes(ctx, s.Partition)
	if err != nil {
		return driver.Info{}, err
	}
	info := d.Describe()
	n := &info.Nodes[0]
	n.Name, n.OS = about.name, "linux"
	info.MaxNodes = len(nodes)
	down, longest := 0, time.Duration(0)
	for _, x := range nodes {
		if x.Longest > 0 && (longest == 0 || x.Longest < longest) {
			longest = x.Longest
		}
		n.CPUs += x.CPUs
		n.Memory += x.Memory
		n.GPUs += x.GPUs
		if x.Down {
			down++
		}
	}
	d.longest.Store(int64(longest))
	if down > 0 {
		info.Warnings = append(info.Warnings, strconv.Itoa(down)+" of its "+strconv.Itoa(len(nodes))+" nodes are down or drained")
	}
	return info, nil
}

// Describe is [driver.Describer.Describe].
func (d *Driver) Describe() driver.Info {
	d.mu.Lock()
	defer d.mu.Unlock()
	return driver.Info{Nodes: []driver.Node{{Name: d.c.Name, Slots: d.site.MaxTasks}}, Queues: true, Distributed: true, Gangs: true, Turns: true}
}

// load reads the records that an earlier server left. The mutex is held.
func (d *Driver) load() error {
	if d.records != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(d.c.Dir, "tasks"), 0o700); err != nil {
		return err
	}
	var err error
	if d.id, err = d.dir.ID(); err != nil {
		return err
	}
	files, err := os.ReadDir(filepath.Join(d.c.Dir, "tasks"))
	if err != nil {
		return err
	}
	records := map[berth.TaskID]*record{}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), recordSuffix) {
			continue
		}
		path := filepath.Join(d.c.Dir, "tasks", f.Name())
		r, err := readRecord(path)
		if err != nil {
			return err
		}
		if info, err := f.Info(); err == nil && r.Job == "" && time.Since(info.ModTime()) > abandonedAfter {
			os.Remove(path) // nobody tried again to submit it
			continue
		}
		for _, id := range r.tasks() {
			records[id] = r
		}
	}
	d.records, d.arrays = records, map[string]*array{}
	if err := d.loadArrays(); err != nil {
		d.records = nil
		return err
	}
	return nil
}
