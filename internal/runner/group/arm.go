package group

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berthml/berth"
)

// arm is the launcher of a node other than the first: it runs what the head asks it to, mpirun's
// daemon, until the head says that all is over.
type arm struct {
	*node
	head    *link
	daemon  *exec.Cmd
	daemons chan ended
}

// address is where the arm of a node listens.
func (s *Spec) address(node int) string {
	return net.JoinHostPort(s.Group.Nodes[node].Address, strconv.Itoa(s.Group.Port+node))
}

func runArm(ctx context.Context, s *Spec, dir string) berth.Exit {
	runtime.LockOSThread()
	asked := signals()
	n, err := newNode(ctx, s, dir)
	if err != nil {
		return cannot("node %d cannot wait for the first node: %v", s.Group.Node, err)
	}
	defer n.close()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.address(s.Group.Node))
	if err != nil {
		return cannot("node %d cannot wait for the first node: %v", s.Group.Node, err)
	}
	defer l.Close()
	a := &arm{node: n, daemons: make(chan ended)}
	heads := make(chan *link)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				head, err := shake(c, s.Group.Secret, s.Group.Node, "arm")
				if err != nil {
					fmt.Fprintf(os.Stderr, "berth: refused a connection from %v: %v\n", c.RemoteAddr(), err)
					c.Close()
					return
				}
				heads <- head
			}()
		}
	}()
	defer a.endDaemon()
	for {
		select {
		case head := <-heads:
			if a.head != nil {
				head.close() // there is one already
				continue
			}
			a.head = head
			l.Close()
			go n.read(head, 1)
		case <-asked:
			if a.head == nil {
				return berth.Exit{Code: stopCode, Signal: "SIGTERM", Reason: "it was asked to end while it waited for the first node"}
			}
			_ = a.head.send(message{Op: opStop})
		case e := <-a.daemons:
			a.daemon = nil
			_ = a.head.send(message{Op: opExit, Code: e.Code})
		case e := <-n.events:
			if x := a.handle(ctx, e); x != nil {
				return *x
			}
		}
	}
}

// handle is not nil when the arm's work is over.
func (a *arm) handle(ctx context.Context, e event) *berth.Exit {
	if e.from == a.head {
		return a.obey(ctx, e)
	}
	var err error
	switch {
	case e.err != nil:
		if rank, ok := a.rankOf(e.from); ok {
			delete(a.ranks, rank)
			err = a.tellHead(message{Op: opEnded, Ended: &ended{Rank: rank, Code: 128 + int(syscall.SIGKILL), Signal: int(syscall.SIGKILL), Told: true}})
		}
	case e.m.Op == opRank:
		if err = a.begin(e.from, e.m.Rank); err == nil {
			err = a.tellHead(message{Op: opBegun, Rank: e.m.Rank})
		}
	case e.m.Op == opEnded:
		err = a.tellHead(e.m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "berth:", err)
	}
	return nil
}

func (a *arm) tellHead(m message) error {
	if a.head == nil {
		return nil
	}
	return a.head.send(m)
}

// obey does what the head says.
func (a *arm) obey(ctx context.Context, e event) *berth.Exit {
	if e.err != nil {
		why := "the connection was cut"
		if e.err != io.EOF {
			why = e.err.Error()
		}
		return &berth.Exit{Code: 1, Cause: "peer", Reason: fmt.Sprintf("node 0 (%s) is gone: %s", a.s.Group.Nodes[0].Address, why)}
	}
	switch e.m.Op {
	case opRun:
		if err := a.startDaemon(ctx, e.m); err != nil {
			_ = a.head.send(message{Op: opErr, Data: []byte("berth: " + err.Error() + "\n")})
			_ = a.head.send(message{Op: opExit, Code: 127})
		}
	case opStop, opKill:
		a.tell(e.m.Op)
	case opGo:
		a.letGo(e.m.Rank)
	case opEnd:
		if e.m.Exit == nil || e.m.Exit.OK() {
			return &berth.Exit{}
		}
		return &berth.Exit{Code: 1, Cause: "peer", Reason: "another process of the job failed: " + e.m.Exit.Reason}
	}
	return nil
}

// here is the command of a message as this node writes it. Each node has this program in another
// place, and a daemon that is told of an agent it does not find does not start.
func here(m message) (string, error) {
	if m.Self == "" {
		return m.Text, nil
	}
	own, err := self()
	return strings.ReplaceAll(m.Text, m.Self, own), err
}

// startDaemon runs mpirun's daemon, whose words travel back.
func (a *arm) startDaemon(ctx context.Context, m message) error {
	env, err := a.environ()
	if err != nil {
		return err
	}
	text, err := here(m)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", text)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = env, a.dir, attr()
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &relay{a.head, opOut}, &relay{a.head, opErr}, time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	a.daemon = cmd
	go func() { a.daemons <- wait(cmd, 0, "") }()
	return nil
}

// endDaemon gives the daemon a moment to end by itself, and then makes it.
func (a *arm) endDaemon() {
	if a.daemon == nil {
		return
	}
	enough := time.NewTimer(a.s.grace() / 2)
	defer enough.Stop()
	for {
		select {
		case <-a.daemons:
			return
		case <-enough.C:
			_ = syscall.Kill(-a.daemon.Process.Pid, syscall.SIGKILL)
		case <-a.events: // nobody must wait for the loop that is over
		}
	}
}

// relay writes to a link.
type relay struct {
	l  *link
	op string
}

func (r *relay) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		part := p[n:min(len(p), n+longest/4)]
		if err := r.l.send(message{Op: r.op, Data: part}); err != nil {
			return n, err
		}
		n += len(part)
	}
	return len(p), nil
}
