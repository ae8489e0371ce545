package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// psRow is a job as `berth ps -o json` prints it.
type psRow struct {
	Name       string          `json:"name"`
	Status     berth.JobStatus `json:"status"`
	Reason     string          `json:"reason,omitempty"`
	Compute    string          `json:"compute,omitempty"`
	Experiment string          `json:"experiment,omitempty"`
	Command    string          `json:"command,omitempty"`
	Created    time.Time       `json:"created"`
	Started    time.Time       `json:"started,omitzero"`
	Ended      time.Time       `json:"ended,omitzero"`
	Seconds    float64         `json:"seconds"`
	ExitCode   *int            `json:"exit_code,omitempty"`
	// Metric is the primary one, as it was logged last.
	Metric *psMetric `json:"metric,omitempty"`
	// Steps are those of a pipeline.
	Steps []psStep `json:"steps,omitempty"`
}

// psMetric is the latest value of a metric.
type psMetric struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
	Step  int64  `json:"step"`
}

// psStep is a step of a pipeline, with where its job runs and what, once it has one.
type psStep struct {
	berth.PipelineStep
	Compute string `json:"compute,omitempty"`
	Command string `json:"command,omitempty"`
}

func psCommand(s *session) *cobra.Command {
	var all, quiet bool
	var limit int
	var which jobFilter
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List running, waiting and recent jobs, and why they wait",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			q, err := which.query(time.Now())
			if err != nil {
				return err
			}
			jobs, more, err := psJobs(cmd.Context(), c, q, psLength{all: all, picked: which != jobFilter{}, limit: limit})
			if err != nil {
				return err
			}
			switch {
			case quiet:
				for _, j := range jobs {
					if _, err := s.out.WriteString(j.Name + "\n"); err != nil {
						return err
					}
				}
				return nil
			case len(jobs) == 0 && !s.format.chosen() && which != jobFilter{}:
				s.say("no jobs of that kind; `berth ps -a` lists all")
				return nil
			case len(jobs) == 0 && !s.format.chosen():
				s.say("no jobs yet; `berth run -- echo hello` makes one")
				return nil
			}
			steps, err := stepJobs(cmd.Context(), c, jobs)
			if err != nil {
				return err
			}
			metrics := s.primaryMetrics(cmd.Context(), c, jobs, steps)
			if s.format.chosen() {
				rows := make([]psRow, len(jobs))
				for i, j := range jobs {
					rows[i] = psRowOf(j, steps, time.Now())
					if p, ok := metrics[j.Name]; ok {
						rows[i].Metric = &psMetric{p.Key, p.Value, p.Step}
					}
				}
				return s.print(rows)
			}
			if err := s.printJobs(jobs, steps, metrics, time.Now()); err != nil {
				return err
			}
			if more {
				s.hint("%s, and older ones: `berth ps -a`", countJobs(jobs))
			} else {
				s.hint("%s", countJobs(jobs))
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "every job, not only active and recent ones")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "names only")
	cmd.Flags().IntVarP(&limit, "max-results", "r", 0, "at most this many")
	which.flags(cmd)
	s.format.flags(cmd)
	return cmd
}

// recent is how many jobs a short list has, when fewer are active.
const recent = 10

// psLength is how many jobs are wanted: limit, or all of them, or all of those that were picked, or
// a short list.
type psLength struct {
	all, picked bool
	limit       int
}

// psJobs is every active job, and the newest others up to a short list: those that run first.
// Active jobs may be older than the newest, and are then asked for by themselves. More says that
// jobs that have ended are left out of a short list.
func psJobs(ctx context.Context, c *client.Client, q client.JobQuery, l psLength) (jobs []*client.Job, more bool, err error) {
	short, limit := l.limit == 0 && !l.all && !l.picked, l.limit
	if short {
		limit = recent
	}
	if q.Max = limit; short {
		q.Max++ // to see whether there are more
	}
	if jobs, err = collect(c.Jobs(ctx, q), q.Max); err != nil {
		return nil, false, err
	}
	if short && len(jobs) > limit {
		more = jobs[limit].Status().Terminal()
		jobs = jobs[:limit]
	}
	if !l.all && limit > 0 && len(jobs) >= limit && len(q.Status) == 0 {
		q.Max, q.Status = 0, berth.ActiveStatuses
		active, err := collect(c.Jobs(ctx, q), 0)
		if err != nil {
			return nil, false, err
		}
		seen := map[string]bool{}
		for _, j := range jobs {
			seen[j.Name] = true
		}
		for _, j := range active { // newest first, so what is missing comes after
			if !seen[j.Name] {
				jobs = append(jobs, j)
			}
		}
	}
	slices.SortStableFunc(jobs, func(a, b *client.Job) int { return cmp.Compare(psOrder(a), psOrder(b)) })
	return jobs, more, nil
}

// psOrder is where a job stands in a list: those that run, those that wait, those that have ended.
func psOrder(j *client.Job) int {
	switch {
	case j.Status().Terminal():
		return 2
	case j.Status() == berth.Running || j.Status() == berth.Finalizing:
		return 0
	}
	return 1
}

// countJobs is how many of jobs run, wait and have ended.
func countJobs(jobs []*client.Job) string {
	var n [3]int
	for _, j := range jobs {
		n[psOrder(j)]++
	}
	return fmt.Sprintf("%d running, %d waiting, %d ended", n[0], n[1], n[2])
}

func collect[T any](seq func(func(T, error) bool), limit int) ([]T, error) {
	var out []T
	for v, err := range seq {
		if err != nil {
			return nil, err
		}
		if out = append(out, v); len(out) == limit {
			break
		}
	}
	return out, nil
}

func psRowOf(j *client.Job, steps map[string]*client.Job, now time.Time) psRow {
	st := j.State()
	r := psRow{
		Name: j.Name, Status: j.Status(), Reason: st.Reason, Compute: st.Compute, Experiment: j.Properties.ExperimentName,
		Command: j.Properties.Command, Created: j.SystemData.CreatedAt, Started: st.Times.Started, Ended: st.Times.Ended,
		Seconds: jobSpan(j, now).Seconds(),
	}
	for _, p := range st.Steps {
		row := psStep{PipelineStep: p}
		if step := steps[p.Job]; step != nil {
			row.Compute, row.Command = step.State().Compute, step.Properties.Command
		}
		r.Steps = append(r.Steps, row)
	}
	if st.Exit != nil {
		r.ExitCode = &st.Exit.Code
	}
	return r
}

// jobSpan is how long a job has run, or waited when it has not begun.
func jobSpan(j *client.Job, now time.Time) time.Duration {
	t := j.State().Times
	from, to := t.Started, t.Ended
	if from.IsZero() {
		from = cmp.Or(t.Submitted, j.SystemData.CreatedAt)
	}
	if to.IsZero() {
		to = now
		if j.Status().Terminal() {
			return 0
		}
	}
	return max(0, to.Sub(from))
}

// stepLook is how many steps' jobs a list looks at; a long list is not made slow by what stands at
// its end.
const stepLook = 100

// stepJobs is the jobs of the steps of pipelines, by their names: where they run and what.
func stepJobs(ctx context.Context, c *client.Client, jobs []*client.Job) (map[string]*client.Job, error) {
	out := map[string]*client.Job{}
	for _, j := range jobs {
		for _, p := range j.State().Steps {
			if p.Job == "" || len(out) == stepLook {
				continue
			}
			step, err := c.Job(ctx, p.Job)
			switch {
			case berth.CodeOf(err) == berth.NotFound: // it was deleted
			case err != nil:
				return nil, err
			default:
				out[p.Job] = step
			}
		}
	}
	return out, nil
}

// primaryMetrics is the primary metric of jobs and steps, in one request. A list of jobs is of use
// without it.
func (s *session) primaryMetrics(ctx context.Context, c *client.Client, jobs []*client.Job, steps map[string]*client.Job) map[string]client.Point {
	names := sortedKeys(steps)
	for _, j := range jobs {
		names = append(names, j.Name)
	}
	out, err := c.PrimaryMetrics(ctx, names)
	if err != nil {
		s.say("metrics are not shown: %v", err)
	}
	return out
}

// metricCell is a metric as a list shows it.
func metricCell(metrics map[string]client.Point, name string) cell {
	p, ok := metrics[name]
	if !ok {
		return cell{}
	}
	return cell{oneLine(p.Key) + " " + number(p.Float()), cyan}
}

// clipKey shortens the key of a metric that its value follows.
func clipKey(text string, n int) string {
	at := strings.LastIndex(text, " ")
	if at < 0 || wide(text) <= n {
		return clip(text, n)
	}
	room := n - wide(text[at:])
	if room < 2 {
		return clip(strings.TrimSpace(text[at:]), n)
	}
	return clip(text[:at], room) + text[at:]
}

// lastWord is what is to be said of a job at the end of its line: the reason it does not run, or
// else what it runs.
func lastWord(j *client.Job) string {
	if st := j.State(); j.Status() != berth.Running && j.Status() != berth.Completed && st.Reason != "" {
		return st.Reason
	}
	return j.Properties.Command
}

func (s *session) printJobs(jobs []*client.Job, steps map[string]*client.Job, metrics map[string]client.Point, now time.Time) error {
	t := table{
		header: []string{"NAME", "STATUS", "COMPUTE", "TIME", "CREATED", "METRIC", "COMMAND OR REASON"},
		flex:   [][]flexible{{{5, 10, clipKey}, {6, 10, nil}}, {{0, 12, nil}, {2, 7, nil}}},
	}
	add := func(name string, cells ...cell) {
		last := len(cells) - 1
		if len(metrics) > 0 {
			cells = append(cells[:last:last], metricCell(metrics, name), cells[last])
		}
		t.add(cells...)
	}
	if len(metrics) == 0 {
		t.drop(5)
	}
	for _, j := range jobs {
		st := j.State()
		add(j.Name, cell{j.Name, ""}, cell{string(j.Status()), statusColor(j.Status())}, cell{st.Compute, ""}, cell{span(jobSpan(j, now)), ""},
			cell{ago(now.Sub(j.SystemData.CreatedAt)), dim}, cell{oneLine(lastWord(j)), ""})
		for _, p := range inOrder(st.Steps) { // a step that has begun is a job of its own: its name is what other commands take
			began, took := "", ""
			if !p.Began.IsZero() {
				began, took = ago(now.Sub(p.Began)), span(stepSpan(p, now))
			}
			name := "  " + p.Node
			if p.Job != "" {
				name = "  " + p.Job
			}
			compute, last := "", ""
			if step := steps[p.Job]; step != nil {
				compute, last = step.State().Compute, lastWord(step)
			}
			if p.Status == berth.Failed || p.Status == berth.Canceled {
				last = p.Reason
			}
			add(p.Job, cell{name, ""}, cell{stepStatus(p), statusColor(p.Status)}, cell{compute, ""}, cell{took, ""}, cell{began, dim}, cell{oneLine(last), ""})
		}
	}
	return s.printRows(t)
}

// inOrder is steps as they began, and those that have not after them.
func inOrder(steps []berth.PipelineStep) []berth.PipelineStep {
	steps = slices.Clone(steps)
	slices.SortStableFunc(steps, func(a, b berth.PipelineStep) int {
		if (a.FirstLine == 0) != (b.FirstLine == 0) {
			return b.FirstLine - a.FirstLine
		}
		return a.FirstLine - b.FirstLine
	})
	return steps
}

// stepStatus is a step's status in a word.
func stepStatus(p berth.PipelineStep) string {
	if p.Status == "" {
		return "waiting"
	}
	return string(p.Status)
}

// stepSpan is how long a step has been under way.
func stepSpan(p berth.PipelineStep, now time.Time) time.Duration {
	switch {
	case p.Began.IsZero():
		return 0
	case p.Ended.IsZero():
		return max(0, now.Sub(p.Began))
	}
	return max(0, p.Ended.Sub(p.Began))
}

// ago is how long something is past, roughly.
func ago(d time.Duration) string {
	if d < time.Second {
		return "now"
	}
	for _, u := range []struct {
		unit time.Duration
		word string
	}{{24 * time.Hour, "days"}, {time.Hour, "h"}, {time.Minute, "min"}} {
		if n := d / u.unit; n > 1 || n == 1 && u.word != "days" {
			return fmt.Sprintf("%d %s ago", n, u.word)
		}
	}
	return fmt.Sprintf("%d s ago", d/time.Second)
}

func statusColor(st berth.JobStatus) string {
	switch st {
	case berth.Completed:
		return green
	case berth.Failed, berth.NotResponding:
		return red
	case berth.Canceled, berth.CancelRequested:
		return yellow
	case berth.Running, berth.Finalizing:
		return cyan
	}
	return blue
}
