package api

import (
	"fmt"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/devbox"
	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/store"
)

// keptCost is what a cluster costs while no job runs, "" when it keeps no nodes.
func (c computeCall) keptCost(tx *store.Tx, v berth.ComputeProps) (string, error) {
	sc := v.Properties.ScaleSettings
	if sc == nil || sc.MinNodeCount == 0 {
		return "", nil
	}
	month, err := c.monthly(tx, v.Properties.VMSize, v.Low(), sc.MinNodeCount)
	nodes := "1 node"
	if sc.MinNodeCount > 1 {
		nodes = fmt.Sprintf("%d nodes", sc.MinNodeCount)
	}
	return fmt.Sprintf("it keeps %s also when no job runs (min_instances): %s; with 0 it costs nothing then", nodes, month), err
}

// awakeCost is what an instance costs that nothing stops, "" when an idle time or a schedule does.
func (c computeCall) awakeCost(tx *store.Tx, spec devbox.Spec) (string, error) {
	if spec.Idle > 0 {
		return "", nil
	}
	for _, s := range spec.Schedules {
		if s.Enabled && !s.Start {
			return "", nil
		}
	}
	month, err := c.monthly(tx, spec.Size, false, 1)
	return fmt.Sprintf("it does not stop by itself, whether it is used or not: %s; idle_time_before_shutdown_minutes makes it stop", month), err
}

// limitWarnings say which nodes a cluster is asked to keep that it cannot have: for a quota, or for
// a budget that is used up.
func (c computeCall) limitWarnings(tx *store.Tx, v berth.ComputeProps, size berth.Size) (out []string, err error) {
	budgets, err := c.snapshot(tx).budgets(c.call)
	if err != nil {
		return nil, err
	}
	for _, b := range budgets {
		if b.State == "exhausted" {
			out = append(out, cost.Title(b.Budget)+" was used up when it was written: jobs on it are refused and no idle nodes kept; `berth budget list` shows what is left")
		}
	}
	sc := v.Properties.ScaleSettings
	if sc == nil || sc.MinNodeCount == 0 {
		return out, nil
	}
	limits, err := quota.LoadTx(tx, c.s.QuotaDefault)
	if err != nil {
		return nil, err
	}
	need := sc.MinNodeCount * size.VCPUs
	ask := quota.Use{Workspace: c.ws.Key(), Family: size.Family, User: c.who.User, Low: v.Low(), VCPUs: need}
	if vcpus, unlimited, why := limits.Room(nil, ask, tx.Now()); !unlimited && vcpus < need {
		out = append(out, fmt.Sprintf("its min_instances need %s, more than it might have when it was written: %s", quota.Cores(need), why))
	}
	return out, nil
}

// monthly is what nodes cost that are always there.
func (c computeCall) monthly(tx *store.Tx, name string, low bool, nodes int) (string, error) {
	size, ok, err := c.snapshot(tx).size(name)
	rate := cost.Rate(size, low)
	if err != nil || !ok || rate == nil {
		return "the price of " + name + " is not known", err
	}
	return fmt.Sprintf("%s a month (%d hours at %s)", cost.Money(*rate*float64(nodes)*quota.HoursOfMonth, size.Currency),
		quota.HoursOfMonth, cost.Money(*rate*float64(nodes), size.Currency)), nil
}

// warnings is what to know about a compute, with what it costs while nobody uses it.
func warnings(st berth.ComputeState) []string {
	if st.IdleCost == "" {
		return st.Warnings
	}
	return append(st.Warnings[:len(st.Warnings):len(st.Warnings)], st.IdleCost)
}
