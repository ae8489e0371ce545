package target

import (
	"encoding/json"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// KindNode is the kind of the documents that nodes are kept as.
const KindNode = "nodes"

// Node is the node that a document of kind nodes is about.
func Node(d *store.Doc) (berth.Node, error) { return store.State[berth.Node](d) }

// NodeParent is the parent of the documents of a compute's nodes.
func NodeParent(compute string) string { return strings.ToLower(compute) }

// NodeDocs are the documents of the nodes of a compute, or of all of a workspace where compute is
// empty, oldest first.
func NodeDocs(tx *store.Tx, workspace, compute string) ([]*store.Doc, error) {
	return tx.All(store.Query{Workspace: workspace, Kind: KindNode, Parent: NodeParent(compute), Asc: true})
}

// Nodes are the nodes of a compute, or of all of a workspace where compute is empty, oldest first.
// One whose document cannot be read is left out, as the control loop does, which logs it: it must
// not keep the others from being used.
func Nodes(tx *store.Tx, workspace, compute string) ([]berth.Node, error) {
	docs, err := NodeDocs(tx, workspace, compute)
	if err != nil {
		return nil, err
	}
	out := make([]berth.Node, 0, len(docs))
	for _, d := range docs {
		if n, err := Node(d); err == nil {
			out = append(out, n)
		}
	}
	return out, nil
}

// LoadNode reads a node and its document.
func LoadNode(tx *store.Tx, workspace, name string) (d *store.Doc, n berth.Node, err error) {
	if d, err = tx.Get(workspace, KindNode, name, ""); err != nil {
		return nil, n, err
	}
	n, err = Node(d)
	return d, n, err
}

// SetNode replaces the node that a document is about. The document still has to be written.
func SetNode(d *store.Doc, n berth.Node) error {
	d.Status = string(n.State)
	return store.SetState(d, n)
}

// NewNode is the document of a node.
func NewNode(n berth.Node) (*store.Doc, error) {
	d := &store.Doc{
		Workspace: n.Workspace, Kind: KindNode, Name: n.Name, Parent: NodeParent(n.Compute), CreatedBy: n.User, Body: json.RawMessage("{}"),
	}
	return d, SetNode(d, n)
}
