package track

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

// TestLike compares with a regular expression that means the same.
func TestLike(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func(of string, n int) string {
		letters := []rune(of)
		var b strings.Builder
		for range r.IntN(n) {
			b.WriteRune(letters[r.IntN(len(letters))])
		}
		return b.String()
	}
	for range 20_000 {
		s, p := text("abü", 8), text("abü%_", 6)
		re := regexp.MustCompile("^(?s:" + strings.NewReplacer("%", ".*", "_", ".").Replace(p) + ")$")
		if got, want := like(s, p), re.MatchString(s); got != want {
			t.Fatalf("%q LIKE %q is %v, want %v", s, p, got, want)
		}
	}
}

// TestPatternsWithoutTheLock: a search that compares more text than it may with the index locked
// finds what it would have.
func TestPatternsWithoutTheLock(t *testing.T) {
	i := newIndexed(t, 1)
	w, x := i.w, i.x
	for i := range 300 {
		value := strings.Repeat("a", 100)
		if i%3 == 0 {
			value += "b"
		}
		x.put(&run{ID: fmt.Sprintf("r%03d", i), Experiment: "0", Stage: active, Tags: map[string]string{"t": value}})
	}
	clauses, err := runGrammar.parse("tags.t LIKE '%aab' AND run_id != 'r003'")
	if err != nil {
		t.Fatal(err)
	}
	s := &search{clauses: clauses, limit: 1000}
	c := &call{workspace: w, ctx: t.Context()}
	s.screen = c.newScreen(s)
	s.screen.left = 1000
	find := func() (n int) {
		w.prepare(t.Context(), []string{"0"}, s.fields())
		w.view(func(x *index) {
			for r := range x.nodes("0") {
				if s.screen.keeps(r.r) {
					n++
				}
			}
		})
		return n
	}
	if n := find(); n >= 100 || !s.screen.full {
		t.Fatalf("%d were compared under the lock", n)
	}
	if !s.screen.settle(c.allRuns([]string{"0"})) {
		t.Fatal("not settled")
	}
	if n := find(); n != 100 || s.screen.full {
		t.Errorf("%d runs, want 100", n)
	}
	if found := c.selectRuns([]string{"0"}, s, func(string) bool { return true }); len(found) != 99 {
		t.Errorf("%d runs, want 99", len(found))
	}
}

// TestSearchEndsWithItsCaller: nothing is compared for a caller who has gone.
func TestSearchEndsWithItsCaller(t *testing.T) {
	x := newIndex()
	x.put(&run{ID: "r", Experiment: "0", Stage: active, Datasets: []datasetInput{{Dataset: dataset{Name: "b"}}}})
	clauses, err := runGrammar.parse("datasets.name NOT IN ('a')")
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	c := &call{workspace: &workspace{index: x, points: newIndexed(t, 1).p}, ctx: ctx}
	for want := 1; want >= 0; want-- {
		s := &search{clauses: clauses, limit: 1000}
		if found := c.selectRuns([]string{"0"}, s, func(string) bool { return true }); len(found) != want {
			t.Errorf("%d runs, want %d", len(found), want)
		}
		leave()
	}
}
