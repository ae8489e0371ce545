// Package serve keeps online deployments: it makes replicas run as their documents ask.
//
// The API writes what somebody wants into the document of a deployment; [Loop] makes it so. A
// replica is a job that does not end (package control runs it like any other), whose process is our
// worker (package worker). The loop submits the jobs of replicas, sees when they are ready,
// replaces those that die, and ends those that are not needed. For each deployment there is a
// keeper; what it does next is decided by a pure function (decide.go).
//
// Requests reach replicas through package gateway, which reads from the same documents which of
// them are ready.
package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// Options is what a Loop is made of.
type Options struct {
	DB      *store.DB
	Blobs   *blob.Store
	Locator locate.Locator
	Log     *slog.Logger
	// Location and NoLocal are for the choice of a compute, see target.Chooser.
	Location string
	NoLocal  bool
	// Secret is what a replica and the server share; job names the replica.
	Secret func(job string) string
	// Idle says whether nobody waits for an answer of the replica that is this job, as far as this
	// server knows, and OnlyServer whether no other server runs that could know better.
	Idle       func(job string) bool
	OnlyServer func(ctx context.Context) bool
	// Reach connects to replicas that are not on this machine.
	Reach Reach
	// Load is what was counted of the requests for a deployment.
	Load func(workspace, endpoint, deployment string) berth.ServingStats
}

// Loop makes what the store says of deployments come true.
type Loop struct {
	o      Options
	client *http.Client

	mu      sync.Mutex
	keepers map[key]*keeper
	jobs    map[jobKey]key // whose replica a job is
	group   sync.WaitGroup
}

// key names a deployment, in lower case.
type key struct{ workspace, endpoint, deployment string }

type jobKey struct{ workspace, name string }

// keyOf is the deployment that JobState.Serves names.
func keyOf(workspace, serves string) key {
	e, d, _ := strings.Cut(strings.ToLower(serves), "/")
	return key{workspace, e, d}
}

// New returns a Loop that does nothing until Run.
func New(o Options) *Loop {
	t := &http.Transport{Proxy: nil, DisableKeepAlives: true, DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		return o.Reach.Dial(ctx, address)
	}}
	return &Loop{o: o, keepers: map[key]*keeper{}, jobs: map[jobKey]key{}, client: &http.Client{
		Transport: t, Timeout: probeTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// probeTimeout is how long a worker may take to say that it is ready.
const probeTimeout = 2 * time.Second

// Run works until ctx ends, and returns when every call it made has returned. Replicas run on.
func (l *Loop) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer l.group.Wait()
	defer cancel()
	for {
		from := l.o.DB.Rev()
		if err := l.load(ctx); err != nil {
			return ended(ctx, err)
		}
		w := l.o.DB.Watch(ctx, from)
		for {
			batch, err := w.Next()
			if berth.CodeOf(err) == berth.Gone {
				break // too far behind: read everything again
			}
			if err != nil {
				return ended(ctx, err)
			}
			for i := range batch {
				l.heard(ctx, &batch[i])
			}
		}
	}
}

// ended is nil for the end of ctx, which is how a Loop is stopped.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
		return nil //nolint:nilerr // see above
	}
	return err
}

// heard wakes whom an event concerns.
func (l *Loop) heard(ctx context.Context, e *berth.Event) {
	if name, ok := strings.CutPrefix(e.Subject, "jobs/"); ok {
		l.mu.Lock()
		k, ok := l.jobs[jobKey{e.Workspace, name}]
		l.mu.Unlock()
		if ok {
			l.wake(ctx, k)
		}
		return
	}
	rest, ok := strings.CutPrefix(e.Subject, Collection+"/")
	if !ok || e.Type == berth.EventDeployment {
		return
	}
	p := strings.Split(strings.ToLower(rest), "/")
	if len(p) == 3 {
		if e.Type == berth.EventDemand {
			l.demanded(key{e.Workspace, p[0], p[2]}, e.Time)
		}
		l.wake(ctx, key{e.Workspace, p[0], p[2]})
		return
	}
	l.mu.Lock()
	var below []key // an endpoint that was deleted took its deployments with it
	for k := range l.keepers {
		if k.workspace == e.Workspace && k.endpoint == p[0] {
			below = append(below, k)
		}
	}
	l.mu.Unlock()
	for _, k := range below {
		l.wake(ctx, k)
	}
}

// load makes a keeper for every deployment there is, and for those of which only replicas are left.
func (l *Loop) load(ctx context.Context) error {
	var keys []key
	err := l.o.DB.View(ctx, func(tx *store.Tx) error {
		keys = keys[:0]
		workspaces, err := tx.All(store.Query{Kind: "workspaces", NoBody: true})
		if err != nil {
			return err
		}
		for _, w := range workspaces {
			docs, err := tx.All(store.Query{Workspace: w.Name, Kind: Kind, NoBody: true})
			if err != nil {
				return err
			}
			for _, d := range docs {
				keys = append(keys, keyOf(w.Name, d.Name+"/"+d.Version))
			}
			jobs, err := replicaJobs(tx, w.Name)
			if err != nil {
				return err
			}
			for _, j := range jobs {
				keys = append(keys, j.of)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, k := range keys {
		l.wake(ctx, k)
	}
	return nil
}

// replicaJob is a job that is a replica and has not ended.
type replicaJob struct {
	doc     *store.Doc
	of      key
	compute string
}

// replicaJobs are those of a workspace.
func replicaJobs(tx *store.Tx, workspace string) (all []replicaJob, err error) {
	docs, err := tx.All(store.Query{Workspace: workspace, Kind: "jobs", Parent: Experiment, Status: berth.StatusTexts(berth.ActiveStatuses)})
	if err != nil {
		return nil, err
	}
	for _, d := range docs {
		st, err := job.State(d)
		if err != nil {
			continue // of a job that cannot be read nothing is known; its owner is told when they look
		}
		if st.Serves != "" {
			all = append(all, replicaJob{d, keyOf(workspace, st.Serves), st.Compute})
		}
	}
	return all, nil
}

// wake tells the keeper of a deployment that something changed, and makes one where there is none.
func (l *Loop) wake(ctx context.Context, k key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kp := l.keepers[k]
	if kp == nil {
		kp = &keeper{l: l, key: k, wake: make(chan struct{}, 1)}
		l.keepers[k] = kp
		l.group.Go(func() { kp.run(ctx) })
	}
	select {
	case kp.wake <- struct{}{}:
	default:
	}
}

// forget lets a keeper go whose deployment is gone, unless it was woken meanwhile.
func (l *Loop) forget(kp *keeper) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(kp.wake) > 0 {
		return false
	}
	delete(l.keepers, kp.key)
	for j, k := range l.jobs {
		if k == kp.key {
			delete(l.jobs, j)
		}
	}
	return true
}

// follow has the keeper of a deployment told of what becomes of its replicas, and of no others.
func (l *Loop) follow(k key, replicas []berth.Replica) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for j, of := range l.jobs {
		if of == k {
			delete(l.jobs, j)
		}
	}
	for _, r := range replicas {
		l.jobs[jobKey{k.workspace, r.Job}] = k
	}
}
