package berth_test

import (
	"strings"
	"testing"

	"github.com/berthml/berth"
)

func TestTaskIDs(t *testing.T) {
	for _, tt := range []struct {
		job   string
		place int64
		tail  string
	}{
		{"train", 1, ".1"}, {"a.b.c", 1 << 40, ".12"}, {"a-1.2-3", 35, ".3-7"}, {strings.Repeat("x", 300), 36, ".1-2"},
	} {
		id := berth.TaskID(berth.NewTaskKey(tt.job, tt.place) + tt.tail)
		if got := id.Place(); got != tt.place || len(id) > 170 {
			t.Errorf("%s is at %d, want %d", id, got, tt.place)
		}
	}
	for _, odd := range []berth.TaskID{"", "x", "..", "a.!.1"} {
		if got := odd.Place(); got != 0 {
			t.Errorf("%q is at %d", odd, got)
		}
	}
	for id, want := range map[berth.TaskID][2]int{"j.1.2": {2, 0}, "a-1.2-3.z.4-15": {4, 15}, "": {}, "x": {}, "a.1.b": {}, "a.1.2-b": {}} {
		if attempt, rank := id.Attempt(); [2]int{attempt, rank} != want {
			t.Errorf("%q: attempt %d, rank %d", id, attempt, rank)
		}
	}
	first, other := berth.Task{ID: "j.1.2"}, berth.Task{ID: "j.1.2-3", Rank: 3}
	if first.Gang() != "j.1.2" || other.Gang() != "j.1.2" {
		t.Errorf("%s and %s", first.Gang(), other.Gang())
	}
}
