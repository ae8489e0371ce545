package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

func endpointExplain(s *session) *cobra.Command {
	return s.ofEndpoint("explain NAME", "Say why an endpoint has its replicas, and how long the last start took", oneArg("endpoint"), func(ctx context.Context, c *client.Client, args []string) error {
		e, err := c.ExplainEndpoint(ctx, args[0])
		switch {
		case err != nil:
			return err
		case s.format.chosen():
			return s.print(e)
		}
		return s.printEndpoint(e)
	})
}

func (s *session) printEndpoint(e *berth.EndpointExplanation) error {
	h := &sheet{s: s}
	h.line("%s answers at %s", s.paint(s.out, bold, e.Name), e.ScoringURI)
	var shares []string
	for _, d := range sortedKeys(e.Traffic) {
		shares = append(shares, d+" "+strconv.Itoa(e.Traffic[d])+" %")
	}
	h.say("traffic", dash(strings.Join(shares, ", ")))
	for _, d := range e.Deployments {
		h.line("\n%s is %s", s.paint(s.out, bold, d.Name), d.State)
		h.say("why", legible(d.Reason))
		h.say("error", legible(d.Error))
		h.say("where", d.Compute)
		h.say("replicas", fmt.Sprintf("%d wanted: %s", d.Wanted, d.Why))
		var lines []string
		for _, r := range d.Replicas {
			lines = append(lines, fmt.Sprintf("%s is %s, memory %s", r.Job, r.State, some(r.Usage.MemoryBytes)))
		}
		h.all("", lines)
		h.say("start", startLine(d.Start))
		h.say("died", legible(d.LastDied))
		h.say("requests", statsLine(d.Stats))
		s.printHistory(h, d.History)
	}
	h.all("next", e.Advice)
	return h.err
}

// startLine is the waterfall of a start.
func startLine(all []berth.StartPhase) string {
	var parts []string
	total := 0.0
	for _, p := range all {
		parts = append(parts, p.Name+" "+milliseconds(p.Ms))
		total += p.Ms
	}
	if len(parts) == 0 {
		return ""
	}
	return milliseconds(total) + ": " + strings.Join(parts, ", ")
}

func milliseconds(ms float64) string {
	if ms < 1 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return span(time.Duration(ms * float64(time.Millisecond)))
}

func statsLine(st berth.ServingStats) string {
	text := fmt.Sprintf("%d, %d with errors; %d at work, %d waiting for %d workers", st.Requests, st.Errors, st.InFlight, st.Waiting, st.Workers)
	if st.Recent > 0 {
		text += fmt.Sprintf("; in the last minute p50 %s, p90 %s, p99 %s", latency(st.P50), latency(st.P90), latency(st.P99))
	}
	return text
}

func endpointLogs(s *session) *cobra.Command {
	var follow bool
	tail := 0
	cmd := s.ofEndpoint("logs NAME [DEPLOYMENT]", "Print the log of a deployment's newest replica; -f follows it", oneOrTwo, func(ctx context.Context, c *client.Client, args []string) error {
		deployment, err := mainDeployment(ctx, c, args)
		if err != nil {
			return err
		}
		if !follow {
			ask := map[string]any{}
			if tail > 0 {
				ask["tail"] = tail
			}
			var got struct{ Content string }
			if err := c.Post(ctx, ask, &got, "onlineEndpoints", args[0], "deployments", deployment, "getLogs"); err != nil {
				return err
			}
			out := s.safe()
			_, err := fmt.Fprintln(out, got.Content)
			if err == nil {
				err = flush(out)
			}
			return err
		}
		return s.followReplica(ctx, c, args[0], deployment, tail)
	})
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow it; the log of the replica that takes its place comes next")
	cmd.Flags().IntVar(&tail, "tail", 0, "begin this many lines before the end")
	return cmd
}

// followReplica prints the log of the newest replica, and of the one after it when that has ended.
func (s *session) followReplica(ctx context.Context, c *client.Client, endpoint, deployment string, tail int) error {
	seen := map[string]bool{}
	for ctx.Err() == nil {
		all, err := c.EndpointMetrics(ctx, endpoint)
		if err != nil {
			return err
		}
		name := ""
		for _, m := range all {
			if strings.EqualFold(m.Deployment, deployment) && len(m.Replicas) > 0 {
				name = m.Replicas[len(m.Replicas)-1].Job
			}
		}
		if name == "" || seen[name] {
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
			continue
		}
		seen[name] = true
		s.hint("replica %s", name)
		out := s.safe()
		_, err = c.Log(ctx, name, client.LogOptions{Follow: true, Tail: tail}, out)
		if ferr := flush(out); err == nil {
			err = ferr
		}
		if err != nil {
			return err
		}
		tail = 0
	}
	return ctx.Err()
}

func endpointTop(s *session) *cobra.Command {
	var every time.Duration
	cmd := s.ofEndpoint("top [NAME]", "Show requests, latency, queue and memory of deployments", maxArgs(1), func(ctx context.Context, c *client.Client, args []string) error {
		if !s.out.tty || s.format.chosen() {
			now, err := endpointSamples(ctx, c, args)
			if err != nil {
				return err
			}
			if s.format.chosen() {
				return s.print(now)
			}
			return s.printEndpointTop(now, nil, 0)
		}
		var before []berth.DeploymentMetrics
		tick := time.NewTicker(max(every, 200*time.Millisecond))
		defer tick.Stop()
		last := time.Now()
		for {
			now, err := endpointSamples(ctx, c, args)
			if interrupted(ctx, err) {
				return nil
			}
			if err != nil {
				return err
			}
			fmt.Fprint(s.out, "\x1b[H\x1b[2J")
			if err := s.printEndpointTop(now, before, time.Since(last)); err != nil {
				return err
			}
			before, last = now, time.Now()
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	})
	every = time.Second
	cmd.Flags().Var(spanFlag{&every}, "every", "polling interval")
	return cmd
}

func endpointSamples(ctx context.Context, c *client.Client, names []string) ([]berth.DeploymentMetrics, error) {
	if len(names) == 0 {
		return c.ServingMetrics(ctx)
	}
	all := []berth.DeploymentMetrics{}
	for _, name := range names {
		some, err := c.EndpointMetrics(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

func (s *session) printEndpointTop(now, before []berth.DeploymentMetrics, since time.Duration) error {
	if len(now) == 0 {
		s.say("there are no deployments; `berth deploy MODEL` makes one")
		return nil
	}
	had := map[string]int64{}
	for _, m := range before {
		had[m.Endpoint+"/"+m.Deployment] = m.Stats.Requests
	}
	t := table{header: []string{"DEPLOYMENT", "STATE", "TRAFFIC", "REPLICAS", "REQUESTS", "RATE", "ERRORS", "AT WORK", "WAITING", "P50", "P99", "CPU", "MEMORY"}}
	for _, m := range now {
		name := m.Endpoint + "/" + m.Deployment
		rate := "-"
		if n, ok := had[name]; ok && since > 0 {
			rate = fmt.Sprintf("%.1f/s", float64(m.Stats.Requests-n)/since.Seconds())
		}
		var memory int64
		cpu := 0.0
		for _, r := range m.Replicas {
			memory += r.Usage.MemoryBytes
			cpu += r.Usage.CPUPercent
		}
		t.add(cell{name, bold}, cell{m.State, ""}, cell{strconv.Itoa(m.Traffic) + " %", ""}, cell{strconv.Itoa(len(m.Replicas)), ""}, cell{strconv.FormatInt(m.Stats.Requests, 10), ""},
			cell{rate, ""}, cell{strconv.FormatInt(m.Stats.Errors, 10), ""}, cell{fmt.Sprintf("%d/%d", m.Stats.InFlight, m.Stats.Workers), ""}, cell{strconv.Itoa(m.Stats.Waiting), ""},
			cell{latency(m.Stats.P50), ""}, cell{latency(m.Stats.P99), ""}, cell{percent(cpu, cpu > 0), ""}, cell{some(memory), ""})
	}
	return s.printRows(t)
}
