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

func explainCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "explain [JOB | COMPUTE | compute/NAME]",
		Short:             "Explain why a job or a compute is in its current state, and what to do about it",
		Args:              maxArgs(1),
		ValidArgsFunction: s.completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			ctx := cmd.Context()
			c, err := s.open(ctx)
			if err != nil {
				return err
			}
			e, compute, err := s.explanation(ctx, c, selector(args))
			switch {
			case err != nil:
				return err
			case compute != nil && s.format.chosen():
				return s.print(compute)
			case compute != nil:
				return s.printCompute(compute, time.Now())
			case s.format.chosen():
				return s.print(e)
			}
			return s.printExplanation(e, time.Now())
		},
	}
	s.format.flags(cmd)
	return cmd
}

// explanation is that of a job, or of a compute: the job of that name, the compute of that name,
// the job that begins so.
func (s *session) explanation(ctx context.Context, c *client.Client, name string) (*berth.Explanation, *berth.ComputeExplanation, error) {
	if of, ok := strings.CutPrefix(name, "compute/"); ok {
		e, err := c.ExplainCompute(ctx, of)
		return nil, e, err
	}
	if of, ok := strings.CutPrefix(name, "job/"); ok {
		name = of
	}
	if name != "last" {
		if e, err := c.Explain(ctx, name); berth.CodeOf(err) != berth.NotFound {
			return e, nil, err
		}
		if e, err := c.ExplainCompute(ctx, name); berth.CodeOf(err) != berth.NotFound {
			return nil, e, err
		}
	}
	j, err := s.job(ctx, c, name)
	if berth.CodeOf(err) == berth.NotFound && name != "last" {
		err = berth.Errorf(berth.NotFound, "there is no job and no compute %q in workspace %s", name, c.Workspace.Name)
	}
	if err != nil {
		return nil, nil, err
	}
	e, err := c.Explain(ctx, j.Name)
	return e, nil, err
}

func (s *session) printExplanation(e *berth.Explanation, now time.Time) error {
	h := &sheet{s: s}
	h.line("%s is %s", s.paint(s.out, bold, e.Name), s.paint(s.out, statusColor(e.Status), string(e.Status)))
	h.say("why", e.Reason)
	h.say("where", e.Compute)
	if e.Status == berth.Queued {
		ahead := fmt.Sprintf("%d waiting, %d running there", e.Ahead, len(e.Running))
		if e.Starting > 0 {
			ahead += fmt.Sprintf(", %d %s starting", e.Starting, plural(e.Starting, "node"))
		}
		h.say("ahead", ahead)
		for _, j := range e.InTheWay {
			h.say("", inTheWay(j, now))
		}
	}
	if e.Attempt > 1 {
		h.say("attempt", fmt.Sprint(e.Attempt))
	}
	if e.Exit != nil && e.Exit.Code >= 0 {
		h.say("exit", fmt.Sprint(e.Exit.Code))
	}
	h.say("time", waterfall(e.Times, e.Usage))
	for _, l := range e.Cost {
		h.say("cost", fmt.Sprintf("%s for %s node hours", spent(l.CostSum, l.Currency), hours(l.NodeHours)))
	}
	h.all("steps", stepLines(e.Steps, now))
	h.all("next", e.Advice)
	s.printHistory(h, e.History)
	return h.err
}

// stepLines is the steps of a pipeline, a line each.
func stepLines(steps []berth.PipelineStep, now time.Time) []string {
	var out []string
	for _, p := range inOrder(steps) {
		line := p.Node + " " + stepStatus(p)
		if d := stepSpan(p, now); d > 0 {
			line += ", " + span(d)
		}
		if p.Job != "" {
			line += ", job " + p.Job
		}
		if p.Status == berth.Failed || p.Status == berth.Canceled {
			line += ": " + oneLine(p.Reason)
		}
		out = append(out, line)
	}
	return out
}

func (s *session) printHistory(h *sheet, events []berth.Event) {
	if len(events) == 0 {
		return
	}
	h.line("\nhistory")
	start := events[0].Time
	for _, ev := range events {
		var set berth.ClockSet
		if ev.Type == berth.EventClock && json.Unmarshal(ev.Data, &set) == nil {
			start = start.Add(set.By) // what passed since is not what the clock was set by
		}
		if ev.Type != berth.EventTaskUsage {
			h.line("  %s", s.eventLine(ev, start))
		}
	}
}

// Types of compute that are one machine: the server's own, and one that connects by itself.
const (
	serverMachine   = "local"
	attachedMachine = "attached machine"
)

func (s *session) printCompute(e *berth.ComputeExplanation, now time.Time) error {
	h := &sheet{s: s}
	what := e.Type
	if e.Size != "" {
		what += fmt.Sprintf(" of %s (%s)", e.Size, e.Tier)
	}
	if what = a(what); berth.IsLocal(e.Name) {
		what = "the server's own machine"
	}
	h.line("%s is %s, %s", s.paint(s.out, bold, e.Name), what, s.paint(s.out, stateColor(e.State), e.State))
	h.say("why", e.Reason)
	h.say("not more", e.Short)
	switch e.Type {
	case "cluster", "serverless":
		h.say("nodes", fmt.Sprintf("%d of %d to %d; %d wanted", len(e.Nodes), e.Min, e.Max, e.Target))
	case serverMachine, attachedMachine:
		h.say("slots", fmt.Sprint(e.Slots))
	}
	if e.Waiting > 0 {
		h.say("waiting", fmt.Sprintf("%d %s", e.Waiting, plural(e.Waiting, "job")))
	}
	ours := e.Type == serverMachine || e.Type == attachedMachine // one machine, which costs nothing
	if len(e.Nodes) > 0 && !ours {
		costs := money(e.PerHour, e.Currency) + " an hour now"
		if e.Unknown == len(e.Nodes) {
			costs = "unknown: its size has no price"
		} else if e.Unknown > 0 {
			costs += fmt.Sprintf(", and %d %s without a price", e.Unknown, plural(e.Unknown, "node"))
		}
		h.say("costs", costs)
	}
	if !e.Next.IsZero() {
		word := "a node goes"
		if e.Type == "instance" {
			word = "it stops"
		}
		h.say("idle", word+" at "+clock(e.Next, now)+" if nothing happens")
	}
	for _, w := range e.Warnings {
		h.say("warning", s.paint(s.out, yellow, w))
	}
	for _, w := range e.Errors {
		h.say("error", s.paint(s.out, red, w))
	}
	h.all("next", e.Advice)
	if h.err == nil && len(e.Nodes) > 0 && !ours {
		h.line("")
		h.err = s.printNodes(e.Nodes, now)
	}
	s.printHistory(h, e.History)
	return h.err
}

func (s *session) printNodes(nodes []berth.NodeExplanation, now time.Time) error {
	t := table{header: []string{"NODE", "STATE", "FOR", "AGE", "GOES", "JOBS"}}
	for _, n := range nodes {
		goes, jobs := "", strings.Join(n.Jobs, ", ")
		if !n.Goes.IsZero() {
			goes = clock(n.Goes, now)
		}
		if jobs == "" {
			jobs = n.Why
		}
		t.add(cell{n.Name, ""}, cell{string(n.State), ""}, cell{n.User, ""}, cell{span(now.Sub(n.Created)), dim}, cell{orText(goes, "-"), ""}, cell{oneLine(jobs), ""})
	}
	return s.printRows(t)
}

func stateColor(state string) string {
	switch state {
	case "Succeeded", berth.InstanceRunning, berth.InstanceJobRunning:
		return green
	case "Failed", berth.InstanceCreateFailed, berth.InstanceSetupFailed:
		return red
	case berth.InstanceStopped:
		return dim
	}
	return yellow
}
