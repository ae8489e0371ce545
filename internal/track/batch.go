package track

import (
	"errors"
	"fmt"
	"mime"
	"slices"
	"strings"
)

// The limits of a batch.
const (
	maxBatchMetrics  = 1000
	maxBatchParams   = 100
	maxBatchTags     = 100
	maxBatchEntities = 1000
)

// A batch is what log-batch carries.
type batch struct {
	run     string
	metrics []metric
	params  []pair
	tags    []pair
}

func logBatch(c *call) (any, error) {
	kind := c.r.Header.Get("Content-Type")
	if t, _, err := mime.ParseMediaType(kind); kind != "application/json" && (err != nil || t != "application/json") {
		return nil, c.readParams() // which says what is wrong with it
	}
	body, err := c.readBody(maxBatchBody)
	if err != nil {
		return nil, err
	}
	b, ok := parseBatch(body)
	if !ok {
		if b, err = slowBatch(c, body); err != nil {
			return nil, err
		}
	}
	if err := b.check(); err != nil {
		return nil, err
	}
	return empty, c.log(b)
}

// slowBatch reads any batch, and says what is wrong with one.
func slowBatch(c *call, body []byte) (*batch, error) {
	v, err := parseJSON(body)
	if err != nil && !errors.Is(err, errJSON) {
		return nil, err
	}
	c.m, _ = v.(object)
	b := &batch{run: c.runID()}
	if err := checkSizes(c.count("metrics"), c.count("params"), c.count("tags")); err != nil {
		c.fail(err)
		return b, c.done()
	}
	for i, m := range c.items("metrics") {
		p := params{m: m}
		for _, name := range []string{"key", "value", "timestamp"} {
			if v, ok := p.get(name); !ok || v == "" {
				c.fail(required(fmt.Sprintf("metrics[%d].%s", i, name)))
			}
		}
		b.metrics = append(b.metrics, metricOf(&p))
		if p.err != nil {
			c.fail(wrongType("metrics", c.m["metrics"]))
			break
		}
	}
	b.params, b.tags = c.pairs("params"), c.pairs("tags")
	return b, c.done()
}

// checkSizes refuses a batch with more than the limits, from how many things it has of each kind.
func checkSizes(metrics, params, tags int) error {
	for _, l := range []struct {
		what    string
		n, most int
	}{
		{"metrics", metrics, maxBatchMetrics},
		{"params", params, maxBatchParams},
		{"tags", tags, maxBatchTags},
		{"metrics, params, and tags", metrics + params + tags, maxBatchEntities},
	} {
		if l.n > l.most {
			return invalid("A batch logging request can contain at most %d %s. Got %d %s. Please split up %s across multiple requests and "+
				"try again.", l.most, l.what, l.n, l.what, l.what)
		}
	}
	return nil
}

// check refuses what is beyond the limits before anything is written.
func (b *batch) check() error {
	if err := checkSizes(len(b.metrics), len(b.params), len(b.tags)); err != nil {
		return err
	}
	last := ""
	for i := range b.metrics {
		m := &b.metrics[i]
		if m.Model == "" && m.Key == last && m.Point.Timestamp >= 0 {
			continue // checked a moment ago
		}
		last = m.Key
		if err := checkMetric(m, ""); err != nil {
			return checkMetric(m, fmt.Sprintf("metrics[%d].", i))
		}
	}
	for i := range b.params {
		if err := checkParam(&b.params[i], fmt.Sprintf("params[%d].", i)); err != nil {
			return err
		}
	}
	for i := range b.tags {
		if err := checkRunTag(&b.tags[i], fmt.Sprintf("tags[%d].", i)); err != nil {
			return err
		}
	}
	return b.checkParams()
}

// checkParams refuses a parameter that comes twice.
func (b *batch) checkParams() error {
	var seen, twice []string
	for _, p := range b.params {
		if slices.Contains(seen, p.Key) {
			twice = append(twice, "'"+p.Key+"'")
		}
		seen = append(seen, p.Key)
	}
	if twice != nil {
		return invalid("Duplicate parameter keys have been submitted: [%s]. Please ensure the request contains only one param value per "+
			"param key.", strings.Join(twice, ", "))
	}
	return nil
}

// log writes a batch that was checked: parameters and tags first, because they may be refused, then
// points, which may not.
func (c *call) log(b *batch) error {
	if _, err := c.writableRun(b.run); err != nil {
		return err
	}
	if err := c.mayModels(b.metrics); err != nil {
		return err
	}
	points := entries(b.run, b.metrics)
	if err := c.mayLog(points); err != nil { // before anything is written
		return err
	}
	if len(b.params)+len(b.tags) > 0 {
		err := c.changeRun(b.run, func(x *change, r *run) error {
			if err := r.mustBeActive(); err != nil {
				return err
			}
			for _, p := range b.params {
				if err := r.setParam(p); err != nil {
					return err
				}
			}
			for _, t := range b.tags {
				r.setTag(t)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return c.appendPoints(points)
}
