package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
)

func costCommand(s *session) *cobra.Command {
	var by []string
	var since, until string
	cmd := &cobra.Command{
		Use:   "cost",
		Short: "Show what was spent, by whom and on what, and what idle nodes cost",
		Long: "Shows what the nodes of clusters and instances cost, from request to release. What runs on this machine\n" +
			"itself costs nothing. Hours with an unknown price are shown as such and not included in sums.\n\n" +
			"  berth cost --by user,compute --since 30d",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			now := time.Now()
			from, err := moment("--since", since, now)
			if err != nil {
				return err
			}
			var to time.Time
			if until != "" {
				if to, err = moment("--until", until, now); err != nil {
					return err
				}
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			sp, err := c.Spending(cmd.Context(), by, from, to)
			if err != nil {
				return err
			}
			if s.format.chosen() {
				return s.print(sp)
			}
			return s.printSpending(sp)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&by, "by", []string{"user"}, "what to group by: user, job, compute, size, tier")
	f.StringVar(&since, "since", "7d", "from when: 90m, 12h, 7d, 4w ago, a date, or a time such as 2026-03-01T12:00:00Z")
	f.StringVar(&until, "until", "", "end of the period, in the same form as --since (default: now)")
	s.format.flags(cmd)
	return cmd
}

// moment reads a time: so long ago, a date of this place, or RFC 3339.
func moment(flag, text string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, text, now.Location()); err == nil {
		return t, nil
	}
	if d, ok := before(text); ok {
		return now.Add(-d), nil
	}
	return now, usagef("%s %s: give how long ago, such as 12h or 7d, a date, or a time such as 2026-03-01T12:00:00Z", flag, text)
}

// before reads a length of time in minutes, hours, days or weeks.
func before(text string) (time.Duration, bool) {
	if text == "" {
		return 0, false
	}
	unit, ok := map[byte]time.Duration{'m': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}[text[len(text)-1]]
	n, err := strconv.ParseFloat(text[:len(text)-1], 64)
	if !ok || err != nil || n < 0 || n*float64(unit) > math.MaxInt64 {
		return 0, false
	}
	return time.Duration(n * float64(unit)), true
}

func (s *session) printSpending(sp *berth.Spending) error {
	if len(sp.Groups) == 0 {
		s.say("nothing was spent since %s", sp.Since.Local().Format("2006-01-02 15:04"))
		return nil
	}
	t := table{}
	for _, k := range sp.By {
		t.header = append(t.header, strings.ToUpper(k))
	}
	t.header = append(t.header, "NODE HOURS", "COST", "IDLE HOURS", "IDLE COST", "TOTAL")
	row := func(l berth.CostLine, names []string, color string) {
		cells := make([]cell, 0, len(names)+5)
		for _, n := range names {
			cells = append(cells, cell{orText(n, "-"), color})
		}
		sum := berth.CostSum{NodeHours: l.NodeHours + l.Idle.NodeHours, Cost: l.Cost + l.Idle.Cost, Unknown: l.Unknown + l.Idle.Unknown}
		t.add(append(cells, cell{hours(l.NodeHours), color}, cell{spent(l.CostSum, l.Currency), color}, cell{hours(l.Idle.NodeHours), color},
			cell{spent(l.Idle, l.Currency), color}, cell{spent(sum, l.Currency), color})...)
	}
	for _, l := range sp.Groups {
		of := map[string]string{"user": l.User, "job": l.Job, "compute": l.Compute, "size": l.Size, "tier": l.Tier}
		names := make([]string, len(sp.By))
		for i, k := range sp.By {
			names[i] = of[k]
		}
		row(l, names, "")
	}
	for _, l := range sp.Totals {
		names := make([]string, len(sp.By))
		if len(names) > 0 {
			names[0] = "total"
		}
		if len(sp.By) > 0 {
			row(l, names, bold)
		}
	}
	return s.printRows(t)
}

func hours(v float64) string {
	if v > 0 && v < 0.0001 {
		return "<0.0001"
	}
	if v > 0 && v < 0.1 {
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
	return fmt.Sprintf("%.2f", v)
}

// spent is what hours cost; those without a price are said, never taken for free.
func spent(c berth.CostSum, currency string) string {
	unknown := ""
	if c.Unknown > 0 {
		unknown = hours(c.Unknown) + " h unknown"
	}
	switch {
	case c.NodeHours == 0:
		return "-"
	case c.Unknown >= c.NodeHours-1e-9 && c.Cost == 0:
		return unknown
	case unknown != "":
		return money(c.Cost, currency) + " + " + unknown
	}
	return money(c.Cost, currency)
}

// money is an amount for people: cents, and more digits where cents say nothing.
func money(amount float64, currency string) string {
	text := fmt.Sprintf("%.2f", amount)
	switch a := math.Abs(amount); {
	case a >= 0.1 || a == 0:
	case a < 0.0001:
		text = "<0.0001"
	default:
		text = strconv.FormatFloat(amount, 'g', 2, 64)
	}
	return strings.TrimSpace(text + " " + currency)
}
