package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/spec"
)

// The exit codes of a plan; 0 is that the job would run now or soon, and whatever went wrong is exitFailed, so that these two mean
// nothing else.
const (
	exitWait  = 4 // it would wait for a limit
	exitNever = 5 // it can never run as it is
)

func planCommand(s *session) *cobra.Command {
	var file, name string
	var set []string
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Say what would become of a job: where, when, for how much, and what is in its way",
		Long: "Says what would become of a job if it were submitted now. Nothing is created or uploaded.\n\n" +
			"Ends with 0 when it would run now or soon, 4 when it would wait for a limit, 5 when it can never run as it is,\n" +
			"and 1 when the file or the request is wrong.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usagef("give a file: `berth plan -f job.yml`")
			}
			if err := s.format.check(); err != nil {
				return err
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return planFailed(err)
			}
			r, err := s.load(c, "job", file, set, name, "")
			if err != nil {
				return planFailed(err)
			}
			return s.plan(cmd.Context(), c, r)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&file, "file", "f", "", "YAML file of a job")
	f.StringArrayVar(&set, "set", nil, "a.b=value: override a field of the file; may be repeated")
	f.StringVarP(&name, "name", "n", "", "name the job would have")
	s.format.flags(cmd)
	return cmd
}

// planError is an error of a plan: it ends the program with exitFailed, whatever its code.
type planError struct{ msg string }

func (e planError) Error() string { return e.msg }

func planFailed(err error) error {
	var exit exitError
	var use usageError
	if err == nil || errors.As(err, &exit) || errors.As(err, &use) {
		return err
	}
	return planError{err.Error()}
}

// plan plans what a file describes.
func (s *session) plan(ctx context.Context, c *client.Client, r *spec.Result) error {
	for _, w := range r.Warnings {
		s.warn("%v", w)
	}
	name, body, err := planned(r)
	if err != nil {
		return planFailed(err)
	}
	return s.planBody(ctx, c, name, body)
}

// planned is the name and the document of the job a file describes, with a placeholder for everything that would be uploaded or made
// first.
func planned(r *spec.Result) (string, map[string]any, error) {
	res := r.Resources[len(r.Resources)-1]
	if res.Type != "jobs" {
		return "", nil, berth.Errorf(berth.Invalid, "the file describes no job; a plan is for jobs")
	}
	local := map[string]string{}
	for _, u := range res.Uploads {
		local[u.Placeholder] = "local:" + u.Path
	}
	raw, err := res.Fill(local)
	if err != nil {
		return "", nil, err
	}
	var body map[string]any
	if err := json.Unmarshal(raw, &body); err != nil {
		return "", nil, err
	}
	props, _ := body["properties"].(map[string]any)
	id, _ := props["environmentId"].(string)
	for _, other := range r.Resources {
		if other.Type != "environments" || !strings.Contains(id, "/environments/"+other.Name+"/") {
			continue
		}
		props["environmentId"] = "local:" + other.Name
		var env map[string]any
		if err := json.Unmarshal(other.Body, &env); err != nil {
			return "", nil, err
		}
		body["berth"] = map[string]any{"environment": env["properties"]}
	}
	if res.Name == "" {
		res.Name = newName()
	}
	return res.Name, body, nil
}

// planBody asks for the plan of a document, prints it, and ends with what it means.
func (s *session) planBody(ctx context.Context, c *client.Client, name string, body any) error {
	p, err := c.Plan(ctx, name, body)
	if err != nil {
		return planFailed(err)
	}
	if s.format.chosen() {
		err = s.print(p)
	} else {
		err = s.printPlan(p, time.Now())
	}
	if err != nil {
		return err
	}
	switch p.Verdict {
	case berth.PlanWait:
		return exitError(exitWait)
	case berth.PlanNever:
		return exitError(exitNever)
	}
	return nil
}

// sheet is lines of a word and what it says.
type sheet struct {
	s   *session
	err error
}

func (h *sheet) line(format string, args ...any) {
	if h.err == nil {
		_, h.err = fmt.Fprintf(h.s.out, format+"\n", args...)
	}
}

// say writes a word and text; lines after the first stand below the text.
func (h *sheet) say(word, text string) {
	if text != "" {
		h.line("  %-9s %s", word, strings.ReplaceAll(text, "\n", "\n            "))
	}
}

// all is say for each of texts, the word before the first.
func (h *sheet) all(word string, texts []string) { h.say(word, strings.Join(texts, "\n")) }

func (s *session) printPlan(p *berth.Plan, now time.Time) error {
	h := &sheet{s: s}
	head := map[berth.Verdict]struct{ text, color string }{
		berth.PlanNow: {"would run now", green}, berth.PlanSoon: {"would run soon", green}, berth.PlanWait: {"would wait", yellow},
		berth.PlanNever: {"cannot run as it is", red},
	}[p.Verdict]
	if p.Verdict == berth.PlanWait && len(p.Limits) > 0 && p.Limits[0].Kind == berth.LimitBudget { // it is not kept to wait for that
		head.text = "would be refused now"
	}
	h.line("the job %s", s.paint(s.out, head.color, head.text))
	h.say("why", p.Reason)
	h.say("where", planPlace(p))
	h.say("price", planPrice(p))
	h.say("duration", planDuration(p.Duration))
	h.say("cost", planCost(p))
	h.say("start", planStart(p, now))
	for _, j := range p.Start.Jobs {
		h.say("", inTheWay(j, now))
	}
	for _, l := range p.Limits {
		h.say("limit", l.Kind+": "+l.Why)
	}
	for _, b := range p.Budgets {
		if b.Fits {
			h.say("budget", b.Why)
		}
	}
	for _, w := range p.Warnings {
		h.say("warning", s.paint(s.out, yellow, w))
	}
	h.all("next", p.Advice)
	return h.err
}

func planPlace(p *berth.Plan) string {
	switch p.Type {
	case "local":
		return "this machine"
	case "serverless":
		text := fmt.Sprintf("a pool of %s (%s), %d %s", p.Size, p.Tier, p.Nodes, plural(p.Nodes, "node"))
		if p.New {
			text += ", made for it and removed after it"
		}
		return text
	}
	text := fmt.Sprintf("%s, a %s of %s (%s), %d %s", p.Compute, orText(p.Type, "compute"), p.Size, p.Tier, p.Nodes, plural(p.Nodes, "node"))
	if p.Boot > 0 {
		text += fmt.Sprintf(", of which %d to start", p.Boot)
	}
	return text
}

func planPrice(p *berth.Plan) string {
	switch {
	case p.Type == "local":
		return "nothing"
	case !p.Price.Known:
		return "unknown"
	}
	text := money(*p.Price.PerHour, p.Price.Currency) + " an hour"
	if p.Nodes > 1 || *p.Price.PerHour != *p.Price.PerNode {
		text += fmt.Sprintf(" (%s for a node)", money(*p.Price.PerNode, p.Price.Currency))
	}
	if p.Tier == "dedicated" && p.Price.Low != nil {
		text += fmt.Sprintf("; %s for a node with low priority", money(*p.Price.Low, p.Price.Currency))
	}
	return text
}

func planDuration(d berth.PlanDuration) string {
	limit := ""
	if d.Limit > 0 {
		limit = "at most " + span(seconds(d.Limit)) + ", its limits.timeout"
	}
	switch d.Basis {
	case "history":
		text := fmt.Sprintf("about %s, of %d %s of the same %s; 90 %% took %s or less", span(seconds(d.Median)), d.Runs, plural(d.Runs, "run"), d.Of, span(seconds(d.P90)))
		if limit != "" {
			text += "\n" + limit
		}
		return text
	case "limit":
		return limit
	}
	return "unknown: it has no limits.timeout, and nothing like it has run"
}

func planCost(p *berth.Plan) string {
	if p.Type == "local" {
		return ""
	}
	c := p.Cost
	var parts []string
	if c.Expected != nil {
		parts = append(parts, "about "+money(*c.Expected, c.Currency))
	}
	if c.AtMost != nil {
		word := "at most "
		if p.Duration.Limit == 0 {
			word = "rarely more than "
		}
		parts = append(parts, word+money(*c.AtMost, c.Currency))
	}
	if len(parts) == 0 {
		parts = append(parts, "unknown")
	}
	text := strings.Join(parts, ", ")
	if c.Idle != nil {
		text += fmt.Sprintf("; up to %s more until its nodes are given back", money(*c.Idle, c.Currency))
	}
	if c.Spent != nil {
		text += fmt.Sprintf("\nearlier runs cost %s on average", money(*c.Spent, c.Currency))
	}
	return text
}

func planStart(p *berth.Plan, now time.Time) string {
	var text string
	switch {
	case p.Verdict == berth.PlanNever:
		return ""
	case p.Verdict == berth.PlanNow:
		return "now"
	case p.Boot > 0:
		text = fmt.Sprintf("when %d %s started", p.Boot, map[bool]string{true: "node has", false: "nodes have"}[p.Boot == 1])
		if !p.Start.At.IsZero() {
			text += ", about " + clock(p.Start.At, now)
		}
	case p.Start.At.IsZero():
		text = "nobody can say when"
	case p.Start.Basis == "limits":
		text = "by about " + clock(p.Start.At, now) + ", by the limits of what runs"
	default:
		text = "about " + clock(p.Start.At, now) + ", by how long such jobs took"
	}
	if p.Start.Ahead > 0 {
		text += fmt.Sprintf("; %d waiting %s first", p.Start.Ahead, map[bool]string{true: "job goes", false: "jobs go"}[p.Start.Ahead == 1])
	}
	return text
}

// inTheWay is a job that runs or goes first.
func inTheWay(j berth.PlanJob, now time.Time) string {
	word := map[bool]string{true: "on", false: "for"}[j.Status == "running"]
	text := fmt.Sprintf("%s of %s, %s %s %d %s", j.Name, j.User, j.Status, word, j.Nodes, plural(j.Nodes, "node"))
	if !j.Ends.IsZero() {
		text += ", until about " + clock(j.Ends, now)
	}
	return text
}

func seconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }

// clock is a time for people, with how far it is.
func clock(t, now time.Time) string {
	text := t.Local().Format("15:04")
	if t.Sub(now).Abs() > 20*time.Hour {
		text = t.Local().Format("2006-01-02 15:04")
	}
	if d := t.Sub(now); d > time.Second {
		text += " (in " + span(d) + ")"
	}
	return text
}

func orText(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
