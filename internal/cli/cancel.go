package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// cancelVerb is job cancel: of one job, or of many by one call.
func cancelVerb(s *session, n noun) *cobra.Command {
	var q berth.CancelJobs
	cmd := s.about(n, "cancel", "Ask jobs to end", func(ctx context.Context, c *client.Client, t *target) error {
		err := c.Cancel(ctx, t.name)
		if s.format.az && berth.CodeOf(err) == berth.Conflict {
			s.say("%v", err) // it has ended, which is what was asked for
			return nil
		}
		if err != nil {
			return err
		}
		s.say("asked %s to end", t.name)
		return nil
	})
	one := cmd.RunE
	cmd.Use, cmd.Args = "cancel [NAME…]", cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		many := q.All || q.Experiment != ""
		switch {
		case q.Everyone && !many:
			return usagef("--everyone goes with --all or --experiment-name")
		case many && (len(args) > 0 || cmd.Flags().Changed("name")):
			return usagef("name the jobs, or use --all or --experiment-name; not both")
		case len(args) > 1 && cmd.Flags().Changed("name"):
			return usagef("use -n or arguments, not both")
		case len(args) > 1:
			q.Names = args
		case !many:
			return one(cmd, args)
		}
		return s.cancelMany(cmd.Context(), q)
	}
	f := cmd.Flags()
	f.Bool("no-wait", false, "do not wait; this command never does")
	f.BoolVar(&q.All, "all", false, "all your jobs that have not ended")
	f.StringVar(&q.Experiment, "experiment-name", "", "your jobs in this experiment that have not ended")
	alias(cmd, map[string]string{"experiment": "experiment-name"}) // as other commands call it
	f.BoolVar(&q.Everyone, "everyone", false, "with --all or --experiment-name: include jobs of other users (administrators only)")
	return cmd
}

// cancelMany asks many jobs to end by one call.
func (s *session) cancelMany(ctx context.Context, q berth.CancelJobs) error {
	c, err := s.open(ctx)
	if err != nil {
		return err
	}
	out, err := c.CancelJobs(ctx, q)
	if err != nil {
		return err
	}
	s.say("asked %d %s to end", out.Asked, plural(out.Asked, "job"))
	if len(out.Ended) > 0 {
		s.say("ended already: %s", strings.Join(out.Ended, ", "))
	}
	if len(out.Missing) > 0 {
		return berth.Errorf(berth.NotFound, "there are no jobs named %s; several jobs are named in full", strings.Join(out.Missing, ", "))
	}
	return nil
}
