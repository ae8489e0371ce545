package sched_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthml/berth/internal/sched"
)

// said is a sentence about a gang, and what is so once everything decided has happened.
type said struct {
	scenario
	gang   sched.Gang
	choice sched.Choice
	out    []sched.Choice
	at     int // of the head in out, -1 without one
	i      int // of the choice in out
	free   int // nodes with a free slot
}

// sentences is every reason Schedule can give, as a pattern, and whether it is true of a gang.
var sentences = []struct {
	pattern string
	wait    bool
	holds   func(s said, m []string) bool
}{
	{`placed on (\S+): a slot was free`, false, func(s said, m []string) bool {
		return s.beforeHead() && slices.Equal(s.choice.Nodes, m[1:])
	}},
	{`placed on (\d+) nodes of gpus: all had a free slot at once`, false, func(s said, m []string) bool {
		return s.beforeHead() && number(m[1]) == len(s.choice.Nodes) && s.gang.Nodes > 1
	}},
	{`placed on (.+): it ends before job (\S+), which goes first, can start`, false, func(s said, m []string) bool {
		return s.place(m[1]) && s.head() == m[2] && s.gang.Limit > 0
	}},
	{`placed on (.+): job (\S+), which goes first, can do without (it|them)`, false, func(s said, m []string) bool {
		return s.place(m[1]) && s.head() == m[2] && (m[3] == "it") == (s.gang.Nodes == 1)
	}},
	{`gpus takes no jobs now: it is being mended`, true, func(s said, _ []string) bool { return s.pool.Down != "" }},
	{`needs (\d+) nodes?, and gpus can have (at most (\d+)|none)`, true, func(s said, m []string) bool {
		return number(m[1]) == s.gang.Nodes && number(m[3]) == s.pool.Max && s.gang.Nodes > s.pool.Max
	}},
	{`needs (\d+) nodes?, and gpus has (\d+|none) and cannot grow: (.+)`, true, func(s said, m []string) bool {
		has := s.ready() + s.pool.Starting
		return number(m[1]) == s.gang.Nodes && number(m[2]) == has && s.gang.Nodes > has && m[3] == s.pool.Short
	}},
	{`waiting for (\d+) nodes? of gpus to start(, and for (.+) to stop)?`, true, func(s said, m []string) bool {
		n := number(m[1])
		return s.gang.Nodes > s.free && n > 0 && n <= s.gang.Nodes && n <= s.come() && (m[3] == "" || s.stopping(m[3]))
	}},
	{`waiting for (job \S+|\d+ jobs) of lower priority to stop`, true, func(s said, m []string) bool {
		n := len(s.choice.Preempt)
		return (n == 1 && m[1] == "job job-"+s.choice.Preempt[0] || n > 1 && m[1] == fmt.Sprint(n, " jobs")) && s.gang.Nodes <= usable(s.soon())+s.come()
	}},
	{`waiting for (job \S+|\d+ jobs) to stop`, true, func(s said, m []string) bool {
		return s.gang.Nodes > s.free && s.stopping(m[1]) && s.gang.Nodes <= usable(s.soon())
	}},
	{`job (\S+) goes first: it (.+)`, true, func(s said, m []string) bool {
		return s.head() == m[1] && s.gang.Nodes <= s.free && s.i > s.at && lacks(s, s.gangs[s.out[s.at].Gang], m[2])
	}},
	{`needs (\d+) nodes? of gpus, and jobs that go first leave fewer of the (\d+) to come`, true, func(s said, m []string) bool {
		tasks := 0
		for _, c := range s.out[:s.i+1] {
			if g := s.gangs[c.Gang]; !s.stuck(g) {
				tasks += g.Nodes
			}
		}
		return s.ready() == 0 && number(m[1]) == s.gang.Nodes && number(m[2]) == s.come() && tasks > s.come()*s.slots()
	}},
	{`its turn on gpus has not come: 64 jobs or more go first`, true, func(s said, _ []string) bool {
		n := 0
		for _, c := range s.out[:s.i] {
			if len(c.Nodes) == 0 && !s.stuck(s.gangs[c.Gang]) && goesFirstAtLast(s.gangs[c.Gang], s.gang, s) {
				n++
			}
		}
		return n >= 64
	}},
	{`(.+); it cannot grow: (.+)`, true, func(s said, m []string) bool {
		return m[2] == s.pool.Short && s.ready()+s.pool.Starting < s.pool.Max && lacks(s, s.gang, m[1])
	}},
	{`(.+)`, true, func(s said, m []string) bool {
		return lacks(s, s.gang, m[1]) && (s.pool.Short == "" || s.ready()+s.pool.Starting >= s.pool.Max)
	}},
}

// goesFirstAtLast is the order once everyone has what was given: gangs that wait are all still
// there.
func goesFirstAtLast(a, b sched.Gang, s said) bool {
	return a.Priority > b.Priority || a.Priority == b.Priority && s.i > s.at
}

// lacks is whether words say truly what a gang needs and does not find.
func lacks(s said, g sched.Gang, words string) bool {
	inUse := fmt.Sprintf("all %d nodes of gpus are in use", s.ready())
	switch {
	case s.ready() == 1 && len(s.pool.Nodes) == 1:
		inUse = "the node of gpus is in use"
	case s.ready() == 1:
		inUse = "the one node of gpus that is ready is in use"
	case s.ready() < len(s.pool.Nodes):
		inUse = fmt.Sprintf("all %d nodes of gpus that are ready are in use", s.ready())
	}
	if g.Nodes > 1 {
		at, ok := strings.CutPrefix(words, fmt.Sprintf("needs %d nodes at once, ", g.Nodes))
		if !ok {
			return false
		}
		what := map[bool]string{true: " is free", false: " are free"}
		if s.slots() > 1 {
			what = map[bool]string{true: " has a free slot", false: " have a free slot"}
		}
		if s.free > 0 {
			return s.free < g.Nodes && at == fmt.Sprint(s.free, what[s.free == 1])
		}
		words, _ = strings.CutPrefix(at, "and ")
	}
	return s.free == 0 && s.ready() > 0 && words == inUse
}

func (s said) head() string {
	if s.at < 0 {
		return ""
	}
	return s.gangs[s.out[s.at].Gang].Name
}

func (s said) beforeHead() bool { return s.at < 0 || s.i < s.at }

func (s said) place(words string) bool {
	if s.i < s.at {
		return false
	}
	if s.gang.Nodes == 1 {
		return words == s.choice.Nodes[0]
	}
	return words == fmt.Sprintf("%d nodes of gpus", s.gang.Nodes)
}

// stopping is whether the jobs that are named or counted are told to stop, by now or by these
// choices.
func (s said) stopping(words string) bool {
	var names []string
	for _, r := range s.running {
		if r.Stopping {
			names = append(names, r.Name)
		}
	}
	for _, c := range s.out[:s.i] {
		for _, id := range c.Preempt {
			names = append(names, "job-"+id)
		}
	}
	if name, ok := strings.CutPrefix(words, "job "); ok {
		return slices.Equal(names, []string{name})
	}
	return len(names) > 1 && words == fmt.Sprint(len(names), " jobs")
}

// soon is the free slots of nodes once all has stopped that is told to by then.
func (s said) soon() map[string]int {
	free := s.scenario.free(s.out)
	for _, r := range s.running {
		if r.Stopping || slices.ContainsFunc(s.out[:s.i+1], func(c sched.Choice) bool { return slices.Contains(c.Preempt, r.ID) }) {
			release(free, r)
		}
	}
	return free
}

func (s said) slots() int {
	if len(s.pool.Nodes) == 0 {
		return 1
	}
	return s.pool.Nodes[0].Slots
}

func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// TestReasonsAreTrue reads every sentence and holds it against what is so.
func TestReasonsAreTrue(t *testing.T) {
	var patterns []*regexp.Regexp
	for _, s := range sentences {
		patterns = append(patterns, regexp.MustCompile("^(?:"+s.pattern+")$"))
	}
	used := make([]int, len(sentences))
	rapid.Check(t, func(t *rapid.T) {
		w := drawScenario(t)
		switch even(t, 4, "kind") {
		case 0:
			w = drawBlocked(t)
		case 1:
			w = drawCrowded(t)
		}
		out := w.schedule()
		_, at := w.split(out)
		promised := 0
		for i, c := range out {
			s := said{scenario: w, gang: w.gangs[c.Gang], choice: c, out: out, at: at, i: i, free: usable(w.free(out))}
			k := slices.IndexFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(c.Why) })
			if k < 0 || sentences[k].wait != (len(c.Nodes) == 0) || !sentences[k].holds(s, patterns[k].FindStringSubmatch(c.Why)) {
				t.Fatalf("%+v: %q is not true\n%+v\n%+v", s.gang, c.Why, w.pool, out)
			}
			if len(c.Preempt) > 0 && !strings.HasSuffix(c.Why, "of lower priority to stop") {
				t.Fatalf("stops %v and says %q", c.Preempt, c.Why)
			}
			used[k]++
			if strings.HasSuffix(c.Why, " to stop") || strings.HasSuffix(c.Why, " to start") {
				promised += s.gang.Nodes
			}
			has := s.come() * s.slots()
			for _, n := range s.soon() {
				has += max(0, n)
			}
			if promised > has {
				t.Fatalf("%d tasks wait for %d slots to start or to become free\n%+v", promised, has, out)
			}
		}
	})
	for k, n := range used {
		t.Logf("%5d %s", n, sentences[k].pattern)
	}
}
