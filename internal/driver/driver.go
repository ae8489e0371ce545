// Package driver is the contract between Berth and the places it runs tasks on.
//
// A driver has to place a runner somewhere and say whether it is still there; staging, logs,
// outputs and reports are the runner's. What every target needs besides (deadlines, retries,
// logging) is written once, in [Target]. Package drivertest holds the conformance tests that each
// implementation passes.
package driver

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// A Driver runs tasks on one compute target. Every method may be retried: the caller may have
// crashed after the last attempt. Methods are safe for concurrent use.
//
// The clocks of a target and of the server need not agree: nothing that crosses this interface has
// a time of day in it.
//
// Errors are *berth.Error: Unavailable when a later attempt may succeed, Invalid when the launch
// can never run here, Unsupported when the target cannot do what is asked.
type Driver interface {
	// Probe reports what the target can do and how much of it there is.
	Probe(ctx context.Context) (Info, error)
	// Start places a runner for t. Starting a task that exists, running or finished, returns its
	// handle and runs nothing: t.Task is the key, and the driver marks whatever it creates with it.
	Start(ctx context.Context, t berth.Launch) (Handle, error)
	// Observe lists every task of ours on the target, finished ones until Remove. Everything or an
	// error, never a part; but with the error Unseen, everything on the nodes that it does not
	// name.
	Observe(ctx context.Context) ([]Observed, error)
	// Stop asks a task to end, then makes it end after s.Grace. It returns when the request is on
	// its way. Stopping a finished or unknown task is success, and stopping one again with less
	// grace shortens it. The exit of a task that ends by it has s.Cause, where the target can keep
	// it. What the task wrote until its end arrives.
	Stop(ctx context.Context, h Handle, s Stop) error
	// Remove forgets a finished task and frees what it held: nothing of it is left on the target.
	// Unknown is success; a task that still runs is Conflict.
	Remove(ctx context.Context, h Handle) error
}

// Unseen is the error of an Observe that could not reach all nodes.
type Unseen struct {
	Nodes []string
	Err   error
}

func (u *Unseen) Error() string { return "nodes " + strings.Join(u.Nodes, ", ") + ": " + u.Err.Error() }

// Unwrap returns the errors of the nodes.
func (u *Unseen) Unwrap() error { return u.Err }

// Unsent is the error of a Start of which the target heard nothing: its node cannot be reached, and
// the task may as well go to another.
type Unsent struct{ Err error }

func (u *Unsent) Error() string { return u.Err.Error() }

// Unwrap returns why the node cannot be reached.
func (u *Unsent) Unwrap() error { return u.Err }

// Stop is a request to end a task.
type Stop struct {
	Grace time.Duration // between asking and killing; 0 takes the launch's
	Cause string        // for Exit.Cause; empty means canceled
	Why   string        // for Exit.Reason
}

// A Handle finds a task again on its target. Only the driver that created it interprets it.
type Handle string

// Observed is the state of one task as its target reports it.
type Observed struct {
	Task   berth.TaskID
	Handle Handle
	// State is TaskStarting, TaskRunning, TaskEnding or TaskDone; engines that cannot tell say
	// TaskRunning. TaskPlaced means that the target has accepted the task and holds it in a queue
	// of its own.
	State berth.TaskState
	// Why is the target's reason when State is TaskPlaced.
	Why  string
	Node string
	// Exit is set once State is TaskDone. It is what the target knows; the runner's own report
	// knows more.
	Exit *berth.Exit
	// Final says that the runner has ended too: no report about the task can still arrive.
	Final bool
}

// Info says what a target can do.
type Info struct {
	Nodes []Node
	// SharedDisk says that tasks see the server's files under the same names, so that
	// Launch.LogFile may be set.
	SharedDisk bool
	// Queues reports whether the target queues tasks above its slots itself, so that some can be
	// handed over early.
	Queues bool
	// Distributed says that the processes of tasks on this target reach one another, at the
	// addresses of their nodes and at ports that the server gave to their job alone.
	Distributed bool
	// Address is where tasks reach those on nodes that have none of their own: that of the one
	// machine that all nodes are on.
	Address string
	// Places says that Berth chooses the node of each task, Launch.Node, among Nodes. Otherwise the
	// target is one node to it.
	Places bool
	// MaxNodes is how many nodes one job can have, as far as that is known; 0 is one, or what the
	// compute's document says.
	MaxNodes int
	// The optional interfaces that work on this target.
	Watches, Scales, Dials, Execs, Logs, Gangs, Turns bool
	// Warnings are what a user of the target should know, each one sentence.
	Warnings []string
}

// Node is one machine of a target.
type Node struct {
	Name     string
	CPUs     float64
	Memory   int64 // bytes
	GPUs     int
	GPUModel string
	OS, Arch string
	Labels   map[string]string
	Leaving  bool   // it is being given back, and takes no tasks
	Taken    bool   // it is leaving because it was taken away, and not because of what ran on it
	Slots    int    // tasks at once; 0 is for the caller to say
	Address  string // where tasks on other nodes reach it; empty is the target's
	Away     string // why it is not there now, and takes no tasks; empty when it is
	Drained  string // why it takes no tasks although it is there; empty when it does
	Machine  string // tells it from others, where nodes are machines of somebody's own
}

// AddressOf returns the address at which tasks reach those on a node.
func (i Info) AddressOf(node string) string {
	for _, n := range i.Nodes {
		if n.Name == node && n.Address != "" {
			return n.Address
		}
	}
	return i.Address
}

// A Describer knows what its target can do without contacting it; Probe may contact it.
type Describer interface {
	Describe() Info
}

// An Acceptor is a driver whose target opens the connection, instead of being connected to.
type Acceptor interface {
	// Accept takes over a connection of the target, in place of the one it has if it has one. The
	// channel gives the reason once the connection has ended.
	Accept(ctx context.Context, c net.Conn) (ended <-chan error, err error)
	// Drop closes the connection, if there is one, for a reason.
	Drop(why error)
}

// A Connector is a driver that opens the connection to its target itself, whenever it is told to.
type Connector interface {
	// Connect opens a connection, in place of the one it has if it has one. Denied when the target
	// refuses, or is not the one it was: another attempt fails in the same way.
	Connect(ctx context.Context, a Access) (*Connection, error)
	// Drop closes the connection, if there is one, for a reason.
	Drop(why error)
}

// Access is what a Connector needs to log in.
type Access struct {
	Properties []byte            // of the compute as they are now
	Secrets    map[string]string // of its properties, by path
	HostKeys   map[string]string // that its machines showed before, by address
	Machines   map[string]string // Node.Machine of its nodes, as it was before, by name
}

// Connection is an open connection to a target.
type Connection struct {
	Machine  string            // tells the target from others
	Host     string            // what it calls itself
	Version  string            // of the agent there
	HostKeys map[string]string // that its machines showed, by address
	Ended    <-chan error      // has the reason once it is over
	// Changed fires when the target is not what it was: Probe and Keys say what it is now. Nil
	// where that never happens.
	Changed <-chan struct{}
	Keys    func() map[string]string // HostKeys as they are now
}

// A Watcher hints when Observe would say something new that runners cannot report, the end of a
// node above all. Observe stays the truth: hints may be lost or come in vain.
type Watcher interface {
	// Watch sends until ctx ends, and then closes the channel. A slow receiver misses hints but
	// never all of them.
	Watch(ctx context.Context) (<-chan struct{}, error)
}

// A Scaler changes the number of nodes of a target. Probe lists the existing nodes.
type Scaler interface {
	// AddNode makes a node and returns when it takes tasks. A node of that name that exists is
	// success. Unavailable when it can be tried again, Invalid when the target can never have such
	// a node; Waiting when it has been asked for and is not there yet.
	AddNode(ctx context.Context, n NodeSpec) error
	// RemoveNode ends everything on a node and gives it back: no process, control group, port or
	// directory of it is left. Unknown is success.
	RemoveNode(ctx context.Context, name string) error
}

// A Ganger starts the tasks of a job of several nodes together. It is for targets that choose the
// nodes themselves: only they know where the tasks are, and when there is room for all of them.
type Ganger interface {
	// StartGang places a runner for each of all, which are the tasks of one attempt at a job in the
	// order of Launch.Group.Node, each on a node of its own: all of them or none. Launch.Group has
	// no addresses; the driver adds them, or has its runners find them. It is retried like Start:
	// a gang that exists, running or finished, is not started again.
	//
	// Observe, Stop and Remove are about single tasks, but a gang ends together: once one task was
	// stopped, was lost or failed, the target may end the others, whose exit then has that cause or
	// the cause "peer". As long as one task runs, Remove of another may be Conflict.
	StartGang(ctx context.Context, all []berth.Launch) ([]Handle, error)
}

// A Turner starts a runner for each task of an array, and each of them may run tasks of the others
// too that have not begun: a task that takes milliseconds costs far less than a runner.
type Turner interface {
	// Turn gives a runner its next task, its own first, for as long as it may take another. A task
	// is given to one runner only, also when the server ends at any time, and a question that is
	// asked again gets the same answer. A task that was stopped is not given, and a runner whose
	// own or last task was stopped, or whose own another has, gets none. id is the task that the
	// runner was started for: Denied when that is not the array's task of the runner's number.
	Turn(ctx context.Context, id berth.TaskID, t berth.Turn) (berth.TurnAnswer, error)
}

// NodeSpec describes a requested node.
type NodeSpec struct {
	Name   string
	Size   string
	CPUs   float64 // limits of everything on the node together; 0 is none
	Memory int64
	GPUs   []int // indices of its machine's GPUs that are its own
	Slots  int   // tasks at once
	Low    bool  // it may be taken away at any time
	Boot   *Boot // of a node that a Provider makes
}

// A Dialer reaches a port of a running task.
type Dialer interface {
	Dial(ctx context.Context, h Handle, port int) (net.Conn, error)
}

// An Execer runs a command next to a running task: in its directory and environment.
type Execer interface {
	// Exec returns the command's exit code when it has ended; canceling ctx ends the command.
	Exec(ctx context.Context, h Handle, c Command) (int, error)
}

// Command is what an Execer runs.
type Command struct {
	Args   []string // empty: an interactive shell
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// Terminal asks for a terminal of this size; Resize changes it.
	Terminal bool
	Size     WindowSize
	Resize   <-chan WindowSize
}

// WindowSize is the size of a terminal in characters.
type WindowSize struct{ Rows, Columns int }

// A Logger reads what a task wrote, for the case that its runner could not phone home.
type Logger interface {
	// Log reads from offset to the current end. It is NotFound if the task or its log does not
	// exist.
	Log(ctx context.Context, h Handle, offset int64) (io.ReadCloser, error)
}

// Config is what a driver is created from: the compute's name and document, and the server's
// environment.
type Config struct {
	Name       string // of the compute
	Properties []byte // its properties, as the client sent them
	// Dir is a directory of this compute's own on the server, where a driver keeps what has to
	// survive a restart.
	Dir string
	// Home is the server's folder, whose secrets tasks must not access.
	Home string
	// Host is the command line, less its options, of the runner host: this program's path and the
	// hidden command.
	Host []string
	// Slots is how many tasks a node runs at once, where the driver's own nodes keep count; 0 is no
	// limit.
	Slots int
	// Environments says how nodes that share this machine keep built environments.
	Environments Environments
	// Cache says how they keep what tasks read.
	Cache Cache
	// Provider finds the compute that makes the nodes of a cluster, where one does.
	Provider func() (Provider, error)
	// Consents is what the operator allows drivers that need it, by their name: see [Type.Consent].
	Consents map[string]string
	// Hosts are those that the operator lets the server send requests to, HOST or HOST:PORT, or
	// with a scheme.
	Hosts []string
	// SSHAgent is the socket of an SSH agent whose keys computes may name, or the word true where
	// the server's environment was to name it and did not; empty allows none.
	SSHAgent string
	// Program is the hash of the server's own program, which nodes can fetch by it.
	Program func() (hash string, err error)
	// Dial opens a connection to this server, for targets whose tasks reach it through the driver.
	Dial func(context.Context) (net.Conn, error)
	Log  *slog.Logger
}

// Cache says where code and inputs of tasks are cached.
type Cache struct {
	Dir   string // empty: below the driver's own directory
	Bytes int64  // how much is kept; 0 is the default
}

// Environments says where built environments are cached, and which container engine runs images.
type Environments struct {
	Dir    string // empty: below the driver's own directory
	Bytes  int64  // how much is kept; 0 is the default
	Engine string // Docker API address; empty looks for one, "none" uses none
}

// Open creates a driver. It does no I/O that can block: an unreachable target shows in Probe.
type Open func(Config) (Driver, error)
