package group

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/berthml/berth"
)

// socket is where a launcher is reached by the ranks and agents of its node. It is named from the
// task's directory, because the paths of sockets are short.
const socket = "group.sock"

// programVar is the variable with the path of this program, for mpirun's daemons to start ranks by.
const programVar = "BERTH_GROUP"

// rankSpec is what the parent of a rank has to do.
type rankSpec struct {
	Command string   `json:"command"`
	Dir     string   `json:"dir"`
	Log     string   `json:"log"` // file that takes its output
	Env     []string `json:"env"`
	Drop    []string `json:"drop"` // variables that are not the command's
}

// event is a message that came, or the end of a link.
type event struct {
	from *link
	arm  int // node it came from; 0 is this one
	m    message
	err  error
}

// node is what head and arms have in common: the ranks of their node. It belongs to the launcher's
// one loop; readers only post.
type node struct {
	s      *Spec
	dir    string
	events chan event
	ranks  map[int]*link // whose parent is there
	spec   map[int]berth.Process
}

// newNode prepares a node and serves its ranks. The readers end with the launcher's process.
func newNode(ctx context.Context, s *Spec, dir string) (*node, error) {
	n := &node{s: s, dir: dir, events: make(chan event), ranks: map[int]*link{}, spec: map[int]berth.Process{}}
	for _, p := range s.Group.Processes {
		n.spec[p.Rank] = p
	}
	if err := os.Mkdir(n.tmp(), 0o700); err != nil && !os.IsExist(err) {
		return nil, err
	}
	_ = os.Remove(socket)
	l, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go n.read(newLink(c), 0)
		}
	}()
	return n, nil
}

// read posts what comes over a link.
func (n *node) read(l *link, arm int) {
	for {
		m, err := l.receive()
		n.events <- event{l, arm, m, err}
		if err != nil {
			return
		}
	}
}

// tmp is where mpirun and its daemons keep their files.
func (n *node) tmp() string { return filepath.Join(n.dir, "mpi") }

// together says whether nodes of the job share a machine.
func (n *node) together() bool {
	seen := map[string]bool{}
	for _, p := range n.s.Group.Nodes {
		if seen[p.Address] {
			return true
		}
		seen[p.Address] = true
	}
	return false
}

// environ is the environment of mpirun and its daemons.
func (n *node) environ() ([]string, error) {
	program, err := self()
	if err != nil {
		return nil, err
	}
	return append(os.Environ(), "TMPDIR="+n.tmp(), programVar+"="+program, TaskDir+"="+n.dir), nil
}

// begin answers the parent of a rank.
func (n *node) begin(l *link, rank int) error {
	p, ok := n.spec[rank]
	if !ok {
		l.close()
		return fmt.Errorf("mpirun started process %d on node %d, which is another node's", rank, n.s.Group.Node)
	}
	log := Log(n.dir, p)
	if p.Rank == n.s.Group.Processes[0].Rank {
		log = ownOutput()
	}
	env := n.s.environ(p)
	if n.together() {
		// MPI names its shared memory after the host, so that ranks of two nodes of one machine
		// would take each other's.
		for _, c := range []string{"btl_vader", "btl_sm", "osc_sm"} {
			env = append(env, "OMPI_MCA_"+c+"_backing_directory="+n.tmp())
		}
		// Hierarchical collectives too tell nodes apart by the host, and add up wrongly (Open MPI
		// 5.0.11).
		if _, set := os.LookupEnv("OMPI_MCA_coll"); !set {
			env = append(env, "OMPI_MCA_coll=^han")
		}
	}
	if tmp, ok := os.LookupEnv("TMPDIR"); ok {
		env = append(env, "TMPDIR="+tmp)
	}
	n.ranks[rank] = l
	return l.send(message{Op: opSpec, Spec: &rankSpec{
		Command: n.s.Command, Dir: n.s.Dir, Log: log, Env: env, Drop: []string{programVar, "TMPDIR"},
	}})
}

// tell says something to every rank of the node.
func (n *node) tell(op string) {
	for _, l := range n.ranks {
		_ = l.send(message{Op: op}) // who does not hear it any more has ended
	}
}

// letGo lets the parent of a rank that ended end too.
func (n *node) letGo(rank int) {
	if l := n.ranks[rank]; l != nil {
		_ = l.send(message{Op: opGo})
	}
}

// rankOf is the rank at the other end of a link.
func (n *node) rankOf(l *link) (int, bool) {
	for r, x := range n.ranks {
		if x == l {
			return r, true
		}
	}
	return 0, false
}

// close ends what is left of the node's ranks.
func (n *node) close() {
	n.tell(opKill)
	_ = os.Remove(socket)
}

// stopCode is the exit code of a launcher that was asked to end before anything began.
const stopCode = 128 + int(syscall.SIGTERM)
