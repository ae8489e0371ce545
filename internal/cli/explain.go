package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

func explainCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "explain [JOB]",
		Short:             "Say why a job is where it is, and what to do about it",
		Args:              maxArgs(1),
		ValidArgsFunction: s.completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			c, err := s.open(ctx)
			if err != nil {
				return err
			}
			name := selector(args)
			e, err := c.Explain(ctx, name)
			if berth.CodeOf(err) == berth.NotFound {
				var j *client.Job
				if j, err = s.job(ctx, c, name); err != nil {
					return err
				}
				e, err = c.Explain(ctx, j.Name)
			}
			if err != nil {
				return err
			}
			if s.format.chosen() {
				return s.print(e)
			}
			return s.printExplanation(e, time.Now())
		},
	}
	s.format.flags(cmd)
	return cmd
}

func (s *session) printExplanation(e *client.Explanation, now time.Time) error {
	line := func(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }
	line("%s is %s", s.paint(s.out, bold, e.Name), s.paint(s.out, statusColor(e.Status), string(e.Status)))
	if e.Reason != "" {
		line("  why      %s", strings.ReplaceAll(e.Reason, "\n", "\n           "))
	}
	if e.Compute != "" {
		line("  where    %s", e.Compute)
	}
	if e.Status == berth.Queued {
		line("  ahead    %d waiting, %d running there", e.Ahead, len(e.Running))
	}
	if e.Exit != nil && e.Exit.Code >= 0 {
		line("  exit     %d", e.Exit.Code)
	}
	if w := waterfall(e.Times, e.Usage); w != "" {
		line("  time     %s", w)
	}
	for i, a := range e.Advice {
		word := "  next    "
		if i > 0 {
			word = "          "
		}
		line("%s %s", word, a)
	}
	if len(e.History) > 0 {
		line("\nhistory")
		for _, ev := range e.History {
			if ev.Type != berth.EventTaskUsage {
				line("  %s", s.eventLine(ev, e.History[0].Time))
			}
		}
	}
	return nil
}
