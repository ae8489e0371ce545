package track

import (
	"context"
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
	made   chan struct{} // closed when it is made
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

// errDraw is the error of a chart while it is drawn: it stays if drawing panics.
var errDraw = errors.New("the chart could not be made")

// get returns a chart. Concurrent callers with the same key wait for the first, which draws it. If
// that one fails, for instance because its client has gone, the next caller draws it.
func (c *charts) get(ctx context.Context, key chartKey, draw func() ([]points.Point, error)) ([]points.Point, error) {
	for {
		x, first := c.at(key)
		if first {
			return c.make(x, key, draw)
		}
		select {
		case <-x.made:
		case <-ctx.Done():
			return nil, interrupted()
		}
		if x.err == nil {
			return x.points, nil
		}
	}
}

func (c *charts) make(x *chart, key chartKey, draw func() ([]points.Point, error)) ([]points.Point, error) {
	x.err = errDraw
	defer func() {
		if x.err != nil {
			c.mu.Lock()
			if c.all[key] == x {
				delete(c.all, key)
			}
			c.mu.Unlock()
		}
		close(x.made)
	}()
	x.points, x.err = draw()
	return x.points, x.err
}

// at is the entry of a chart; first says that the caller has to make it.
func (c *charts) at(key chartKey) (x *chart, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	x = c.all[key]
	if x == nil {
		c.evict(key)
		if c.all == nil {
			c.all = map[chartKey]*chart{}
		}
		x, first = &chart{made: make(chan struct{})}, true
		c.all[key] = x
	}
	x.used = c.clock
	return x, first
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
