package track

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/berthml/berth/internal/track/points"
)

// stepCounters is how many counters find the points of a chart among steps that fall: 2 MiB.
const stepCounters = 256 << 10

// A placed is a point and where it is in the history.
type placed struct {
	points.Point
	at int
}

func byStep(a, b placed) int { return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.at, b.at)) }

// A scan calls fn with each point of a history.
type scan func(fn func(placed)) error

// A cell is a range of steps that has points of wanted ranks. Steps are unsigned here, see
// unsigned.
type cell struct {
	low, high uint64
	before    int   // points with lower steps
	ranks     []int // wanted ones, ascending
}

// unsigned maps steps to numbers in the same order, whose differences do not overflow.
func unsigned(step int64) uint64 { return uint64(step) ^ 1<<63 }

// cellOf is the index of the cell that a step is in, -1 for none.
func cellOf(cells []cell, step uint64) int {
	i := sort.Search(len(cells), func(i int) bool { return cells[i].high >= step })
	if i == len(cells) || cells[i].low > step {
		return -1
	}
	return i
}

// atRanks is the points of a history that have these ranks, which ascend, when it is sorted by
// step. Their steps are from low to high. It reads the history a bounded number of times: each time
// it counts the points in parts of the cells, until each cell is one step.
func (s scan) atRanks(ranks []int, low, high int64) ([]placed, error) {
	cells := []cell{{low: unsigned(low), high: unsigned(high), ranks: ranks}}
	for {
		wide := 0
		for _, c := range cells {
			if c.low < c.high {
				wide++
			}
		}
		if wide == 0 {
			return s.pick(cells, len(ranks))
		}
		var err error
		if cells, err = s.divide(cells, uint64(stepCounters/wide)); err != nil {
			return nil, err
		}
	}
}

// divide counts the points in n equal parts of each cell and returns the parts that have wanted
// ranks.
func (s scan) divide(cells []cell, n uint64) ([]cell, error) {
	counts := make([][]int, len(cells))
	widths := make([]uint64, len(cells))
	for i, c := range cells {
		if c.low < c.high {
			widths[i] = (c.high-c.low)/n + 1
			counts[i] = make([]int, (c.high-c.low)/widths[i]+1)
		}
	}
	err := s(func(p placed) {
		step := unsigned(p.Step)
		if i := cellOf(cells, step); i >= 0 && counts[i] != nil {
			counts[i][(step-cells[i].low)/widths[i]]++
		}
	})
	if err != nil {
		return nil, err
	}
	var out []cell
	for i, c := range cells {
		if counts[i] == nil {
			out = append(out, c)
			continue
		}
		for part, count := range counts[i] {
			wanted := sort.SearchInts(c.ranks, c.before+count)
			if wanted > 0 {
				low := c.low + uint64(part)*widths[i]
				out = append(out, cell{low: low, high: low + min(widths[i]-1, c.high-low), before: c.before, ranks: c.ranks[:wanted]})
			}
			c.before, c.ranks = c.before+count, c.ranks[wanted:]
		}
	}
	return out, nil
}

// pick is the points of the ranks that cells want, where each cell is one step: points with the
// same step are in the order of the history.
func (s scan) pick(cells []cell, n int) ([]placed, error) {
	out := make([]placed, 0, n)
	err := s(func(p placed) {
		i := cellOf(cells, unsigned(p.Step))
		if i < 0 || len(cells[i].ranks) == 0 {
			return
		}
		c := &cells[i]
		if c.before == c.ranks[0] {
			out, c.ranks = append(out, p), c.ranks[1:]
		}
		c.before++
	})
	slices.SortFunc(out, byStep)
	return out, err
}

// A peak is the first, the least and the greatest of some points, by step. NaN is neither of the
// last two.
type peak struct {
	first, low, high placed
	any, anyNumber   bool
}

func (k *peak) add(p placed) {
	if !k.any || byStep(p, k.first) < 0 {
		k.first, k.any = p, true
	}
	if math.IsNaN(p.Value) {
		return
	}
	if !k.anyNumber || p.Value < k.low.Value || p.Value == k.low.Value && byStep(p, k.low) < 0 {
		k.low = p
	}
	if !k.anyNumber || p.Value > k.high.Value || p.Value == k.high.Value && byStep(p, k.high) < 0 {
		k.high = p
	}
	k.anyNumber = true
}

// points are the points of the peak, each once, by step.
func (k *peak) points() []placed {
	if !k.any {
		return nil
	}
	out := []placed{k.first}
	if k.anyNumber {
		out = append(out, k.low, k.high)
	}
	slices.SortFunc(out, byStep)
	return slices.CompactFunc(out, func(a, b placed) bool { return a.at == b.at })
}

// peaks is the peak from each cut, by step, to before the next.
func (s scan) peaks(cuts []placed) ([]peak, error) {
	out := make([]peak, len(cuts))
	err := s(func(p placed) {
		i := sort.Search(len(cuts), func(i int) bool { return byStep(cuts[i], p) > 0 })
		if i > 0 {
			out[i-1].add(p)
		}
	})
	return out, err
}
