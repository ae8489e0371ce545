package metrics

import (
	"math"
	"strconv"
	"strings"
)

// A Writer writes metrics in Prometheus' text format, version 0.0.4.
type Writer struct{ b strings.Builder }

// ContentType is that of what a Writer writes.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// String is what was written.
func (w *Writer) String() string { return w.b.String() }

// A Kind is a kind of metric.
type Kind string

// The kinds that are used.
const (
	Counter       Kind = "counter"   // only grows
	Gauge         Kind = "gauge"     // goes up and down
	KindHistogram Kind = "histogram" // see Histogram
)

// Begin begins a metric; its samples follow.
func (w *Writer) Begin(name string, k Kind, help string) {
	w.b.WriteString("# HELP " + name + " " + strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(help) + "\n# TYPE " + name + " " + string(k) + "\n")
}

// Sample writes a value of the metric. Labels are names and values in turn.
func (w *Writer) Sample(name string, value float64, labels ...string) {
	w.b.WriteString(name)
	for i := 0; i+1 < len(labels); i += 2 {
		if i == 0 {
			w.b.WriteByte('{')
		} else {
			w.b.WriteByte(',')
		}
		w.b.WriteString(labels[i] + `="`)
		w.b.WriteString(escaped.Replace(labels[i+1]))
		w.b.WriteByte('"')
	}
	if len(labels) > 1 {
		w.b.WriteByte('}')
	}
	w.b.WriteByte(' ')
	w.b.WriteString(number(value))
	w.b.WriteByte('\n')
}

var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// One writes a metric that has one sample and no labels.
func (w *Writer) One(name string, k Kind, help string, value float64) {
	w.Begin(name, k, help)
	w.Sample(name, value)
}

// Histogram writes a histogram's samples.
func (w *Writer) Histogram(name string, h *Histogram, labels ...string) {
	upTo := h.buckets()
	labels = append(append(make([]string, 0, len(labels)+2), labels...), "le", "")
	for i, n := range upTo {
		le := math.Inf(1)
		if i < len(bounds) {
			le = bounds[i]
		}
		labels[len(labels)-1] = number(le)
		w.Sample(name+"_bucket", float64(n), labels...)
	}
	labels = labels[:len(labels)-2]
	w.Sample(name+"_sum", h.seconds(), labels...)
	w.Sample(name+"_count", float64(upTo[len(upTo)-1]), labels...)
}

// Ages writes how long what waits has waited, as gauges: name_count, name_oldest_seconds, and
// name_up_to with the bound as a label.
func (w *Writer) Ages(name string, a *Ages, what string) {
	w.One(name+"_count", Gauge, "How many "+what+".", float64(a.all))
	w.One(name+"_oldest_seconds", Gauge, "How long the oldest has waited of the "+what+".", a.oldest)
	w.Begin(name+"_up_to", Gauge, "How many have waited at most that many seconds of the "+what+".")
	for i, n := range a.upTo {
		w.Sample(name+"_up_to", float64(n), "seconds", number(ages[i]))
	}
}

func number(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
