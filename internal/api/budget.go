package api

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/sizes"
	"github.com/berthml/berth/internal/store"
)

// budgets serves the budgets of a workspace (ours):
//
//	GET    budgets          all, as they stand
//	GET    budgets/NAME     NAME is workspace, or user: and the user
//	PUT    budgets/NAME     {"amount": …, "period": …, "currency": …} (administrators)
//	DELETE budgets/NAME     (administrators)
func (s *costService) budgets(c *call, p []string) error {
	switch {
	case len(p) == 0 && c.r.Method == http.MethodGet:
		return s.listBudgets(c)
	case len(p) == 0:
		return methodError(c)
	case c.r.Method == http.MethodGet:
		return s.showBudget(c, http.StatusOK, p[0])
	}
	if c.who.Role != auth.Admin {
		return berth.Errorf(berth.Denied, "only an administrator may set budgets")
	}
	switch c.r.Method {
	case http.MethodPut:
		return s.putBudget(c, p[0])
	case http.MethodDelete:
		return s.deleteBudget(c, p[0])
	}
	return methodError(c)
}

// standing is the budgets of the workspace as they stand.
func (s *costService) standing(c *call) (out []berth.BudgetStatus, err error) {
	out = []berth.BudgetStatus{}
	err = s.db.View(c.ctx(), func(tx *store.Tx) error {
		accounts, err := cost.Accounts(tx, c.ws.Key(), s.local, c.now)
		for _, a := range accounts {
			out = append(out, a.BudgetStatus)
		}
		return err
	})
	return out, err
}

func (s *costService) listBudgets(c *call) error {
	all, err := s.standing(c)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, map[string]any{"value": all})
}

func (s *costService) showBudget(c *call, status int, name string) error {
	all, err := s.standing(c)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(b berth.BudgetStatus) bool { return strings.EqualFold(b.Name, name) })
	if i < 0 {
		return noBudget(c, name)
	}
	return c.send(status, all[i])
}

func noBudget(c *call, name string) error {
	return berth.Errorf(berth.NotFound, "there is no budget %q in workspace %s; `berth budget list` shows what there is", name, c.ws.Name)
}

// budgetUser is whose budget a name is.
func budgetUser(name string) (string, error) {
	if strings.EqualFold(name, berth.BudgetWorkspace) {
		return "", nil
	}
	if len(name) > len(berth.BudgetUser) && strings.EqualFold(name[:len(berth.BudgetUser)], berth.BudgetUser) && len(name) < 256 {
		return name[len(berth.BudgetUser):], nil
	}
	return "", berth.Errorf(berth.Invalid, "a budget is called %s, or %sNAME for the user of that name; %q is neither", berth.BudgetWorkspace, berth.BudgetUser, name)
}

// putBudget sets a budget. What was spent in its period counts, also from before it was set.
func (s *costService) putBudget(c *call, name string) error {
	b := berth.Budget{Period: berth.PeriodMonth}
	if err := c.into(&b); err != nil {
		return err
	}
	user, err := budgetUser(name)
	if err != nil {
		return err
	}
	if b.User != "" && !strings.EqualFold(b.User, user) {
		return berth.Errorf(berth.Invalid, "user is %q, but the budget's name says %q", b.User, user)
	}
	b.User, b.Currency = user, strings.ToUpper(b.Currency)
	status := http.StatusOK
	err = s.db.Update(c.ctx(), func(tx *store.Tx) error {
		b := b
		if b.Currency == "" {
			if b.Currency, err = onlyCurrency(tx); err != nil {
				return err
			}
		}
		if err := cost.CheckBudget(b); err != nil {
			return err
		}
		body, err := json.Marshal(b)
		if err != nil {
			return err
		}
		tx.Emit(berth.Event{
			Workspace: c.ws.Key(), Subject: "budgets/" + b.Name(), Type: berth.EventBudget, Reason: cost.Title(b) + " was set by " + c.who.User, Data: body,
		})
		d, err := tx.Get(c.ws.Key(), cost.Kind, b.Name(), "")
		if berth.CodeOf(err) == berth.NotFound {
			status = http.StatusCreated
			return tx.Insert(&store.Doc{Workspace: c.ws.Key(), Kind: cost.Kind, Name: b.Name(), CreatedBy: c.who.User, Body: body})
		}
		if err != nil {
			return err
		}
		var was berth.Budget
		if err := json.Unmarshal(d.Body, &was); err != nil {
			return err
		}
		if was.Period != b.Period || was.Currency != b.Currency {
			d.Own = nil // it has to be counted again
		}
		d.Body = body
		return tx.Save(d)
	})
	if err != nil {
		return err
	}
	return s.showBudget(c, status, b.Name())
}

// onlyCurrency is the currency that all prices are in.
func onlyCurrency(tx *store.Tx) (string, error) {
	c, err := sizes.LoadTx(tx)
	if err != nil {
		return "", err
	}
	found := ""
	for _, z := range c.All() {
		if z.Currency != "" && found != "" && z.Currency != found {
			return "", berth.Errorf(berth.Invalid, "sizes are priced in %s and in %s; say in which currency the budget is", found, z.Currency)
		}
		if z.Currency != "" {
			found = z.Currency
		}
	}
	if found == "" {
		return "", berth.Errorf(berth.Invalid, "no size has a price; say in which currency the budget is")
	}
	return found, nil
}

func (s *costService) deleteBudget(c *call, name string) error {
	err := s.db.Update(c.ctx(), func(tx *store.Tx) error {
		if err := tx.Delete(c.ws.Key(), cost.Kind, name, ""); err != nil {
			return err
		}
		tx.Emit(berth.Event{Workspace: c.ws.Key(), Subject: "budgets/" + name, Type: berth.EventBudget, Reason: "deleted by " + c.who.User})
		return nil
	})
	if berth.CodeOf(err) == berth.NotFound {
		return noBudget(c, name)
	}
	if err != nil {
		return err
	}
	return c.empty(http.StatusNoContent)
}
