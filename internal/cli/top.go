package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
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
		Short: "Show what running jobs and online endpoints use: CPU, memory, GPU, disk",
		Long:  "Shows what running jobs use, and what deployments of online endpoints do. On a terminal it updates until Ctrl-C; elsewhere it prints once.",
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
			var m samples
			rev, err := m.catchUp(ctx, c)
			if err != nil {
				return err
			}
			if !s.out.tty || s.format.chosen() {
				rows, err := topRows(ctx, c, &m)
				if err != nil {
					return err
				}
				if s.format.chosen() {
					return s.print(rows)
				}
				served, err := c.ServingMetrics(ctx)
				if err != nil {
					return err
				}
				if len(rows) > 0 || len(served) == 0 {
					if err := s.printTop(rows); err != nil || len(served) == 0 {
						return err
					}
					fmt.Fprintln(s.out)
				}
				return s.printEndpointTop(served, nil, 0)
			}
			return s.liveTop(ctx, c, &m, rev, every)
		},
	}
	every = time.Second
	cmd.Flags().Var(spanFlag{&every}, "every", "polling interval")
	s.format.flags(cmd)
	return cmd
}

// samples is the newest sample of every job, by name.
type samples struct {
	mu sync.Mutex
	by map[string]berth.Usage
}

// back is how many revisions before now the newest samples are looked for in.
const back = 5000

// catchUp reads the samples of late and returns where to go on.
func (m *samples) catchUp(ctx context.Context, c *client.Client) (berth.Rev, error) {
	about, err := c.About(ctx)
	if err != nil {
		return 0, err
	}
	events, _, err := c.Events(ctx, "", max(0, about.Rev-back))
	for _, e := range events {
		m.take(e)
	}
	return about.Rev, err
}

func (m *samples) take(e berth.Event) {
	var d struct{ Usage *berth.Usage }
	name, ok := strings.CutPrefix(e.Subject, "jobs/")
	if !ok || e.Type != berth.EventTaskUsage || json.Unmarshal(e.Data, &d) != nil || d.Usage == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == nil {
		m.by = map[string]berth.Usage{}
	}
	m.by[name] = *d.Usage
}

func (m *samples) of(name string) berth.Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.by[name]
}

// waits is 0 for a job that runs, 1 for one that does not yet.
func waits(r topRow) int {
	if r.Status == berth.Running || r.Status == berth.Finalizing {
		return 0
	}
	return 1
}

// topRows is every job that has not ended: those that run first, and of them the busiest.
func topRows(ctx context.Context, c *client.Client, m *samples) ([]topRow, error) {
	jobs, err := collect(c.Jobs(ctx, client.JobQuery{View: "All", Status: berth.ActiveStatuses}), 0)
	if err != nil {
		return nil, err
	}
	rows := []topRow{}
	for _, j := range jobs {
		r := topRow{
			Name: j.Name, Status: j.Status(), Compute: j.State().Compute, Seconds: jobSpan(j, time.Now()).Seconds(),
			Now: m.of(j.Name), Peak: j.State().Usage, Command: j.Properties.Command,
		}
		r.Peak.MemoryBytes = max(r.Peak.MemoryBytes, r.Now.MemoryBytes)
		r.Peak.CPUPercent = max(r.Peak.CPUPercent, r.Now.CPUPercent)
		rows = append(rows, r)
	}
	slices.SortStableFunc(rows, func(a, b topRow) int {
		return cmp.Or(cmp.Compare(waits(a), waits(b)), cmp.Compare(b.Now.CPUPercent, a.Now.CPUPercent))
	})
	return rows, nil
}

func (s *session) printTop(rows []topRow) error {
	if len(rows) == 0 {
		s.say("nothing runs or waits")
		return nil
	}
	t := table{header: []string{"NAME", "STATUS", "TIME", "CPU", "MEMORY", "PEAK", "GPU", "READ", "WRITTEN", "COMMAND"}}
	for _, r := range rows {
		t.add(cell{r.Name, ""}, cell{string(r.Status), statusColor(r.Status)}, cell{span(time.Duration(r.Seconds * float64(time.Second)).Truncate(time.Second)), ""},
			cell{percent(r.Now.CPUPercent, !r.Now.At.IsZero()), ""}, cell{some(r.Now.MemoryBytes), ""}, cell{some(r.Peak.MemoryBytes), ""},
			cell{percent(r.Now.GPUPercent, r.Now.GPUPercent > 0 || r.Now.GPUMemory > 0), ""},
			cell{some(r.Now.ReadBytes), ""}, cell{some(r.Now.WriteBytes), ""}, cell{oneLine(r.Command), dim})
	}
	return s.printRows(t)
}

// percent is a share, where it was measured.
func percent(f float64, measured bool) string {
	if !measured {
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

// fitTop is what of rows a screen has room for below the header, and how many are left out.
func fitTop(rows []topRow, height int) (shown []topRow, left int) {
	room := max(1, height-topFrame)
	if len(rows) <= room {
		return rows, 0
	}
	return rows[:room], len(rows) - room
}

// topFrame is how many lines of a screen are not for jobs.
const topFrame = 4

func (s *session) liveTop(ctx context.Context, c *client.Client, m *samples, rev berth.Rev, every time.Duration) error {
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		c.Watch(ctx, "", rev, func(e berth.Event) error { //nolint:errcheck // the list below meets the same error
			m.take(e)
			return nil
		})
	})
	defer wg.Wait()
	defer stop()
	tick := time.NewTicker(max(every, 100*time.Millisecond))
	defer tick.Stop()
	var before []berth.DeploymentMetrics
	last := time.Now()
	fmt.Fprint(s.out, "\x1b[?25l")
	defer fmt.Fprint(s.out, "\x1b[?25h")
	for {
		rows, err := topRows(ctx, c, m)
		if interrupted(ctx, err) {
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Fprint(s.out, "\x1b[H\x1b[2J", s.paint(s.out, dim, time.Now().Format("15:04:05")+strings.Repeat(" ", 2)+"Ctrl-C ends this, not the jobs"), "\n")
		served, err := c.ServingMetrics(ctx)
		if interrupted(ctx, err) {
			return nil
		}
		if err != nil {
			return err
		}
		height := s.out.height()
		served = served[:min(len(served), max(1, height/3))] // jobs come first
		if len(served) > 0 {
			height -= len(served) + 2
		}
		rows, left := fitTop(rows, height)
		if err := s.printTop(rows); err != nil {
			return err
		}
		if left > 0 {
			s.hint("and %d more; `berth ps` lists all", left)
		}
		if len(served) > 0 {
			fmt.Fprintln(s.out)
			if err := s.printEndpointTop(served, before, time.Since(last)); err != nil {
				return err
			}
		}
		before, last = served, time.Now()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
