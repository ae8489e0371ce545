package cost

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// Run is a job that has ended well: what its time is guessed from when it runs again.
type Run struct {
	Name       string
	Experiment string
	Command    string
	Display    string        // its display name; empty when it has none of its own
	Took       time.Duration // from its placement to its end
	Cost       float64
	Priced     bool // Cost is known
}

// History is how long runs like a job took.
type History struct {
	Of          string // what they have in common with it: command, display name, experiment
	Runs        int
	Median, P90 time.Duration
	Cost        float64 // on average, of those whose cost is known
	Priced      bool    // there are such
}

// HistoryOf returns the history of a job from the runs of its experiment: those of the same command
// if there are any, else those with the same display name, else all. ok is false if there are none.
func HistoryOf(job Run, runs []Run) (h History, ok bool) {
	for _, like := range []struct {
		of   string
		same func(Run) bool
	}{
		{"command", func(r Run) bool { return job.Command != "" && r.Command == job.Command }},
		{"display name", func(r Run) bool { return job.Display != "" && strings.EqualFold(r.Display, job.Display) }},
		{"experiment", func(Run) bool { return !strings.EqualFold(job.Experiment, unnamed) }},
	} {
		var found []Run
		for _, r := range runs {
			if strings.EqualFold(r.Experiment, job.Experiment) && r.Took > 0 && like.same(r) {
				found = append(found, r)
			}
		}
		if len(found) > 0 {
			return history(like.of, found), true
		}
	}
	return History{}, false
}

// unnamed is the experiment of jobs that name none: they have nothing in common.
const unnamed = "Default"

func history(of string, runs []Run) History {
	h := History{Of: of, Runs: len(runs)}
	slices.SortFunc(runs, func(a, b Run) int { return cmp.Compare(a.Took, b.Took) })
	h.Median = (runs[(len(runs)-1)/2].Took + runs[len(runs)/2].Took) / 2
	h.P90 = runs[max(0, int(math.Ceil(0.9*float64(len(runs))))-1)].Took
	priced := 0.0
	for _, r := range runs {
		if r.Priced {
			h.Cost += r.Cost
			priced++
		}
	}
	if h.Priced = priced > 0; h.Priced {
		h.Cost /= priced
	}
	return h
}

// Rate is the price of an hour of a node, nil when it is not known.
func Rate(s berth.Size, low bool) *float64 {
	if low {
		return s.LowPrice
	}
	return s.Price
}

// assumed is how long a job is taken to run when neither a limit nor a history says anything.
const assumed = time.Hour

// Hold is how long a job reserves its budget for, and what that follows from.
func Hold(limit time.Duration, h History, known bool) (time.Duration, string) {
	switch {
	case limit > 0:
		return limit, "its limits.timeout"
	case known:
		return h.P90, "what runs like it took"
	}
	return assumed, "it has no limits.timeout, so an hour is assumed"
}

// Reserve is what a job holds of its budgets until it has ended: its nodes, or its share of one,
// for as long as it may run.
func Reserve(nodes, slots int, size berth.Size, low bool, limit time.Duration, h History, known bool) Ask {
	rate := Rate(size, low)
	if rate == nil {
		return Ask{}
	}
	held, why := Hold(limit, h, known)
	a := Ask{Priced: true, Currency: size.Currency, Amount: *rate * float64(nodes) / float64(max(1, slots)) * held.Hours()}
	a.How = fmt.Sprintf("%s for %s: %s", what(nodes, slots, size, *rate), Span(held), why)
	return a
}

// what is what a job takes, and its price.
func what(nodes, slots int, size berth.Size, rate float64) string {
	price := Money(rate, size.Currency) + " an hour"
	switch {
	case slots > 1 && berth.IsLocal(size.Name):
		return fmt.Sprintf("1 of the %d slots of %s, which costs %s,", slots, size.Name, price)
	case slots > 1 && nodes == 1:
		return fmt.Sprintf("1 of the %d slots of a node of %s, which costs %s,", slots, size.Name, price)
	case slots > 1:
		return fmt.Sprintf("1 of the %d slots of each of %d nodes of %s, which cost %s each,", slots, nodes, size.Name, price)
	case nodes == 1:
		return fmt.Sprintf("1 node of %s at %s", size.Name, price)
	}
	return fmt.Sprintf("%d nodes of %s at %s", nodes, size.Name, price)
}

// Span is a duration for people: 45s, 12m, 4h30m.
func Span(d time.Duration) string {
	d = d.Round(time.Second)
	if d >= time.Hour {
		d = d.Round(time.Minute)
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
