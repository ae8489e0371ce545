package cli

import (
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
)

func budgetCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "budget", Short: "Limit what a workspace or a user may spend", Args: cobra.ArbitraryArgs,
		Long: "A budget limits what a workspace, or a user in it, may spend on nodes in a month, in a week or in total. A job reserves what it may\n" +
			"cost until it has ended, and is refused if too little is left. At 80 % there is a warning; when a budget is exhausted,\n" +
			"the jobs charged to it are stopped.",
		RunE: group,
	}
	cmd.AddCommand(budgetSet(s), budgetList(s), budgetDelete(s))
	return cmd
}

func budgetSet(s *session) *cobra.Command {
	var b berth.Budget
	cmd := &cobra.Command{
		Use:   "set --amount N",
		Short: "Set a budget (administrators only)",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			if !(b.Amount > 0) || math.IsInf(b.Amount, 0) { // what is not a number is not more than 0 either
				return usagef("give what may be spent: `berth budget set --amount 50`")
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			st, err := c.SetBudget(cmd.Context(), b)
			if err != nil {
				return err
			}
			if s.format.chosen() {
				return s.print(st)
			}
			s.say("%s may spend %s; %s are spent, %s reserved", budgetOf(*st), allowance(*st), money(st.Spent, st.Currency), money(st.Reserved, st.Currency))
			return nil
		},
	}
	f := cmd.Flags()
	f.Float64Var(&b.Amount, "amount", 0, "how much may be spent")
	f.StringVar(&b.User, "user", "", "the user the budget is for; default: the whole workspace")
	f.StringVar(&b.Period, "period", berth.PeriodMonth, "month or week (in UTC), or total: since it was first set")
	f.StringVar(&b.Currency, "currency", "", "currency, for example EUR (default: that of the prices)")
	s.format.flags(cmd)
	return cmd
}

func budgetOf(b berth.BudgetStatus) string {
	if b.User == "" {
		return "the workspace"
	}
	return b.User
}

func allowance(b berth.BudgetStatus) string {
	if b.Period == berth.PeriodTotal {
		return money(b.Amount, b.Currency) + " in all"
	}
	return money(b.Amount, b.Currency) + " a " + b.Period
}

func budgetList(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List budgets, with what is spent, reserved and left", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			all, err := c.Budgets(cmd.Context())
			switch {
			case err != nil:
				return err
			case s.format.chosen():
				return s.print(all)
			case len(all) == 0:
				s.say("no budgets; `berth budget set --amount 50` limits what this workspace may spend in a month")
				return nil
			}
			return s.printBudgets(all, time.Now())
		},
	}
	s.format.flags(cmd)
	return cmd
}

func (s *session) printBudgets(all []berth.BudgetStatus, now time.Time) error {
	t := table{header: []string{"WHOSE", "BUDGET", "SPENT", "RESERVED", "LEFT", "AN HOUR NOW", "STATE"}}
	for _, b := range all {
		state, color := b.State, map[string]string{"ok": green, "warning": yellow, "exhausted": red}[b.State]
		if b.State != "exhausted" && !b.UsedUpAt.IsZero() {
			state += ", used up " + clock(b.UsedUpAt, now) + " if this goes on"
		}
		if b.Unknown > 0 {
			state += fmt.Sprintf(", %.2f node hours not counted: no price", b.Unknown)
		}
		t.add(cell{orText(b.User, "workspace"), ""}, cell{allowance(b), ""}, cell{money(b.Spent, b.Currency), ""}, cell{money(b.Reserved, b.Currency), ""},
			cell{money(b.Left, b.Currency), ""}, cell{money(b.Rate, b.Currency), ""}, cell{state, color})
	}
	return s.printRows(t)
}

func budgetDelete(s *session) *cobra.Command {
	var b berth.Budget
	cmd := &cobra.Command{
		Use: "delete", Short: "Remove a budget (administrators only)", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			if err := c.DeleteBudget(cmd.Context(), b.Name()); err != nil {
				return err
			}
			s.say("%s no longer has a budget", budgetOf(berth.BudgetStatus{Budget: b}))
			return nil
		},
	}
	cmd.Flags().StringVar(&b.User, "user", "", "the user the budget is for; default: the whole workspace")
	return cmd
}
