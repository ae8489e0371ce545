package gateway

import (
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/metrics"
)

// stats is what was counted of the requests for a deployment. Its latencies are those of the
// window that passes and of the one before.
type stats struct {
	mu       sync.Mutex
	statuses map[int]int64
	requests int64
	errors   int64
	last     time.Time
	windows  [2]window
	began    time.Time // of the first window
	latency  metrics.Histogram
}

// A window counts latencies in buckets that grow by a tenth.
type window struct {
	counts [buckets]int32
	all    int64
	worst  time.Duration
}

const (
	buckets    = 160
	firstBound = 50 * time.Microsecond
	growth     = 1.1
	windowTime = 30 * time.Second
)

// bucketOf is the bucket of a latency.
func bucketOf(d time.Duration) int {
	if d <= firstBound {
		return 0
	}
	return min(int(math.Ceil(math.Log(float64(d)/float64(firstBound))/math.Log(growth))), buckets-1)
}

// arrived notes that a request came.
func (s *stats) arrived(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = now
}

// done counts a request that was answered after took.
func (s *stats) done(now time.Time, status int, took time.Duration) {
	s.latency.Observe(took)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.statuses == nil {
		s.statuses = map[int]int64{}
	}
	s.statuses[knownStatus(status)]++
	s.requests++
	if status >= 400 {
		s.errors++
	}
	s.last = now
	s.turn(now)
	w := &s.windows[0]
	w.counts[bucketOf(took)]++
	w.all++
	w.worst = max(w.worst, took)
}

// knownStatus is a status, or the class of one that a server of a user's own made up: there are not
// to be as many counters as there are numbers.
func knownStatus(status int) int {
	if http.StatusText(status) == "" && status != statusClosed {
		return status / 100
	}
	return status
}

func statusLabel(status int) string {
	if status < 10 {
		return strconv.Itoa(status) + "xx"
	}
	return strconv.Itoa(status)
}

// turn begins a window where the one that passes is over.
func (s *stats) turn(now time.Time) {
	switch since := now.Sub(s.began); {
	case since >= 2*windowTime:
		s.windows, s.began = [2]window{}, now
	case since >= windowTime:
		s.windows[1], s.windows[0], s.began = s.windows[0], window{}, s.began.Add(windowTime)
	}
}

// read is the counts as others see them.
func (s *stats) read(now time.Time) berth.ServingStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(now)
	out := berth.ServingStats{
		Requests: s.requests, Errors: s.errors, Statuses: map[string]int64{}, Last: s.last,
	}
	for code, n := range s.statuses {
		out.Statuses[statusLabel(code)] = n
	}
	var sum window
	for i := range s.windows {
		for b, n := range s.windows[i].counts {
			sum.counts[b] += n
		}
		sum.all += s.windows[i].all
		sum.worst = max(sum.worst, s.windows[i].worst)
	}
	out.Recent = sum.all
	out.P50, out.P90, out.P99 = sum.quantile(0.5), sum.quantile(0.9), sum.quantile(0.99)
	out.Worst = milliseconds(sum.worst)
	return out
}

// quantile is the latency that a share of the requests stayed below, in milliseconds.
func (w *window) quantile(share float64) float64 {
	if w.all == 0 {
		return 0
	}
	left := int64(math.Ceil(share * float64(w.all)))
	for b, n := range w.counts {
		if left -= int64(n); left <= 0 {
			return math.Min(milliseconds(time.Duration(float64(firstBound)*math.Pow(growth, float64(b)))), milliseconds(w.worst))
		}
	}
	return milliseconds(w.worst)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Stats is what this server counted of the requests for a deployment since it started.
func (g *Gateway) Stats(workspace, endpoint, deployment string) berth.ServingStats {
	p := g.poolOf(workspace, endpoint, deployment)
	if p == nil {
		return berth.ServingStats{Statuses: map[string]int64{}}
	}
	return p.read(time.Now())
}

// read is what was counted, with what is the case now.
func (p *pool) read(now time.Time) berth.ServingStats {
	out := p.stats.read(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sum(now)
	out.BusySeconds, out.QueuedSeconds = p.busySum.Seconds(), p.waitSum.Seconds()
	out.Waiting = p.waiting.Len()
	for _, s := range p.slots {
		if s.busy {
			out.InFlight++
		}
		if !s.gone {
			out.Workers++
		}
	}
	return out
}

// Metrics writes what was counted, in the form of Prometheus.
func (g *Gateway) Metrics(w *metrics.Writer) {
	type row struct {
		id [3]string
		p  *pool
		s  berth.ServingStats
	}
	var rows []row
	g.mu.Lock()
	for id, p := range g.table.pools {
		if !isGone(id[2]) {
			rows = append(rows, row{id: id, p: p})
		}
	}
	g.mu.Unlock()
	now := time.Now()
	for i := range rows {
		rows[i].s = rows[i].p.read(now)
	}
	labels := func(r row, more ...string) []string {
		return append([]string{"workspace", r.id[0], "endpoint", r.id[1], "deployment", r.id[2]}, more...)
	}
	w.Begin("berth_endpoint_requests_total", metrics.Counter, "Requests to deployments of online endpoints that were answered, by status.")
	for _, r := range rows {
		for code, n := range r.s.Statuses {
			w.Sample("berth_endpoint_requests_total", float64(n), labels(r, "code", code)...)
		}
	}
	for _, m := range []struct {
		name  string
		kind  metrics.Kind
		help  string
		value func(berth.ServingStats) float64
	}{
		{"berth_endpoint_queue_seconds_total", metrics.Counter, "Time that requests waited for a worker.", func(s berth.ServingStats) float64 { return s.QueuedSeconds }},
		{"berth_endpoint_busy_seconds_total", metrics.Counter, "Time that workers had requests.", func(s berth.ServingStats) float64 { return s.BusySeconds }},
		{"berth_endpoint_in_flight", metrics.Gauge, "Requests that workers have.", func(s berth.ServingStats) float64 { return float64(s.InFlight) }},
		{"berth_endpoint_waiting", metrics.Gauge, "Requests that wait for a worker.", func(s berth.ServingStats) float64 { return float64(s.Waiting) }},
		{"berth_endpoint_workers", metrics.Gauge, "Workers of replicas that are ready.", func(s berth.ServingStats) float64 { return float64(s.Workers) }},
	} {
		w.Begin(m.name, m.kind, m.help)
		for _, r := range rows {
			w.Sample(m.name, m.value(r.s), labels(r)...)
		}
	}
	writeUses(w, len(rows), func(i int) (*pool, []string) { return rows[i].p, labels(rows[i]) })
	w.Begin("berth_endpoint_request_seconds", metrics.KindHistogram, "Time from a request to the end of its answer.")
	for _, r := range rows {
		if r.s.Requests == 0 {
			continue
		}
		w.Histogram("berth_endpoint_request_seconds", &r.p.stats.latency, labels(r)...)
	}
}
