package api

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/metrics"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// metricsService serves GET /metrics.
type metricsService struct {
	db         *store.DB
	requests   *requests
	census     census
	more       []func(*metrics.Writer) // of other parts of the server
	workspaces *workspaceService
	events     *eventService
}

// requests counts what was answered. Labels are names of this list and of the resource table, never
// a part of a request: there are no more series than these have combinations.
type requests struct {
	routes []string
	series [][len(methods) + 1]atomic.Pointer[answers] // by route and method
}

// answers are those to one method of one route.
type answers struct {
	statuses [600]atomic.Int64
	time     metrics.Histogram
}

var methods = [...]string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete}

// firsts are first segments of paths that are routes by themselves.
var firsts = []string{
	"blob", "healthz", "readyz", "metrics", "metadata", "discovery", "tokens", "berth", "runner", "opstatus", "opresult", "history", "data",
	"modelregistry", "mferp", "genericasset", "tenants", "mlflow",
}

// ofJob are what can be asked of a job and has a time of its own: some of it lasts as long as the
// job.
var ofJob = []string{"logs", "events", "explain", "plan", "cancel", "input"}

const routeOther, routeReports, routeInstances = "other", "runner/reports", "berth/instances"

func newRequests(table []resource) *requests {
	q := &requests{routes: append([]string{routeOther, routeReports, routeInstances, "subscriptions", "workspaces", "workspaces/events"}, firsts...)}
	for _, r := range table {
		q.routes = append(q.routes, "workspaces/"+r.Collection)
	}
	for _, action := range ofJob {
		q.routes = append(q.routes, "workspaces/jobs/"+action)
	}
	q.series = make([][len(methods) + 1]atomic.Pointer[answers], len(q.routes))
	return q
}

// route is which of the routes a path belongs to.
func (q *requests) route(path string) int {
	first, rest := segment(path)
	if !strings.EqualFold(first, "subscriptions") {
		name := first
		switch {
		case path == reportsPath:
			name = routeReports
		case strings.HasPrefix(path, instancePath), strings.HasPrefix(path, berth.ServiceRoot):
			name = routeInstances
		}
		return max(0, slices.Index(q.routes, name)) // the first is for what is none of them
	}
	name := "subscriptions"
	for rest != "" {
		var s string
		if s, rest = segment(rest); !strings.EqualFold(s, "workspaces") {
			continue
		}
		name = "workspaces"
		_, rest = segment(rest)
		collection, below := segment(rest)
		_, below = segment(below)
		action, _ := segment(below)
		for i, known := range q.routes {
			of, ok := strings.CutPrefix(known, "workspaces/")
			if !ok {
				continue
			}
			if strings.EqualFold(of, collection) {
				name = known
			}
			if job, sub, ok := strings.Cut(of, "/"); ok && strings.EqualFold(job, collection) && strings.EqualFold(sub, action) {
				return i
			}
		}
		break
	}
	return max(0, slices.Index(q.routes, name))
}

// segment is the first segment of a path, and what is behind it.
func segment(path string) (first, rest string) {
	first, rest, _ = strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first, rest
}

// count counts an answer.
func (q *requests) count(route int, method string, status int, took time.Duration) {
	m := slices.Index(methods[:], method)
	if m < 0 {
		m = len(methods)
	}
	at := &q.series[route][m]
	a := at.Load()
	for a == nil {
		at.CompareAndSwap(nil, &answers{})
		a = at.Load()
	}
	if status < 0 || status >= len(a.statuses) {
		status = 0
	}
	a.statuses[status].Add(1)
	a.time.Observe(took)
}

func (q *requests) write(w *metrics.Writer) {
	const name, took = "berth_http_requests_total", "berth_http_request_seconds"
	w.Begin(name, metrics.Counter, "Requests that were answered, by route, method and status.")
	each := func(f func(route, method string, a *answers)) {
		for i := range q.series {
			for m := range q.series[i] {
				if a := q.series[i][m].Load(); a != nil {
					f(q.routes[i], append(methods[:], routeOther)[m], a)
				}
			}
		}
	}
	each(func(route, method string, a *answers) {
		for status := range a.statuses {
			if n := a.statuses[status].Load(); n > 0 {
				w.Sample(name, float64(n), "route", route, "method", method, "status", strconv.Itoa(status))
			}
		}
	})
	w.Begin(took, metrics.KindHistogram, "How long requests took until their answer was complete. Followed logs and events take as long as they are followed.")
	each(func(route, method string, a *answers) { w.Histogram(took, &a.time, "route", route, "method", method) })
}

// statusWriter notes the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 || w.status < 200 { // after a 1xx another follows
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

// ReadFrom keeps the way on which the kernel copies files to connections.
func (w *statusWriter) ReadFrom(r io.Reader) (int64, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return io.Copy(w.ResponseWriter, r)
}

// Flush implements http.Flusher.
func (w *statusWriter) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// census is what can only be said of this moment.
type census struct {
	mu      sync.Mutex
	at      time.Time
	tasks   map[berth.TaskState]int
	nodes   map[string]int
	waiting metrics.Ages
}

// censusAge is how long it is told again, whoever asks how often.
const censusAge = 2 * time.Second

func (s *metricsService) count(c *call) (*census, error) {
	n := &s.census
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.at) < censusAge {
		return n, nil
	}
	spaces, err := s.workspaces.allWorkspaces(c.ctx())
	if err != nil {
		return nil, err
	}
	err = s.db.View(c.ctx(), func(tx *store.Tx) error {
		n.tasks, n.nodes, n.waiting = map[berth.TaskState]int{}, map[string]int{}, metrics.Ages{}
		active, err := tx.ActiveTasks()
		if err != nil {
			return err
		}
		for _, t := range active {
			n.tasks[t.State]++
			if t.State == berth.TaskWaiting && t.Rank == 0 {
				n.waiting.Add(tx.Now().Sub(t.Created))
			}
		}
		for _, ws := range spaces {
			docs, err := tx.All(store.Query{Workspace: ws.Key(), Kind: target.KindNode, NoBody: true})
			if err != nil {
				return err
			}
			for _, d := range docs {
				n.nodes[d.Status]++
			}
		}
		return nil
	})
	n.at = time.Now()
	return n, err
}

// metricsPage serves GET /metrics.
func (s *metricsService) metricsPage(c *call) error {
	now, err := s.count(c)
	if err != nil {
		return err
	}
	w := &metrics.Writer{}
	w.Begin("berth_info", metrics.Gauge, "Always 1; the version of the server is a label.")
	w.Sample("berth_info", 1, "version", berth.Version)
	s.requests.write(w)
	now.write(w)
	w.One("berth_followers", metrics.Gauge, "Logs and streams of events that are followed.", float64(s.events.followers.size()))
	for _, more := range s.more {
		more(w)
	}
	c.sent = true
	c.w.Header().Set("Content-Type", metrics.ContentType)
	_, err = io.WriteString(c.w, w.String())
	return err
}

func (n *census) write(w *metrics.Writer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w.Begin("berth_tasks", metrics.Gauge, "Tasks that are not done, by state.")
	for _, state := range []berth.TaskState{berth.TaskWaiting, berth.TaskPlaced, berth.TaskStarting, berth.TaskRunning, berth.TaskEnding} {
		w.Sample("berth_tasks", float64(n.tasks[state]), "state", string(state))
	}
	w.Begin("berth_nodes", metrics.Gauge, "Nodes of clusters and instances, by state.")
	for _, state := range []berth.NodeState{berth.NodePreparing, berth.NodeIdle, berth.NodeRunning, berth.NodeUnusable, berth.NodeLeaving, berth.NodePreempted} {
		w.Sample("berth_nodes", float64(n.nodes[string(state)]), "state", string(state))
	}
	w.Ages("berth_queue", &n.waiting, "jobs that wait for a node or a slot")
}
