package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// topRow is a running job and what it uses.
type topRow struct {
	Name    string          `json:"name"`
	Status  berth.JobStatus `json:"status"`
	Compute string          `json:"compute,omitempty"`
	Seconds float64         `json:"seconds"`
	Now     berth.Usage     `json:"now,omitzero"`
	Peak    berth.Usage     `json:"peak,omitzero"`
	Command string          `json:"command,omitempty"`
}

func topCommand(s *session) *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what running jobs use: CPU, memory, GPU, disk, network",
		Long:  "Shows what running jobs use. On a terminal it goes on until Ctrl-C; elsewhere it prints once.",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			c, err := s.open(ctx)
			if err != nil {
				return err
			}
			if !s.out.tty || s.format.chosen() {
				rows, err := topRows(ctx, c)
				if err != nil {
					return err
				}
				if s.format.chosen() {
					return s.print(rows)
				}
				return s.printTop(rows)
			}
			return s.liveTop(ctx, c, every)
		},
	}
	cmd.Flags().DurationVar(&every, "every", time.Second, "how often to look")
	s.format.flags(cmd)
	return cmd
}

func topRows(ctx context.Context, c *client.Client) ([]topRow, error) {
	jobs, err := collect(c.Jobs(ctx, client.JobQuery{View: "All", Status: activeStatuses}), 0)
	if err != nil {
		return nil, err
	}
	rows := []topRow{}
	for _, j := range jobs {
		r := topRow{Name: j.Name, Status: j.Status(), Compute: j.State().Compute, Seconds: jobSpan(j, time.Now()).Seconds(), Peak: j.State().Usage, Command: j.Properties.Command}
		if j.Status() == berth.Running {
			if r.Now, r.Peak, err = sample(ctx, c, j.Name, r.Peak); err != nil {
				return nil, err
			}
		}
		rows = append(rows, r)
	}
	slices.SortStableFunc(rows, func(a, b topRow) int { return int(b.Now.CPUPercent - a.Now.CPUPercent) })
	return rows, nil
}

// sample is the newest sample of a job and its peaks.
func sample(ctx context.Context, c *client.Client, name string, peak berth.Usage) (now, peaks berth.Usage, err error) {
	tasks, err := c.Tasks(ctx, name)
	if err != nil || len(tasks) == 0 {
		return now, peak, err
	}
	peaks = tasks[len(tasks)-1].Usage
	events, _, err := c.Events(ctx, name, 0)
	for _, e := range events {
		var d struct{ Usage *berth.Usage }
		if e.Type == "task.usage" && json.Unmarshal(e.Data, &d) == nil && d.Usage != nil {
			now = *d.Usage
		}
	}
	return now, peaks, err
}

func (s *session) printTop(rows []topRow) error {
	if len(rows) == 0 {
		s.say("nothing runs or waits")
		return nil
	}
	t := table{header: []string{"NAME", "STATUS", "TIME", "CPU", "MEMORY", "PEAK", "GPU", "READ", "WRITTEN", "COMMAND"}}
	for _, r := range rows {
		t.add(cell{r.Name, ""}, cell{string(r.Status), statusColor(r.Status)}, cell{span(time.Duration(r.Seconds * float64(time.Second)).Truncate(time.Second)), ""},
			cell{percent(r.Now.CPUPercent), ""}, cell{some(r.Now.MemoryBytes), ""}, cell{some(r.Peak.MemoryBytes), ""}, cell{percent(r.Now.GPUPercent), ""},
			cell{some(r.Now.ReadBytes), ""}, cell{some(r.Now.WriteBytes), ""}, cell{oneLine(r.Command), dim})
	}
	return s.printRows(t)
}

func percent(f float64) string {
	if f == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", f)
}

func some(n int64) string {
	if n == 0 {
		return "-"
	}
	return size(n)
}

func (s *session) liveTop(ctx context.Context, c *client.Client, every time.Duration) error {
	tick := time.NewTicker(max(every, 100*time.Millisecond))
	defer tick.Stop()
	fmt.Fprint(s.out, "\x1b[?25l")
	defer fmt.Fprint(s.out, "\x1b[?25h")
	for {
		rows, err := topRows(ctx, c)
		if interrupted(ctx, err) {
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Fprint(s.out, "\x1b[H\x1b[2J", s.paint(s.out, dim, time.Now().Format("15:04:05")+strings.Repeat(" ", 2)+"Ctrl-C ends this, not the jobs"), "\n")
		if err := s.printTop(rows); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
