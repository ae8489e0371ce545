package group

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/berthml/berth"
)

// head is the launcher of the first node: it has mpirun run the command on every node. It learns of
// each rank's end before mpirun does, and holds the ranks' parents back while the others end:
// mpirun gives them a second.
type head struct {
	*node
	arms   []*link       // by node; none for the first
	agents map[int]*link // by node
	mpirun *exec.Cmd
	aborts *aborts

	begun    int
	over     map[int]bool
	held     []ended
	first    *ended // to fail by itself
	stopped  *ended // to end because it was asked to
	stopping bool
	free     bool // nobody is held back any more
	enough   <-chan time.Time
}

func runHead(ctx context.Context, s *Spec, dir string) berth.Exit {
	runtime.LockOSThread()
	asked := signals()
	major, err := openMPI(ctx)
	if err != nil {
		return berth.Exit{Code: 127, Cause: "command", Reason: err.Error()}
	}
	n, err := newNode(ctx, s, dir)
	if err != nil {
		return cannot("the first node cannot begin: %v", err)
	}
	defer n.close()
	h := &head{node: n, agents: map[int]*link{}, over: map[int]bool{}, aborts: &aborts{to: os.Stderr}}
	if h.arms, err = h.reach(ctx, asked); err != nil {
		return cannot("%v", err)
	}
	if h.arms == nil {
		return berth.Exit{Code: stopCode, Signal: "SIGTERM", Reason: "it was asked to end while it waited for the other nodes"}
	}
	e := h.run(ctx, major, asked)
	for _, a := range h.arms {
		if a != nil {
			_ = a.send(message{Op: opEnd, Exit: &e})
			a.close()
		}
	}
	return e
}

// reach connects to the arms, which may still be on their way: their nodes stage and prepare for as
// long as they need. Nil without an error means that the launcher was asked to end.
func (h *head) reach(ctx context.Context, asked <-chan os.Signal) ([]*link, error) {
	nodes := h.s.Group.Nodes
	arms := make([]*link, len(nodes))
	if len(nodes) > 1 && h.s.Group.Secret == "" {
		return nil, fmt.Errorf("the nodes of the job have no secret in common")
	}
	type reached struct {
		node int
		l    *link
	}
	there := make(chan reached)
	for i := range nodes {
		if i > 0 {
			go func() { there <- reached{i, h.dial(ctx, i)} }()
		}
	}
	for range len(nodes) - 1 {
		select {
		case r := <-there:
			arms[r.node] = r.l
		case <-asked:
			return nil, nil
		}
	}
	for i, a := range arms {
		if a != nil {
			go h.read(a, i)
		}
	}
	return arms, nil
}

// dial reaches the arm of a node, however long that takes.
func (h *head) dial(ctx context.Context, node int) *link {
	told := time.Now()
	dialer := net.Dialer{Timeout: handshakeLimit}
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		c, err := dialer.DialContext(ctx, "tcp", h.s.address(node))
		if err == nil {
			var l *link
			if l, err = shake(c, h.s.Group.Secret, node, "head"); err == nil {
				return l
			}
			c.Close()
		}
		if time.Since(told) > 30*time.Second {
			told = time.Now()
			fmt.Fprintf(os.Stderr, "berth: still waiting for node %d: %v\n", node, err)
		}
		time.Sleep(pause)
	}
}

// run has mpirun run the command and follows it to its end.
func (h *head) run(ctx context.Context, major int, asked <-chan os.Signal) berth.Exit {
	if err := h.startMPI(ctx, major); err != nil {
		return cannot("mpirun did not start: %v", err)
	}
	ended := make(chan ended, 1)
	go func() { ended <- wait(h.mpirun, 0, "") }()
	var lost *berth.Exit
	for {
		select {
		case e := <-ended:
			if lost != nil {
				return *lost
			}
			return h.exit(e)
		case <-asked:
			h.stop()
		case <-h.enough:
			h.tellAll(opKill)
			h.letAllGo()
		case e := <-h.events:
			if e.err != nil && e.arm > 0 {
				if lost == nil {
					lost = &berth.Exit{Code: 1, Cause: "peer", Reason: fmt.Sprintf("node %d (%s) is gone", e.arm, h.s.Group.Nodes[e.arm].Address)}
					h.arms[e.arm] = nil
					h.signal(syscall.SIGTERM)
				}
				continue
			}
			if err := h.handle(e); err != nil {
				fmt.Fprintln(os.Stderr, "berth:", err)
			}
		}
	}
}

// startMPI starts mpirun on the program that stands above each rank.
func (h *head) startMPI(ctx context.Context, major int) error {
	env, err := h.environ()
	if err != nil {
		return err
	}
	program, err := self()
	if err != nil {
		return err
	}
	h.mpirun = exec.CommandContext(ctx, "mpirun", mpirunArgs(h.s, major, program+" _group rsh", os.Getuid() == 0, interfaces(ctx, h.s.Group.Nodes))...)
	h.mpirun.Env, h.mpirun.Dir, h.mpirun.SysProcAttr = env, h.dir, attr()
	h.mpirun.Stdout, h.mpirun.Stderr, h.mpirun.WaitDelay = os.Stdout, h.aborts, time.Second
	return h.mpirun.Start()
}

// signal reaches mpirun itself, which sees to the rest.
func (h *head) signal(sig syscall.Signal) { _ = syscall.Kill(h.mpirun.Process.Pid, sig) }

func (h *head) handle(e event) error {
	if e.arm > 0 {
		return h.hear(e.arm, e.m)
	}
	if e.err != nil {
		if rank, ok := h.rankOf(e.from); ok { // it cannot say any more how it ended
			delete(h.ranks, rank)
			h.rankEnded(ended{Rank: rank, Code: 128 + int(syscall.SIGKILL), Signal: int(syscall.SIGKILL), Told: true})
		}
		return nil
	}
	switch e.m.Op {
	case opRank:
		if err := h.begin(e.from, e.m.Rank); err != nil {
			return err
		}
		h.rankBegun(e.from)
	case opEnded:
		h.rankEnded(*e.m.Ended)
	case opRun:
		if e.m.Node < 1 || e.m.Node >= len(h.arms) || h.arms[e.m.Node] == nil {
			return e.from.send(message{Op: opExit, Code: 255})
		}
		h.agents[e.m.Node] = e.from
		return h.arms[e.m.Node].send(e.m)
	}
	return nil
}

// hear takes what an arm says.
func (h *head) hear(node int, m message) error {
	switch m.Op {
	case opBegun:
		h.rankBegun(h.arms[node])
	case opEnded:
		h.rankEnded(*m.Ended)
	case opStop:
		h.stop()
	case opOut, opErr, opExit:
		if a := h.agents[node]; a != nil {
			return a.send(m)
		}
	}
	return nil
}

func (h *head) rankBegun(by *link) {
	h.begun++
	if h.stopping {
		_ = by.send(message{Op: opStop})
	}
}

// rankEnded notes the end of a rank. The first that fails ends the others.
func (h *head) rankEnded(e ended) {
	if h.over[e.Rank] {
		return
	}
	h.over[e.Rank] = true
	if !e.ok() && !e.Told {
		switch {
		case h.stopping && h.stopped == nil:
			h.stopped = &e
		case !h.stopping:
			h.first, h.stopping, h.enough = &e, true, time.After(h.s.grace())
			h.tellAll(opStop)
		}
	}
	h.held = append(h.held, e)
	if !h.stopping || h.free || e.Told || len(h.over) == h.s.Group.World {
		h.letAllGo()
	}
}

// stop asks every rank to end. Before all have begun mpirun is asked: it knows what else is on its
// way.
func (h *head) stop() {
	if h.stopping {
		return
	}
	h.stopping = true
	h.tellAll(opStop)
	if h.begun < h.s.Group.World {
		h.signal(syscall.SIGTERM)
	}
}

func (h *head) tellAll(op string) {
	h.tell(op)
	for _, a := range h.arms {
		if a != nil {
			_ = a.send(message{Op: op})
		}
	}
}

// letAllGo lets the parents of ranks that ended end too, and mpirun see it.
func (h *head) letAllGo() {
	h.free = h.free || h.stopping
	for _, e := range h.held {
		if node := h.s.nodeOf(e.Rank); node == 0 {
			h.letGo(e.Rank)
		} else if h.arms[node] != nil {
			_ = h.arms[node].send(message{Op: opGo, Rank: e.Rank})
		}
	}
	h.held = nil
}

// exit is how the job went: the first rank to fail knows best, then mpirun.
func (h *head) exit(mpirun ended) berth.Exit {
	switch rank, ok := h.aborts.rank(); {
	case ok && !mpirun.ok() && (h.first == nil || h.first.Rank == rank):
		e := h.s.exit(ended{Rank: rank, Code: mpirun.Code})
		e.Reason = fmt.Sprintf("process %d (node %d) called MPI_Abort with error code %d", rank, h.s.nodeOf(rank), mpirun.Code)
		return e
	case h.first != nil:
		return h.s.exit(*h.first)
	case h.stopped != nil:
		return h.s.exit(*h.stopped)
	case mpirun.ok():
		return berth.Exit{}
	case mpirun.Signal != 0:
		return berth.Exit{Code: mpirun.Code, Signal: signalName(mpirun.Signal), Reason: "mpirun was ended by " + signalName(mpirun.Signal)}
	}
	return berth.Exit{Code: mpirun.Code, Reason: fmt.Sprintf("mpirun ended with exit code %d, see the end of the log", mpirun.Code)}
}

// aborts passes on what mpirun says and picks out which rank called MPI_Abort: mpirun ends all
// ranks alike then, and nobody else knows which began.
type aborts struct {
	to   *os.File
	line []byte
	who  []byte
}

var abortLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`MPI_ABORT was invoked on rank (\d+)`) })

func (a *aborts) Write(p []byte) (int, error) {
	if a.who == nil {
		a.line = append(a.line, p...)
		if m := abortLine().FindSubmatch(a.line); m != nil {
			a.who = bytes.Clone(m[1])
		}
		if i := bytes.LastIndexByte(a.line, '\n'); i >= 0 {
			a.line = append(a.line[:0], a.line[i+1:]...)
		}
		if len(a.line) > 4096 {
			a.line = a.line[:0]
		}
	}
	return a.to.Write(p)
}

// rank is asked for once mpirun has ended, and all it said has been written.
func (a *aborts) rank() (int, bool) {
	n, err := strconv.Atoi(string(a.who))
	return n, err == nil
}
