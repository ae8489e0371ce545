package api

import (
	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/picture"
	"github.com/berthml/berth/internal/plan"
	"github.com/berthml/berth/internal/sizes"
	"github.com/berthml/berth/internal/store"
)

// snapshot reads computes as the pure packages see them. It belongs to one transaction.
type snapshot struct {
	picture.Reader
	s    *Server
	user string // who asks

	sizes *sizes.Catalogue
	runs  map[string][]cost.Run
	// priced wants to know what earlier runs cost, too.
	priced bool
}

func (c *call) snapshot(tx *store.Tx) *snapshot {
	return &snapshot{
		Reader: picture.Reader{
			Tx: tx, Workspace: c.ws.Key(), Now: c.now, Terms: c.s.Local, Slots: c.s.Slots, Machine: c.s.Machine, QuotaDefault: c.s.QuotaDefault,
		},
		s: c.s, user: c.who.User, runs: map[string][]cost.Run{},
	}
}

func (x *snapshot) size(name string) (berth.Size, bool, error) {
	if x.sizes == nil {
		c, err := sizes.LoadTx(x.Tx)
		if err != nil {
			return berth.Size{}, false, err
		}
		x.sizes = &c
	}
	z, ok := x.sizes.Find(name)
	return z, ok, nil
}

// pool is a compute with its nodes and what runs on it and waits for it.
func (x *snapshot) pool(d *store.Doc) (p plan.Pool, err error) {
	if berth.IsLocal(d.Name) {
		return x.local()
	}
	p = newPool()
	if p.Read, err = x.Pool(d); err != nil {
		return p, err
	}
	if !p.Single() {
		size, ok, err := x.size(p.Properties.VMSize)
		if err != nil {
			return p, err
		}
		if !ok {
			size = berth.Size{Name: p.Properties.VMSize}
		}
		p.Size = &size
	}
	return p, x.complete(&p)
}

// newPool is a pool of which nothing is known.
func newPool() plan.Pool { return plan.Pool{Room: plan.NoBound, Expect: map[string]plan.Expect{}} }

// local is the machine itself: one node that is always there.
func (x *snapshot) local() (p plan.Pool, err error) {
	p = newPool()
	p.Size = x.s.Local.Size()
	if p.Read, err = x.Local(); err != nil {
		return p, err
	}
	return p, x.complete(&p)
}

// complete adds what limits the users of a pool, and how long its jobs take.
func (x *snapshot) complete(p *plan.Pool) error {
	if err := x.Bar(&p.Read, x.user); err != nil {
		return err
	}
	return x.expect(p)
}
