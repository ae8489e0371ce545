package control

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/sched"
	"github.com/berthml/berth/internal/sizes"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// catalogue holds the sizes of nodes with their prices, and the quotas. A cycle reads it once, and
// only when a pool grows.
type catalogue struct {
	sizes  sizes.Catalogue
	limits quota.Limits
}

func (cy *cycle) loadCatalogue() (*catalogue, error) {
	if cy.catalogue != nil {
		return cy.catalogue, nil
	}
	var cat catalogue
	var err error
	if cat.sizes, err = sizes.LoadTx(cy.tx); err != nil {
		return nil, err
	}
	if cat.limits, err = quota.LoadTx(cy.tx, cy.c.o.QuotaDefault); err != nil {
		return nil, err
	}
	cy.catalogue = &cat
	return cy.catalogue, nil
}

// room is how many nodes of a size a pool that wants some may have more, as quotas stand, and whose
// limit that is.
func (cat *catalogue) room(cy *cycle, p *pool, size berth.Size, user string, want int) (int, string) {
	var use []quota.Use
	for _, q := range cy.state.pools.All() {
		if q.single() {
			continue
		}
		on := q.users()
		for _, n := range q.nodes {
			use = append(use, quota.Use{Workspace: n.Workspace, Family: n.Family, User: n.User, Low: n.Low, VCPUs: n.VCPUs, Shares: quota.Shares(n.Node, on[n.Name])})
		}
	}
	ask := quota.Use{Workspace: p.key.workspace, Family: size.Family, User: user, Low: p.spec.Low(), VCPUs: want * size.VCPUs}
	vcpus, unlimited, why := cat.limits.Room(use, ask, cy.now)
	if unlimited {
		return math.MaxInt, ""
	}
	return vcpus / max(1, size.VCPUs), why
}

// users counts the tasks on each node of a cluster by user. An instance counts for its owner,
// whoever has jobs on it.
func (p *pool) users() map[string]map[string]int {
	if p.spec.Instance() {
		return nil
	}
	on := map[string]map[string]int{}
	for _, r := range p.running.All() {
		for _, name := range r.On {
			if on[name] == nil {
				on[name] = map[string]int{}
			}
			on[name][r.User]++
		}
	}
	return on
}

// rate is the price per hour of a node, nil when it is not known.
func rate(s berth.Size, low bool) *float64 {
	if low {
		return s.LowPrice
	}
	return s.Price
}

// refreshForeignNodes reads nodes that others wrote and whose events have not arrived yet: those of
// instances. What they use is not available to clusters.
func (cy *cycle) refreshForeignNodes() error {
	if cy.foreignRead {
		return nil
	}
	cy.foreignRead = true
	workspaces, err := cy.tx.All(store.Query{Kind: "workspaces", NoBody: true})
	if err != nil {
		return err
	}
	last := cy.state.lastNodeID
	for _, w := range workspaces {
		docs, err := cy.tx.All(store.Query{Workspace: w.Name, Kind: target.KindNode, After: cy.state.lastNodeID, Asc: true})
		if err != nil {
			return err
		}
		for _, d := range docs {
			last = max(last, d.ID)
			n, err := target.Node(d)
			if err != nil {
				continue // left alone, see readPool
			}
			k := keyOf(w.Name, n.Compute)
			if q := cy.state.pool(k); q != nil && q.node(n.Name) != nil {
				continue
			}
			if err := cy.refreshPool(k); err != nil {
				return err
			}
		}
	}
	cy.state.lastNodeID = last
	return nil
}

// machine describes this machine for admission, with every node on it.
func (cy *cycle) machine(asking *pool) sched.Machine {
	v := cy.c.o.Machine
	v.LocalTasks = cy.state.pool(keyOf("", berth.LocalCompute)).nodes[0].used
	v.Reserved = cy.reserved(asking)
	for _, p := range cy.state.pools.All() {
		if p.single() || p.spec.Provider != "" {
			continue
		}
		for _, n := range p.nodes {
			v.Nodes = append(v.Nodes, sched.GuestOf(n.Node))
		}
	}
	slices.SortFunc(v.Nodes, func(a, b sched.Guest) int { return strings.Compare(a.Compute, b.Compute) })
	return v
}

// reserved is the compute for which this machine is kept empty, "" when it is the one that asks: of
// those that need it for themselves the one that has waited longest, so that they do not wait for
// each other.
func (cy *cycle) reserved(asking *pool) string {
	var first *pool
	for _, p := range cy.state.pools.All() {
		if p.exclusive && p.queue.Len() > 0 && (first == nil || cmp.Or(p.exclusiveSince.Compare(first.exclusiveSince), strings.Compare(p.name, first.name)) < 0) {
			first = p
		}
	}
	if first == nil || asking != nil && first.key == asking.key {
		return ""
	}
	return first.name
}

// waitForMachine notes whether a pool waits for this machine to be empty, and says why its node
// cannot come. Nothing is kept back for one that waits for nodes which do not leave by themselves:
// it might be for ever.
func (cy *cycle) waitForMachine(p *pool, alone bool, why string) string {
	var stay []string
	for _, q := range cy.state.pools.All() {
		switch {
		case !alone || q.key == p.key || q.single() || q.spec.Provider != "" || len(q.nodes) == 0 || q.state.Deleting():
		case q.spec.Instance():
			stay = append(stay, q.name+" is an instance")
		case q.spec.Min > 0:
			stay = append(stay, fmt.Sprintf("%s keeps at least %s", q.name, count(q.spec.Min, "node")))
		}
	}
	if len(stay) > 0 {
		alone = false
		slices.Sort(stay)
		why += "; nothing is held back for it, because " + strings.Join(stay, ", ")
	}
	if alone && !p.exclusive {
		p.exclusiveSince = cy.now
	}
	p.exclusive = alone
	return why
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// localDown is why the machine takes no tasks of its own now. It looks at nodes only where there
// are any.
func (cy *cycle) localDown() (string, error) {
	if cy.state.pools.Len() == 1 {
		return "", nil
	}
	for _, p := range cy.state.pools.All() {
		if p.spec.Instance() {
			if err := cy.refreshForeignNodes(); err != nil {
				return "", err
			}
			break
		}
	}
	return cy.machine(nil).Local(), nil
}
