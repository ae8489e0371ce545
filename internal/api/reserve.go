package api

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/store"
)

// reserve holds a job's share of the budgets it is charged to, or says which has too little left.
func (c jobCall) reserve(tx *store.Tx, compute string, props map[string]any, name string, st *berth.JobState) error {
	ask, err := c.ask(tx, compute, props, name)
	if err != nil || ask == nil {
		return err
	}
	return c.charge(tx, *ask, st)
}

// ask is what a job would hold of budgets, nil where nothing has to be held.
func (c jobCall) ask(tx *store.Tx, compute string, props map[string]any, name string) (*cost.Ask, error) {
	here := berth.IsLocal(compute)
	if here && c.s.Local.Size() == nil {
		return nil, nil // this machine costs nothing
	}
	if some, err := tx.List(store.Query{Workspace: c.ws.Key(), Kind: cost.Kind, Limit: 1, NoBody: true}); err != nil || len(some) == 0 {
		return nil, err
	}
	raw, err := json.Marshal(props)
	if err != nil {
		return nil, err
	}
	var v berth.CommandJob
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, berth.Errorf(berth.Invalid, "properties: %w", err)
	}
	vmSize, low, slots := orElse(v.Resources.InstanceType, serverlessSize), strings.EqualFold(v.QueueSettings.JobTier, "Spot"), 1
	d, err := tx.Get(c.ws.Key(), "computes", compute, "")
	switch {
	case err == nil:
		spec, err := berth.ReadPool(d.Body)
		if err != nil {
			return nil, err
		}
		vmSize, low, slots = spec.Properties.VMSize, spec.Low(), spec.Slots
	case berth.CodeOf(err) != berth.NotFound || !strings.HasPrefix(compute, serverlessPrefix): // such a pool may yet have to be made
		return nil, err
	}
	x := c.snapshot(tx)
	var size berth.Size
	if here {
		size, slots = *c.s.Local.Size(), c.s.Local.Slots
	} else if z, ok, err := x.size(vmSize); err != nil || !ok {
		return nil, err
	} else {
		size = z
	}
	limit, err := berth.ParseDuration(v.Limits.Timeout)
	if err != nil {
		return nil, err
	}
	h, known, err := x.history(v, name)
	if err != nil {
		return nil, err
	}
	ask := cost.Reserve(max(1, v.Resources.InstanceCount), slots, size, low, limit, h, known)
	return &ask, nil
}

// charge reserves what is asked for.
func (c jobCall) charge(tx *store.Tx, ask cost.Ask, st *berth.JobState) error {
	accounts, err := cost.Accounts(tx, c.ws.Key(), c.s.Local, tx.Now())
	if err != nil {
		return err
	}
	accounts = slices.DeleteFunc(accounts, func(a *cost.Account) bool { return a.User != "" && !strings.EqualFold(a.User, c.who.User) })
	for _, a := range accounts {
		if ok, why := cost.Fits(a.BudgetStatus, ask); !ok {
			return &berth.Error{Code: berth.Denied, Wire: "BudgetExceeded", Msg: why + "; `berth budget list` shows what is left, and an administrator can raise it"}
		}
	}
	if len(accounts) > 0 && ask.Priced {
		st.Reserved, st.ReservedIn = ask.Amount, ask.Currency
	}
	return cost.Take(tx, c.ws.Key(), c.who.User, *st)
}
