package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

func logsCommand(s *session) *cobra.Command {
	var o client.LogOptions
	var since string
	var exit bool
	cmd := &cobra.Command{
		Use:   "logs [-f] [JOB]",
		Short: "Print a job's output; -f follows it until the job has ended",
		Long: "Prints a job's output, byte for byte to a file or a pipe; a terminal gets colours, but no other escape sequences. JOB is a name, a prefix of one, or `last`, the default.\n" +
			"--since takes a byte offset, so that an interrupted reader can continue.",
		Args:              maxArgs(1),
		ValidArgsFunction: s.completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			c, err := s.open(ctx)
			if err != nil {
				return err
			}
			if o.Offset, err = parseOffset(since); err != nil {
				return err
			}
			j, err := s.job(ctx, c, selector(args))
			if err != nil {
				return err
			}
			if !o.Follow {
				out := s.safe()
				end, err := c.Log(ctx, j.Name, o, out)
				if end == 0 {
					if why := s.cleaned(ctx, c, j.Name, berth.StorageLogs); why != "" {
						s.say("%s", why)
					}
				}
				return errors.Join(err, flush(out))
			}
			err = s.followLog(ctx, c, j, o, exit)
			if interrupted(ctx, err) {
				return s.detached(j.Name)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.Follow, "follow", "f", false, "follow the output until the job has ended")
	f.StringVar(&since, "since", "", "begin at this byte")
	f.IntVar(&o.Tail, "tail", 0, "begin this many lines before the end")
	f.StringVar(&o.Name, "file", "", "log file (default "+berth.StdLog+")")
	f.BoolVar(&exit, "exit-code", false, "with -f, exit with the job's exit code")
	return cmd
}

// selector is the job an optional argument names.
func selector(args []string) string {
	if len(args) == 0 {
		return "last"
	}
	return args[0]
}

func parseOffset(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	var n int64
	for _, r := range text {
		if r < '0' || r > '9' || n > 1<<60 {
			return 0, usagef("--since %s: give a number of bytes", text)
		}
		n = n*10 + int64(r-'0')
	}
	return n, nil
}

func (s *session) followLog(ctx context.Context, c *client.Client, j *client.Job, o client.LogOptions, exit bool) error {
	w := &watcher{s: s, c: c, job: j.Name, rev: j.Rev, log: o}
	if !j.Status().Terminal() {
		w.told = string(j.Status()) + ": " + j.State().Reason
	}
	done, err := w.watch(ctx)
	if err != nil {
		return err
	}
	if w.az != nil {
		return w.az.end(done, w.open)
	}
	s.summary(done)
	if code := jobExit(done.Status(), done.State().Exit); exit && code != 0 {
		return exitError(code)
	}
	return nil
}
