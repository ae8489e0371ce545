package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
)

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

// verdicts are what a plan comes to, in words and in a color.
var verdicts = map[berth.Verdict]struct{ text, color string }{
	berth.PlanNow: {"would run now", green}, berth.PlanSoon: {"would run soon", green}, berth.PlanWait: {"would wait", yellow},
	berth.PlanNever: {"cannot run as it is", red},
}

func (s *session) printPlan(p *berth.Plan, now time.Time) error {
	h := &sheet{s: s}
	head := verdicts[p.Verdict]
	if p.Verdict == berth.PlanWait && len(p.Limits) > 0 && p.Limits[0].Kind == berth.LimitBudget { // it is not kept to wait for that
		head.text = "would be refused now"
	}
	what := "job"
	if len(p.Steps) > 0 {
		what = p.Type
	}
	h.line("the %s %s", what, s.paint(s.out, head.color, head.text))
	h.say("why", p.Reason)
	if what == "job" {
		h.say("where", planPlace(p))
		h.say("price", planPrice(p))
	}
	h.say("duration", planDuration(p.Duration, what != "job"))
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
	if h.err != nil || len(p.Steps) == 0 {
		return h.err
	}
	h.line("")
	return s.printSteps(p.Steps)
}

// printSteps is a table of the steps of a pipeline.
func (s *session) printSteps(steps []berth.Plan) error {
	t := table{header: []string{"STEP", "WHERE", "NODES", "NOW IT", "DURATION", "COST", "AFTER"}}
	for i := range steps {
		p := &steps[i]
		where, cost := p.Compute, "-"
		if p.Size != "" {
			where += " (" + p.Size + ")"
		}
		switch {
		case planFree(p):
			cost = "nothing"
		case p.Cost.Expected != nil:
			cost = "about " + money(*p.Cost.Expected, p.Cost.Currency)
		case p.Cost.AtMost != nil:
			cost = "at most " + money(*p.Cost.AtMost, p.Cost.Currency)
		}
		v := verdicts[p.Verdict]
		t.add(cell{p.Job, ""}, cell{where, ""}, cell{strconv.Itoa(p.Nodes), ""}, cell{v.text, v.color}, cell{shortDuration(p.Duration), ""}, cell{cost, ""},
			cell{orText(strings.Join(p.After, ", "), "-"), ""})
	}
	return s.printRows(t)
}

func shortDuration(d berth.PlanDuration) string {
	switch d.Basis {
	case "history":
		return "about " + span(seconds(d.Median))
	case "limit":
		return "at most " + span(seconds(d.Limit))
	}
	return "-"
}

func planPlace(p *berth.Plan) string {
	switch p.Type {
	case serverMachine:
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

// planFree says that a job costs nothing where it would run: on this machine, unless that has a
// price.
func planFree(p *berth.Plan) bool { return p.Type == serverMachine && p.Price.Currency == "" }

func planPrice(p *berth.Plan) string {
	switch {
	case planFree(p):
		return "nothing"
	case !p.Price.Known:
		return "unknown"
	}
	text := money(*p.Price.PerHour, p.Price.Currency) + " an hour"
	if p.Type == serverMachine {
		if *p.Price.PerHour != *p.Price.PerNode {
			text += fmt.Sprintf(", a slot's share of the %s for this machine", money(*p.Price.PerNode, p.Price.Currency))
		}
		return text
	}
	if p.Nodes > 1 || *p.Price.PerHour != *p.Price.PerNode {
		text += fmt.Sprintf(" (%s for a node)", money(*p.Price.PerNode, p.Price.Currency))
	}
	if p.Tier == "dedicated" && p.Price.Low != nil {
		text += fmt.Sprintf("; %s for a node with low priority", money(*p.Price.Low, p.Price.Currency))
	}
	return text
}

func planDuration(d berth.PlanDuration, pipeline bool) string {
	limit := ""
	if d.Limit > 0 {
		limit = "at most " + span(seconds(d.Limit)) + ", its limits.timeout"
		if pipeline {
			limit = "at most " + span(seconds(d.Limit)) + " if no step has to wait, by the limits.timeout of each"
		}
	}
	switch d.Basis {
	case "history":
		if pipeline {
			return fmt.Sprintf("about %s if no step has to wait, by earlier runs of each; rarely more than %s", span(seconds(d.Median)), span(seconds(d.P90)))
		}
		text := fmt.Sprintf("about %s, of %d %s of the same %s; 90 %% took %s or less", span(seconds(d.Median)), d.Runs, plural(d.Runs, "run"), d.Of, span(seconds(d.P90)))
		if limit != "" {
			text += "\n" + limit
		}
		return text
	case "limit":
		return limit
	}
	if pipeline {
		return "unknown: some step has no limits.timeout, and nothing like it has run"
	}
	return "unknown: it has no limits.timeout, and nothing like it has run"
}

func planCost(p *berth.Plan) string {
	if planFree(p) {
		return ""
	}
	c := p.Cost
	if len(p.Steps) > 0 && c.Known && c.Currency == "" {
		return "nothing"
	}
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
		text = "it is not known when"
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
