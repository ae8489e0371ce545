package devbox

import (
	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/picture"
	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/sched"
	"github.com/berthml/berth/internal/sizes"
	"github.com/berthml/berth/internal/store"
)

// Admission decides which nodes instances may have, by the same rules as clusters: sizes, quotas,
// what is free on the machine.
type Admission struct {
	Machine      sched.Machine
	QuotaDefault int
}

// Admit is [Options.Admit].
func (a Admission) Admit(tx *store.Tx, n *berth.Node) error {
	catalogue, err := sizes.LoadTx(tx)
	if err != nil {
		return err
	}
	size, ok := catalogue.Find(n.Size)
	if !ok {
		return berth.Errorf(berth.Invalid, "unknown size %s; choose another with `berth compute resize -n %s --size SIZE`", n.Size, n.Compute)
	}
	why, err := unpaid(tx, n.Workspace, n.User)
	if err != nil {
		return err
	}
	if why != "" {
		return berth.Errorf(berth.Limit, "%s", why)
	}
	limits, err := quota.LoadTx(tx, a.QuotaDefault)
	if err != nil {
		return err
	}
	used, err := quota.Used(tx)
	if err != nil {
		return err
	}
	ask := quota.Use{Workspace: n.Workspace, Family: size.Family, User: n.User, VCPUs: size.VCPUs}
	if room, unlimited, why := limits.Room(used, ask, tx.Now()); !unlimited && room < size.VCPUs {
		return berth.Errorf(berth.Limit, "%s", why)
	}
	m, err := (&picture.Reader{Tx: tx, Machine: a.Machine}).Occupied()
	if err != nil {
		return err
	}
	gpus, ok, why := m.Admit(sched.AskOf(n.Compute, size))
	if !ok {
		return berth.Errorf(berth.Unavailable, "%s", why)
	}
	n.Size, n.Family, n.Isolated, n.VCPUs, n.Memory, n.GPUs = size.Name, size.Family, size.Isolated, size.VCPUs, size.Memory(), gpus
	if size.Price != nil {
		n.Price, n.Priced, n.Currency = *size.Price, true, size.Currency
	}
	return nil
}

// unpaid is why nothing is paid for a user's instances now; empty when it is.
func unpaid(tx *store.Tx, workspace, user string) (string, error) {
	ended, err := cost.UsedUp(tx, workspace)
	if title := cost.Charged(ended, user); title != "" {
		return title + " is used up", err
	}
	return "", err
}
