package driver

import (
	"context"
	"net"

	"github.com/berthml/berth"
)

// A Provider makes machines for the nodes of managed clusters. Drivers of attached computes
// implement it; package provided is the driver of the clusters.
//
// A machine runs one program, `berth _node`, which connects to the server. Everything else about a
// node, when it is wanted, what runs on it and what it costs, is decided as for other nodes.
type Provider interface {
	// MakeNode asks for a machine. It does not wait until there is one, and one that was asked for
	// before is success. Invalid when there can never be such a machine.
	MakeNode(ctx context.Context, n NodeSpec) error
	// MadeNodes lists the machines of a cluster that were asked for and not given back.
	MadeNodes(ctx context.Context, cluster string) ([]MadeNode, error)
	// UnmakeNode ends everything on a machine and gives it back. Unknown is success; Unavailable
	// while something is left of it.
	UnmakeNode(ctx context.Context, cluster, name string) error
}

// MadeNode is a machine of a Provider.
type MadeNode struct {
	Name string
	Gone bool // it has ended, or was taken away
	// Taken says that it is gone because somebody or something took it away, and not because of
	// what ran on it.
	Taken bool
	// Why it is gone, or what it waits for; empty when it is there.
	Why     string
	Address string // where tasks on other machines of the provider reach it; empty until it is known
}

// Boot is what a machine of a Provider needs to become a node.
type Boot struct {
	Cluster string          // what MadeNodes lists it under: the same for all nodes of a compute
	Compute string          // the name of the compute
	Where   berth.Workspace // the compute's workspace
	Token   string          // good for this node only
	Home    berth.Home      // where it reaches the server, without a token
	// Join is the contents of the file join.json in the directory of `berth _node --dir DIR`. It
	// has the token in it. Package provided writes it.
	Join []byte
}

// A NodeAcceptor is a driver whose nodes open the connection.
type NodeAcceptor interface {
	// AcceptNode takes over the connection of a node, as [Acceptor.Accept] does that of a target.
	AcceptNode(ctx context.Context, name string, c net.Conn) (ended <-chan error, err error)
}

// Gone is the error of a Start whose node is gone, where its target knows why.
type Gone struct{ Why string }

func (g *Gone) Error() string { return g.Why }

// Waiting is the error of an AddNode whose node is asked for and not there yet. The caller asks
// again.
type Waiting struct{ Why string }

func (w *Waiting) Error() string { return w.Why }
