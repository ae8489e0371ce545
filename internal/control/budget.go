package control

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/store"
)

const (
	// budgetPause is between two looks at budgets, however much happens.
	budgetPause = 200 * time.Millisecond
	// budgetCause is the Exit.Cause of a job whose budget is used up.
	budgetCause = "budget"
)

// Budgets warns when most of a budget is spent, and asks the jobs charged to one that is used up to
// end, until ctx ends. It looks when something happened that costs, and when what runs will have
// spent so much; without budgets it never does.
func (c *Control) Budgets(ctx context.Context) error {
	some := true
	var last time.Time
	return c.watchLoop(ctx, func(batch []berth.Event) (time.Time, bool) {
		return last.Add(budgetPause), costly(batch, some)
	}, func() (next time.Time) {
		next, some = c.checkBudgets(ctx)
		last = c.o.DB.Now()
		return next
	})
}

// costly says whether what happened can change what is spent, or what may be. Where there are no
// budgets only a new one can.
func costly(batch []berth.Event, some bool) bool {
	for i := range batch {
		switch batch[i].Type {
		case berth.EventBudget:
			return true
		case berth.EventJobCreated, berth.EventJobStatus, berth.EventTaskState, berth.EventNode:
			if some {
				return true
			}
		}
	}
	return false
}

// checkBudgets looks at every budget. It says when to look again, and whether there are any.
func (c *Control) checkBudgets(ctx context.Context) (next time.Time, some bool) {
	var due []string
	err := c.o.DB.View(ctx, func(tx *store.Tx) error {
		workspaces, err := tx.All(store.Query{Kind: "workspaces", NoBody: true})
		if err != nil {
			return err
		}
		for _, w := range workspaces {
			accounts, err := cost.Accounts(tx, w.Name, c.o.Local, tx.Now())
			if err != nil {
				return err
			}
			work := false
			for _, a := range accounts {
				some = true
				if at := cost.Next(a.BudgetStatus, tx.Now()); !at.IsZero() && (next.IsZero() || at.Before(next)) {
					next = at
				}
				warn, end := a.Ledger.Cross(a.BudgetStatus)
				changed, err := a.Changed()
				if err != nil {
					return err
				}
				work = work || warn || end || changed || a.Ledger.Ended
			}
			if work {
				due = append(due, w.Name)
			}
		}
		return nil
	})
	for _, workspace := range due {
		if err == nil {
			err = c.o.DB.Update(ctx, func(tx *store.Tx) error { return settleBudgets(tx, workspace, c.o.Local) })
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			c.o.Log.Warn("budgets were not checked", "err", err)
		}
		return c.o.DB.Now().Add(5 * time.Second), true
	}
	return next, some
}

// readExhausted reads which budgets of a workspace are used up.
func readExhausted(tx *store.Tx, s *state, workspace string) error {
	budgets, err := cost.UsedUp(tx, workspace)
	s.exhausted.Set(workspace, budgets)
	return err
}

// settleBudgets writes down what is spent of the budgets of a workspace, and acts on what has come
// true.
func settleBudgets(tx *store.Tx, workspace string, local berth.LocalTerms) error {
	accounts, err := cost.Accounts(tx, workspace, local, tx.Now())
	if err != nil {
		return err
	}
	for _, a := range accounts {
		warn, end := a.Ledger.Cross(a.BudgetStatus)
		tell := func(typ, reason string) error {
			data, err := json.Marshal(a.BudgetStatus)
			tx.Emit(berth.Event{Workspace: workspace, Subject: "budgets/" + a.Name, Type: typ, Reason: reason, Data: data})
			return err
		}
		title := cost.Title(a.Budget)
		if warn && !end {
			if err := tell(berth.EventBudgetWarning, fmt.Sprintf("%s: %s are spent (%.0f %%)", title, cost.Money(a.Spent, a.Currency), 100*a.Spent/a.Amount)); err != nil {
				return err
			}
		}
		if end {
			if err := tell(berth.EventBudgetExhausted, title+" is used up: jobs charged to it are asked to end and new ones refused, instances stop, and idle nodes are given back"); err != nil {
				return err
			}
		}
		if a.Ended && !a.Ledger.Ended {
			if err := tell(berth.EventBudgetRenewed, title+" has "+cost.Money(a.Amount-a.Spent, a.Currency)+" again"); err != nil {
				return err
			}
		}
		if a.Ledger.Ended {
			if err := stopCharged(tx, a, title, local.Price > 0); err != nil {
				return err
			}
		}
		if err := a.Save(tx); err != nil {
			return err
		}
	}
	return nil
}

// stopCharged asks the jobs charged to a budget to end, gently, as if they were canceled. What runs
// on the machine itself is charged only where that has a price, what runs on attached machines
// never.
func stopCharged(tx *store.Tx, a *cost.Account, title string, local bool) error {
	docs, err := tx.All(store.Query{Workspace: a.Doc.Workspace, Kind: "jobs", Status: berth.StatusTexts(berth.ActiveStatuses)})
	if err != nil {
		return err
	}
	for _, d := range docs {
		st, err := job.State(d)
		if err != nil {
			continue // it ends for that
		}
		if st.Cancel || !local && berth.IsLocal(st.Compute) || a.User != "" && !strings.EqualFold(a.User, d.CreatedBy) {
			continue
		}
		if free, err := onAttached(tx, d.Workspace, st.Compute); err != nil {
			return err
		} else if free {
			continue
		}
		if err := job.Cancel(tx, d, job.Stop{Cause: budgetCause, Why: title + " is used up"}); err != nil {
			return err
		}
	}
	return nil
}
