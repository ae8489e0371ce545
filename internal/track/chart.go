package track

import (
	"errors"
	"sync"

	"github.com/berthml/berth/internal/track/points"
)

// Charts of long series are kept until a point is added: a page that shows one asks again every
// few seconds, and so does everybody else who looks at it.
const (
	longSeries = 10_000 // points
	mostCharts = 32     // of a workspace, at most maxIntervalPoints each
)

// A chartKey names what a chart shows: the points of a series at a time, thinned in one way.
type chartKey struct {
	state    points.State
	envelope bool
	limit    int
}

type chart struct {
	once   sync.Once
	points []points.Point
	err    error
	used   uint64 // when it was asked for last
}

// charts are the charts that were asked for last.
type charts struct {
	mu    sync.Mutex
	clock uint64
	all   map[chartKey]*chart
}

var errDraw = errors.New("the chart could not be made")

// get is a chart. Those who ask for the same one at once wait for one who makes it.
func (c *charts) get(key chartKey, draw func() ([]points.Point, error)) ([]points.Point, error) {
	x := c.at(key)
	x.once.Do(func() {
		x.err = errDraw // for those who wait, should draw panic
		x.points, x.err = draw()
	})
	if x.err != nil {
		c.mu.Lock()
		if c.all[key] == x {
			delete(c.all, key)
		}
		c.mu.Unlock()
	}
	return x.points, x.err
}

// at is the entry of a chart.
func (c *charts) at(key chartKey) *chart {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	x := c.all[key]
	if x == nil {
		c.evict(key)
		if c.all == nil {
			c.all = map[chartKey]*chart{}
		}
		x = &chart{}
		c.all[key] = x
	}
	x.used = c.clock
	return x
}

// evict makes room for a chart: the same one of fewer points goes, or the one that nobody has asked
// for longest. The caller holds mu.
func (c *charts) evict(key chartKey) {
	var oldest chartKey
	first := true
	for k, y := range c.all {
		if k.state.Series == key.state.Series && k.envelope == key.envelope && k.limit == key.limit {
			delete(c.all, k)
			return
		}
		if first || y.used < c.all[oldest].used {
			oldest, first = k, false
		}
	}
	if len(c.all) >= mostCharts {
		delete(c.all, oldest)
	}
}
