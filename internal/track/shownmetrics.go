package track

import (
	"slices"
	"strings"

	"github.com/berthml/berth/internal/track/points"
)

// A list of runs needs few of their metrics, and a run may have any number. MLflow does not have
// these parameters.
const (
	metricKeys = "berth_metric_keys" // only these
	maxMetrics = "berth_max_metrics" // at most this many, the first by key
)

// mostMetricKeys bounds what is looked up for each run of a page.
const mostMetricKeys = 100

// shownMetrics is which metrics of its runs a search answers with.
type shownMetrics struct {
	keyed bool
	keys  []string
	most  int // -1 is all
}

func (p *params) shownMetrics() shownMetrics {
	m := shownMetrics{keyed: p.has(metricKeys), most: int(min(p.int(maxMetrics, -1), 1<<30))}
	if m.keyed {
		m.keys = slices.Compact(slices.Sorted(slices.Values(p.texts(metricKeys))))
	}
	switch {
	case len(m.keys) > mostMetricKeys:
		p.fail(invalid("%s names %d metrics; at most %d can be named", metricKeys, len(m.keys), mostMetricKeys))
	case p.has(maxMetrics) && m.most < 0:
		p.fail(invalid("Invalid value %d for parameter '%s' supplied", m.most, maxMetrics))
	case m.keyed && m.most >= 0:
		p.fail(invalid("Give either %s or %s", metricKeys, maxMetrics))
	}
	return m
}

// of is the metrics of a run that are shown, and how many it has. It is for choices: all metrics
// are not held at once.
func (m shownMetrics) of(c *call, run string) (shown []metricView, all int) {
	if m.keyed {
		for _, key := range m.keys {
			if s, ok := c.points.Last(run, key); ok {
				shown = append(shown, viewOf(key, s.Latest))
			}
		}
		return shown, len(shown)
	}
	byKey := func(v metricView, key string) int { return strings.Compare(v.Key, key) }
	c.points.View(func(v points.View) {
		v.Each(run, func(key string, latest points.Point) {
			all++
			if m.most == 0 || len(shown) == m.most && shown[m.most-1].Key <= key {
				return
			}
			if len(shown) == m.most {
				shown = shown[:m.most-1]
			}
			i, _ := slices.BinarySearchFunc(shown, key, byKey)
			shown = slices.Insert(shown, i, viewOf(key, latest))
		})
	})
	return shown, all
}

// addRunWith is addRun with chosen metrics.
func (c *call) addRunWith(out *listWriter, r *run, m shownMetrics) error {
	if !m.keyed && m.most < 0 {
		return c.addRun(out, r)
	}
	shown, all := m.of(c, r.ID)
	done, err := c.turnFor(r.size + r.Apart + len(shown)*summarySize)
	if err != nil {
		return err
	}
	defer done()
	v, err := c.runView(r)
	if err != nil {
		return err
	}
	if all > len(shown) {
		v.Data.AllMetrics = all
	}
	return out.addWith(v, func(add func(metricView) error) error {
		for _, x := range shown {
			if err := add(x); err != nil {
				return err
			}
		}
		return nil
	})
}
