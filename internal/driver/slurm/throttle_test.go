package slurm

import "testing"

// TestThrottle: how many jobs of an array may run at a time follows from how fast they are.
func TestThrottle(t *testing.T) {
	for what, x := range map[string]struct{ most, given, best, left, want int }{
		"long tasks":                             {16, 0, 0, 900, 0},
		"long tasks after short ones":            {32, 7, 300, 500, 0},
		"short tasks, soon over":                 {16, 300, 0, 700, 16},
		"short tasks, many of them":              {16, 100, 0, 900, 32},
		"more jobs helped":                       {32, 200, 100, 1700, 64},
		"more jobs were no help":                 {32, 110, 100, 1700, 32},
		"a machine that is too busy to be quick": {16, 5, 40, 800, 16},
	} {
		if got := nextMost(x.most, x.given, x.best, x.left); got != x.want {
			t.Errorf("%s: %d", what, got)
		}
	}
}
