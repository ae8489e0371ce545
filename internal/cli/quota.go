package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

func quotaCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "quota", Short: "Show and change limits on vCPUs, and request more", Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(quotaList(s), quotaRequest(s), quotaApprove(s), quotaDeny(s), quotaSet(s))
	return cmd
}

// askFlags adds what a request and a limit are about.
func askFlags(cmd *cobra.Command, a *client.QuotaAsk, expires *string) {
	f := cmd.Flags()
	f.StringVar(&a.Family, "family", "", "family of sizes, for example standardNCSv3Family")
	f.StringVar(&a.Size, "size", "", "a size; the limit applies to its family")
	f.IntVar(&a.VCPUs, "vcpus", 0, "how many vCPUs may be used at once")
	f.BoolVar(&a.Low, "low-priority", false, "for low-priority nodes instead of dedicated ones")
	f.StringVar(&a.User, "user", "", "for this user only (default: the whole workspace)")
	f.StringVar(&a.Reason, "reason", "", "why")
	f.StringVar(expires, "expires", "", "when it expires: 7d, 12h, 2026-12-31 or a time (default: never)")
}

func quotaRequest(s *session) *cobra.Command {
	var a client.QuotaAsk
	var expires string
	cmd := &cobra.Command{
		Use: "request --family FAMILY|--size SIZE --vcpus N", Short: "Request a limit", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.Family == "" && a.Size == "" && a.User == "" {
				return usagef("say for what: --family, --size or --user")
			}
			if a.VCPUs < 1 {
				return usagef("say how many with --vcpus")
			}
			var err error
			if a.Expires, err = timeToCome(expires, time.Now()); err != nil {
				return err
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			r, err := c.RequestQuota(cmd.Context(), a)
			if err != nil {
				return err
			}
			if s.format.chosen() {
				return s.print(r)
			}
			s.say("asked for %d vCPUs of %s; that costs %s", r.VCPUs, subjectOf(r), costText(r.Cost))
			s.hint("an administrator decides with `berth quota approve %s` or `berth quota deny %s --reason …`", r.ID, r.ID)
			_, err = fmt.Fprintln(s.out, r.ID)
			return err
		},
	}
	askFlags(cmd, &a, &expires)
	s.format.flags(cmd)
	return cmd
}

func quotaApprove(s *session) *cobra.Command {
	var a client.QuotaAsk
	var expires string
	cmd := &cobra.Command{
		Use: "approve ID", Short: "Grant a request", Args: oneArg("request"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if a.Expires, err = timeToCome(expires, time.Now()); err != nil {
				return err
			}
			if cmd.Flags().Changed("vcpus") && a.VCPUs < 1 {
				return usagef("--vcpus %d: give at least 1, or deny the request", a.VCPUs)
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			r, err := c.ApproveQuota(cmd.Context(), args[0], a)
			if err != nil {
				return err
			}
			if s.format.chosen() {
				return s.print(r)
			}
			if r.Decision == nil {
				return berth.Errorf(berth.Internal, "the server's answer has no decision; `berth quota list` shows how the request stands")
			}
			whom, of := "everybody in the workspace", r
			if of.User = ""; r.User != "" {
				whom = "user " + r.User
			}
			s.say("approved %d vCPUs of %s for %s, %s; in full use that costs %s", r.Decision.VCPUs, subjectOf(of), whom, untilText(r.Decision.Expires), costText(r.Cost))
			if r.Note != "" {
				s.warn("%s", r.Note)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&a.VCPUs, "vcpus", 0, "limit to grant instead of the requested one")
	f.StringVar(&expires, "expires", "", "when it expires, instead of the requested time: 7d, 12h, 2026-12-31 or a time")
	f.StringVar(&a.Reason, "reason", "", "why")
	s.format.flags(cmd)
	return cmd
}

func quotaDeny(s *session) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "deny ID --reason TEXT", Short: "Refuse a request", Args: oneArg("request"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(reason) == "" {
				return usagef("say why with --reason")
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			r, err := c.DenyQuota(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			if s.format.chosen() {
				return s.print(r)
			}
			s.say("denied %s", r.ID)
			return nil
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why")
	s.format.flags(cmd)
	return cmd
}

func quotaSet(s *session) *cobra.Command {
	var a client.QuotaAsk
	var expires string
	var remove bool
	cmd := &cobra.Command{
		Use: "set [--family FAMILY|--size SIZE] [--user USER] --vcpus N", Short: "Set a limit without a request, or remove one", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case remove == cmd.Flags().Changed("vcpus"):
				return usagef("give --vcpus or --remove")
			case a.VCPUs < 0:
				return usagef("--vcpus %d: give 0 or more, or --remove", a.VCPUs)
			case remove:
				a.VCPUs = -1
			}
			var err error
			if a.Expires, err = timeToCome(expires, time.Now()); err != nil {
				return err
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			return c.SetQuota(cmd.Context(), a)
		},
	}
	askFlags(cmd, &a, &expires)
	cmd.Flags().BoolVar(&a.Server, "all-workspaces", false, "for all workspaces together")
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the limit")
	return cmd
}

func quotaList(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List limits with current use, and requests", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			q, err := c.Quotas(cmd.Context())
			if err != nil {
				return err
			}
			if s.format.chosen() {
				return s.print(q)
			}
			return s.printQuotas(q)
		},
	}
	s.format.flags(cmd)
	return cmd
}

func (s *session) printQuotas(q client.Quotas) error {
	limits := table{header: []string{"LIMIT", "VCPUS", "IN USE", "UNTIL", "SET BY", "REASON"}}
	for _, l := range q.Limits {
		limits.add(cell{l.Title, ""}, cell{limitText(l.VCPUs), ""}, cell{strconv.Itoa(l.Used), ""}, cell{dateText(l.Expires), ""}, cell{l.By, ""}, cell{oneLine(l.Reason), ""})
	}
	if err := s.printRows(limits); err != nil {
		return err
	}
	if q.Default >= 0 {
		s.hint("where no limit is set, a workspace may have %d vCPUs of each family; series that need an approval none", q.Default)
	} else {
		s.hint("where no limit is set there is none, but for series that need an approval")
	}
	if len(q.Requests) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(s.out); err != nil {
		return err
	}
	t := table{header: []string{"REQUEST", "STATUS", "VCPUS", "FOR", "BY", "COST", "REASON"}}
	for _, r := range q.Requests {
		n, reason := r.VCPUs, r.Reason
		if r.Decision != nil {
			if r.Decision.VCPUs > 0 {
				n = r.Decision.VCPUs
			}
			if r.Decision.Reason != "" {
				reason = r.Decision.By + ": " + r.Decision.Reason
			}
		}
		t.add(cell{r.ID, ""}, cell{r.Status, quotaColor[r.Status]}, cell{strconv.Itoa(n), ""}, cell{subjectOf(r), ""}, cell{r.By, ""}, cell{costText(r.Cost), ""}, cell{oneLine(reason), ""})
	}
	return s.printRows(t)
}

var quotaColor = map[string]string{"pending": yellow, "approved": green, "denied": red, "expired": dim}

// subjectOf is what a request is about.
func subjectOf(r client.QuotaRequest) string {
	var out []string
	if r.Family != "" {
		out = append(out, r.Family)
	} else {
		out = append(out, "any family")
	}
	if r.Low {
		out = append(out, "low priority")
	}
	if r.User != "" {
		out = append(out, "user "+r.User)
	}
	return strings.Join(out, ", ")
}

// costText is what a request costs, for people.
func costText(c client.QuotaCost) string {
	if c.PerHour == nil || c.PerMonth == nil {
		return "an unknown amount"
	}
	return fmt.Sprintf("%.2f %s an hour, %.0f a month (%d × %s)", *c.PerHour, c.Currency, *c.PerMonth, c.Nodes, c.Size)
}

func dateText(t time.Time) string {
	if t.IsZero() {
		return "for ever"
	}
	return t.Local().Format("2006-01-02 15:04")
}

func untilText(t time.Time) string {
	if t.IsZero() {
		return "for ever"
	}
	return "until " + dateText(t)
}

// timeToCome is a time to come: a length of time from now, in days and weeks too, a date or a time.
// Empty is no time.
func timeToCome(text string, now time.Time) (time.Time, error) {
	bad := usagef("%q is not a time in the future: give 7d, 12h, 2026-12-31 or 2026-12-31T18:00:00Z", text)
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		at, err = time.ParseInLocation("2006-01-02", text, time.Local)
	}
	if err != nil {
		unit := map[byte]time.Duration{'d': 24 * time.Hour, 'w': 7 * 24 * time.Hour}[text[len(text)-1]]
		var d time.Duration
		if n, numErr := strconv.ParseFloat(text[:len(text)-1], 64); unit > 0 && numErr == nil {
			d = time.Duration(n * float64(unit))
		} else if d, err = time.ParseDuration(text); err != nil {
			return time.Time{}, bad
		}
		at = now.Add(d)
	}
	if !at.After(now) {
		return time.Time{}, bad
	}
	return at.UTC().Truncate(time.Second), nil
}
