package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

func eventsCommand(s *session) *cobra.Command {
	var follow bool
	var from int64
	cmd := &cobra.Command{
		Use:   "events [-f] [JOB | computes/NAME]",
		Short: "Print the events of a job, of a compute or of the whole workspace",
		Long: "Prints the events of a job or a compute, or of the whole workspace if none is named. With -o json every event is one line;\n" +
			"pass its rev to --from to continue after it.",
		Args:              maxArgs(1),
		ValidArgsFunction: s.completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			c, err := s.open(ctx)
			if err != nil {
				return err
			}
			name := ""
			if len(args) > 0 && strings.Contains(args[0], "/") {
				name = args[0]
			} else if len(args) > 0 {
				j, err := s.job(ctx, c, args[0])
				if err != nil {
					return err
				}
				name = j.Name
			}
			rev, err := s.pastEvents(ctx, c, name, berth.Rev(from))
			if err != nil {
				return err
			}
			if !follow {
				return nil
			}
			err = c.Watch(ctx, name, rev, s.printEvent)
			if interrupted(ctx, err) {
				return exitError(exitInterrupted)
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow new events")
	cmd.Flags().Int64Var(&from, "from", 0, "only events after this revision")
	s.format.flags(cmd)
	return cmd
}

// pastEvents prints what happened up to now, page by page, and returns where what comes next
// begins.
func (s *session) pastEvents(ctx context.Context, c *client.Client, name string, from berth.Rev) (berth.Rev, error) {
	var end berth.Rev
	for last := from; ; {
		events, now, err := c.Events(ctx, name, last)
		if err != nil {
			return last, err
		}
		for _, e := range events {
			if err := s.printEvent(e); err != nil {
				return last, err
			}
			last = e.Rev // what was printed is not news again, whichever is further
		}
		if end == 0 {
			end = now
		}
		switch {
		case len(events) == 0 && last == from:
			return max(from, now), nil
		case len(events) == 0 || last >= end:
			return last, nil
		}
	}
}

func (s *session) printEvent(e berth.Event) error {
	if s.format.chosen() {
		return jsonLine(s.out, e)
	}
	_, err := fmt.Fprintln(s.out, s.eventLine(e, time.Time{}))
	return err
}

// eventLine is an event for people: when, what about, what, why. With a start, the time is what
// passed since.
func (s *session) eventLine(e berth.Event, start time.Time) string {
	when := e.Time.Local().Format("2006-01-02 15:04:05.000")
	if !start.IsZero() {
		when = fmt.Sprintf("%+10.3f s", e.Time.Sub(start).Seconds())
	}
	what := e.Type
	if p := phase(e); p != "" && (e.Type == berth.EventJobStatus || e.Reason == "") {
		what += " " + word(p)
	}
	var d struct{ Status berth.JobStatus }
	if e.Type == berth.EventJobStatus && json.Unmarshal(e.Data, &d) == nil && d.Status.Terminal() {
		what += " " + strings.ToLower(string(d.Status))
	}
	reason := oneLine(e.Reason)
	if e.Type == berth.EventTaskUsage {
		reason = usageLine(e.Data)
	}
	line := s.paint(s.out, dim, when)
	if start.IsZero() {
		line += "  " + e.Subject
	}
	line += "  " + s.paint(s.out, cyan, what)
	if reason != "" {
		line += "  " + reason
	}
	return line
}

// usageLine is what a sample says: CPU, memory, GPU.
func usageLine(data json.RawMessage) string {
	var d struct{ Usage berth.Usage }
	if json.Unmarshal(data, &d) != nil {
		return ""
	}
	var parts []string
	if d.Usage.MemoryBytes > 0 { // else only the GPUs are known
		parts = append(parts, fmt.Sprintf("CPU %.0f %%, memory %s", d.Usage.CPUPercent, size(d.Usage.MemoryBytes)))
	}
	if d.Usage.GPUPercent > 0 {
		parts = append(parts, fmt.Sprintf("GPU %.0f %%", d.Usage.GPUPercent))
	}
	return strings.Join(parts, ", ")
}
