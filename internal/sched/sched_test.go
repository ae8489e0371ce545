package sched_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/sched"
)

// TestLaws: never over capacity, nothing idle while something waits, in order, and every decision has a true reason.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		target := sched.Target{Name: "local", Slots: rapid.IntRange(0, 5).Draw(t, "slots")}
		target.Ahead = rapid.IntRange(0, 3).Draw(t, "ahead")
		target.Used = rapid.IntRange(0, target.Slots+target.Ahead).Draw(t, "used")
		if rapid.Bool().Draw(t, "down") {
			target.Down = "it is being mended"
		}
		var waiting []berth.TaskID
		for i := range rapid.IntRange(0, 10).Draw(t, "waiting") {
			waiting = append(waiting, berth.TaskID(fmt.Sprint("t", i)))
		}
		out := sched.Plan(target, waiting)
		if len(out) != len(waiting) {
			t.Fatalf("%d decisions for %d tasks", len(out), len(waiting))
		}
		placed, blocked := 0, false
		for i, d := range out {
			switch {
			case d.Task != waiting[i] || d.Why == "":
				t.Fatalf("decision %d: %+v", i, d)
			case d.Place && blocked:
				t.Fatalf("%s was placed before one that waited longer", d.Task)
			case d.Place:
				placed++
			default:
				blocked = true
				if target.Down == "" && !strings.Contains(d.Why, fmt.Sprintf("all %d slots are in use", target.Slots)) {
					t.Fatalf("the reason is not true: %q", d.Why)
				}
			}
		}
		want := min(len(waiting), target.Slots+target.Ahead-target.Used)
		if target.Down != "" {
			want = 0
		}
		if placed != want {
			t.Fatalf("%d placed, want %d", placed, want)
		}
	})
}
