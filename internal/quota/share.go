package quota

import (
	"math"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// Shares is how many vCPUs of a node count for each user, by name in lower case: those whose tasks
// are on it have their part of its slots, and the one it was asked for has what is free. Parts are
// rounded up. Without tasks it is nil: the whole node counts for that one.
func Shares(n berth.Node, tasks map[string]int) map[string]int {
	if len(tasks) == 0 {
		return nil
	}
	slots := max(1, n.Slots)
	parts, free := map[string]int{}, slots
	for user, k := range tasks {
		parts[strings.ToLower(user)] += k
		free -= k
	}
	if free > 0 {
		parts[strings.ToLower(n.User)] += free
	}
	for user, k := range parts {
		parts[user] = (n.VCPUs*k + slots - 1) / slots
	}
	return parts
}

// Task is what a task uses: its part of the vCPUs of a node, whomever the node was asked for.
type Task struct {
	Workspace string // its key
	Family    string
	User      string
	Low       bool
	VCPUs     float64
}

// PartOf is what one task has of the vCPUs of a node.
func PartOf(n berth.Node) float64 { return float64(n.VCPUs) / float64(max(1, n.Slots)) }

func (t Task) use() Use {
	return Use{Workspace: t.Workspace, Family: t.Family, User: t.User, Low: t.Low, VCPUs: int(math.Ceil(t.VCPUs))}
}

// Personal is the limits of single users, which hold for their tasks wherever they run.
func (l Limits) Personal() Limits {
	var out Limits
	for _, lim := range l.All {
		if lim.User != "" {
			out.All = append(out.All, lim)
		}
	}
	return out
}

// Left is how many tasks like ask its user may have more beside those that run, by the limits of
// that user. why says whose limit that is and what to do about it, in words that do not change with
// what runs. Without any limit it is unlimited.
func (l Limits) Left(running []Task, ask Task, now time.Time) (tasks int, unlimited bool, why string) {
	tasks, unlimited = math.MaxInt, true
	for _, lim := range l.All {
		g, ok := lim.At(now)
		if !ok || lim.User == "" || !lim.covers(ask.use()) {
			continue
		}
		used := 0.0
		for _, t := range running {
			if lim.covers(t.use()) {
				used += t.VCPUs
			}
		}
		const grain = 1e-6 // what sums of parts are off by
		n := int(max(0, (float64(g.VCPUs)-used)/max(ask.VCPUs, grain)+grain))
		if unlimited || n < tasks {
			tasks, unlimited = n, false
			why = lim.Title() + " is " + Cores(g.VCPUs) + ", and the jobs that run leave too little of it; ask for more with `" +
				request(lim.Scope, ask.use(), g.VCPUs) + "`"
		}
	}
	return tasks, unlimited, why
}
