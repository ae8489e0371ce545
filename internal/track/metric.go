package track

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/berthml/berth/internal/track/points"
)

// double is a number as answers have it: what JSON cannot say is in quotes.
type double float64

// MarshalJSON implements json.Marshaler.
func (d double) MarshalJSON() ([]byte, error) {
	f := float64(d)
	switch {
	case math.IsNaN(f):
		return []byte(`"NaN"`), nil
	case math.IsInf(f, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(f, -1):
		return []byte(`"-Infinity"`), nil
	case f == math.Trunc(f) && math.Abs(f) < 1e15:
		return strconv.AppendFloat(nil, f, 'f', 1, 64), nil
	}
	return json.Marshal(f)
}

type metricView struct {
	Key       string `json:"key"`
	Value     double `json:"value"`
	Timestamp int64  `json:"timestamp"`
	Step      int64  `json:"step"`
	Dataset   string `json:"dataset_name,omitempty"`
	Digest    string `json:"dataset_digest,omitempty"`
	Model     string `json:"model_id,omitempty"`
	Run       string `json:"run_id,omitempty"`
}

func viewOf(key string, p points.Point) metricView {
	return metricView{Key: key, Value: double(p.Value), Timestamp: p.Timestamp, Step: p.Step}
}

// A metric is a point that was logged, with what it was measured on.
type metric struct {
	Key                    string
	Point                  points.Point
	Model, Dataset, Digest string
}

// modelKey is the key of the series a model has for a metric, and back.
func (m *metric) modelKey(run string) string {
	return strings.Join([]string{m.Key, m.Dataset, m.Digest, run}, "\x00")
}

// partsOf takes the key of a series of a model apart.
func partsOf(key string) (metric string, dataset [2]string, run string) {
	f := strings.SplitN(key, "\x00", 4)
	if len(f) == 4 {
		return f[0], [2]string{f[1], f[2]}, f[3]
	}
	return f[0], dataset, ""
}

func modelMetric(model, key string, p points.Point) metricView {
	metric, dataset, run := partsOf(key)
	v := viewOf(metric, p)
	v.Model, v.Dataset, v.Digest, v.Run = model, dataset[0], dataset[1], run
	return v
}

// checkMetric refuses a metric; at is where it stands in a batch.
func checkMetric(m *metric, at string) error {
	if err := checkKey(m.Key, at+"name"); err != nil {
		return err
	}
	if m.Point.Timestamp < 0 {
		return invalid("Invalid value %d for parameter '%stimestamp' supplied: metric '%s' (value=%s). Timestamp must be a nonnegative "+
			"long (64-bit integer) ", m.Point.Timestamp, at, m.Key, pythonFloat(m.Point.Value))
	}
	if m.Model != "" { // the three are in the key of the model's series
		if err := cmp.Or(checkLength(at+"dataset_name", maxDatasetName, m.Dataset), checkLength(at+"dataset_digest", maxDatasetDigest, m.Digest)); err != nil {
			return err
		}
		if strings.ContainsRune(m.Dataset+m.Digest, 0) {
			return invalid("Invalid value for parameter '%sdataset_name' or '%sdataset_digest' supplied: it contains a null character", at, at)
		}
	}
	return checkLength("Metric name", maxKey, m.Key)
}

// pythonFloat writes a number as Python does.
func pythonFloat(f float64) string {
	b, err := double(f).MarshalJSON()
	if err != nil {
		return fmt.Sprint(f)
	}
	return strings.Trim(string(b), `"`)
}

// entries are the points of metrics of a run, with those of the models they speak of.
func entries(run string, metrics []metric) []points.Entry {
	out := make([]points.Entry, 0, len(metrics))
	for i := range metrics {
		out = append(out, points.Entry{Owner: run, Key: metrics[i].Key, Point: metrics[i].Point})
	}
	for i := range metrics {
		if m := &metrics[i]; m.Model != "" {
			out = append(out, points.Entry{Owner: m.Model, Key: m.modelKey(run), Point: m.Point})
		}
	}
	return out
}

// metricOf reads a metric that is an object.
func metricOf(p *params) metric {
	m := metric{Key: p.need("key"), Model: p.text("model_id"), Dataset: p.text("dataset_name"), Digest: p.text("dataset_digest")}
	m.Point.Value = p.float("value")
	if !p.has("timestamp") {
		p.fail(required("timestamp"))
	}
	m.Point.Timestamp, m.Point.Step = p.int("timestamp", 0), p.int("step", 0)
	return m
}

func logMetric(c *call) (any, error) {
	id := c.runID()
	m := metricOf(&c.params)
	if err := c.done(); err != nil {
		return nil, err
	}
	if err := checkMetric(&m, ""); err != nil {
		return nil, err
	}
	return empty, c.logMetrics(id, []metric{m})
}

// logMetrics makes the points of metrics durable.
func (c *call) logMetrics(id string, metrics []metric) error {
	r, err := c.writableRun(id)
	if err != nil {
		return err
	}
	if err := c.mayModels(metrics); err != nil {
		return err
	}
	return c.logPoints(entries(r.ID, metrics))
}

// mayLog refuses points where there is no room for them.
func (c *call) mayLog(entries []points.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	if err := c.mayStore(); err != nil {
		return err
	}
	return c.mayBegin(entries)
}

// logPoints makes points durable, if there is room for them.
func (c *call) logPoints(entries []points.Entry) error {
	if err := c.mayLog(entries); err != nil {
		return err
	}
	return c.appendPoints(entries)
}

// appendPoints makes points durable. They are where the next server that leads finds them only if
// this one leads still.
func (w *workspace) appendPoints(entries []points.Entry) error {
	if err := w.points.Append(entries); err != nil {
		return err
	}
	w.measure()
	return w.s.leads()
}

// writableRun is a run that points may be added to.
func (c *call) writableRun(id string) (*run, error) {
	r, err := c.runOf(id)
	if err != nil {
		return nil, err
	}
	return r, r.mustBeActive()
}

// mayModels refuses metrics of models that are not there, or not the caller's.
func (c *call) mayModels(metrics []metric) error {
	last := ""
	for i := range metrics {
		id := metrics[i].Model
		if id == "" || id == last {
			continue
		}
		last = id
		var m *loggedModel
		c.view(func(x *index) { m = x.logged[id] })
		if m == nil || m.Deleted {
			return noLogged(id)
		}
		if err := c.mayLogged(m); err != nil {
			return err
		}
	}
	return nil
}
