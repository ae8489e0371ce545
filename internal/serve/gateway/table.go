package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/serve"
	"github.com/berthml/berth/internal/store"
)

// key names an endpoint: the key of its workspace and its name in lower case.
type key struct{ workspace, name string }

// An endpoint is what the gateway knows of one. It does not change: another takes its place.
type endpoint struct {
	name        string
	mode        string // of authentication, in lower case
	token       string // what its tokens are for, see serve.TokenName
	keys        [][sha256.Size]byte
	shares      []share
	mirror      []share
	deployments map[string]*deployment // by name in lower case
}

// share is the part of the requests that a deployment gets, in percent.
type share struct {
	name    string
	percent int
}

// A deployment is where the requests for it go.
type deployment struct {
	name      string
	timeout   time.Duration
	queueWait time.Duration
	state     string        // of the deployment
	follows   bool          // its replicas follow the load, from none where there are none
	stopped   bool          // it is to have no replicas
	pure      bool          // a request that a worker may have begun can be sent to another
	patience  time.Duration // how long a worker that rested may take to start; 0 where none rests
	score     string        // path that requests for /score are sent to; empty is that
	collect   *serve.Collecting
	maker     string // who made it
	pool      *pool
}

// route is the table of endpoints.
type route struct {
	endpoints map[key]*endpoint
	pools     map[[3]string]*pool // workspace, endpoint, deployment; they outlive changes
	marks     map[string]string   // workspaces that have or had endpoints, by serve.Mark
	replicas  map[replicaKey]*pool
}

// Run keeps the table until ctx ends.
func (g *Gateway) Run(ctx context.Context) error {
	for {
		from := g.o.DB.Rev()
		if err := g.loadAll(ctx); err != nil {
			return ended(ctx, err)
		}
		g.seen.Store(int64(from))
		w := g.o.DB.Watch(ctx, from)
		for {
			batch, err := w.Next()
			if berth.CodeOf(err) == berth.Gone {
				break
			}
			if err != nil {
				return ended(ctx, err)
			}
			var changed []key
			for i := range batch {
				g.takeUsage(&batch[i])
				if rest, ok := strings.CutPrefix(batch[i].Subject, serve.Collection+"/"); ok {
					name, _, _ := strings.Cut(strings.ToLower(rest), "/")
					if k := (key{batch[i].Workspace, name}); !slices.Contains(changed, k) {
						changed = append(changed, k)
					}
				}
			}
			for _, k := range changed {
				if err := g.load(ctx, k); err != nil {
					return ended(ctx, err)
				}
			}
			g.seen.Store(int64(batch[len(batch)-1].Rev))
		}
	}
}

func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
		return nil //nolint:nilerr // which is how it is stopped
	}
	return err
}

// behind says whether something may have changed that the table does not know of yet.
func (g *Gateway) behind() bool { return g.seen.Load() < int64(g.o.DB.Rev()) }

// loadAll reads every endpoint.
func (g *Gateway) loadAll(ctx context.Context) error {
	var keys []key
	err := g.o.DB.View(ctx, func(tx *store.Tx) error {
		keys = keys[:0]
		workspaces, err := tx.All(store.Query{Kind: "workspaces", NoBody: true})
		if err != nil {
			return err
		}
		for _, w := range workspaces {
			docs, err := tx.All(store.Query{Workspace: w.Name, Kind: serve.Collection, NoBody: true})
			if err != nil {
				return err
			}
			for _, d := range docs {
				keys = append(keys, key{w.Name, strings.ToLower(d.Name)})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := g.load(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// workspace is the key of the workspace that a mark stands for; "" where there is none. Only where
// the table may not know of the newest ones is the store asked, for somebody with a credential.
func (g *Gateway) workspace(r *http.Request, mark string) string {
	if mark == "" {
		return g.o.Zone.Home.Key()
	}
	g.mu.Lock()
	found := g.table.marks[mark]
	g.mu.Unlock()
	if found != "" || auth.Bearer(r.Header.Get("Authorization")) == "" || !g.behind() {
		return found
	}
	err := g.o.DB.View(r.Context(), func(tx *store.Tx) error {
		all, err := tx.All(store.Query{Kind: "workspaces", NoBody: true})
		for _, w := range all {
			if serve.Mark(w.Name) == mark {
				found = w.Name
			}
		}
		return err
	})
	if err != nil {
		g.o.Log.Error("workspaces not read", "err", err)
	}
	return found
}

// load reads one endpoint into the table; one that is gone leaves it.
func (g *Gateway) load(ctx context.Context, k key) error {
	g.loading.Lock() // reading and replacing are one step: an older reading must not come last
	defer g.loading.Unlock()
	var doc *store.Doc
	var below []*store.Doc
	err := g.o.DB.View(ctx, func(tx *store.Tx) (err error) {
		if doc, err = tx.Get(k.workspace, serve.Collection, k.name, ""); err != nil {
			return err
		}
		below, err = tx.All(store.Query{Workspace: k.workspace, Kind: serve.Kind, Name: doc.Name})
		return err
	})
	if berth.CodeOf(err) == berth.NotFound {
		g.replace(k, nil, nil)
		return nil
	}
	if err != nil {
		return err
	}
	e, err := g.read(doc)
	if err != nil {
		g.o.Log.Error("endpoint not read", "endpoint", doc.Name, "err", err)
		e = nil
	}
	g.replace(k, e, below)
	return nil
}

// read is an endpoint without its deployments.
func (g *Gateway) read(d *store.Doc) (*endpoint, error) {
	var v struct {
		Properties struct {
			AuthMode string         `json:"authMode"`
			Traffic  map[string]int `json:"traffic"`
			Mirror   map[string]int `json:"mirrorTraffic"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return nil, err
	}
	e := &endpoint{
		name: d.Name, token: serve.TokenName(d), mode: strings.ToLower(v.Properties.AuthMode), deployments: map[string]*deployment{},
		shares: sharesOf(v.Properties.Traffic), mirror: sharesOf(v.Properties.Mirror),
	}
	keys, err := g.o.Keys(d)
	if err != nil {
		return nil, err
	}
	for _, text := range keys {
		if text != "" {
			e.keys = append(e.keys, sha256.Sum256([]byte(text)))
		}
	}
	return e, nil
}

func sharesOf(m map[string]int) (all []share) {
	for name, n := range m {
		if n > 0 {
			all = append(all, share{strings.ToLower(name), n})
		}
	}
	slices.SortFunc(all, func(a, b share) int { return strings.Compare(a.name, b.name) })
	return all
}

// replace puts an endpoint into the table, nil to take it out.
func (g *Gateway) replace(k key, e *endpoint, below []*store.Doc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	present := map[string]bool{}
	for _, d := range below {
		name := strings.ToLower(d.Version)
		present[name] = true
		id := [3]string{k.workspace, k.name, name}
		p := g.table.pools[id]
		if p == nil {
			p = newPool(g.o.Secret)
			p.demand = func() { g.o.Demand(k.workspace, k.name, name) }
			g.table.pools[id] = p
		}
		x := &deployment{name: d.Version, maker: d.CreatedBy, pool: p, timeout: 5 * time.Second}
		if spec, err := serve.ParseSpec(d.Body); err == nil {
			x.timeout, x.queueWait, x.pure = spec.Timeout, spec.QueueWait, spec.Idempotent
			x.collect = spec.Collecting
			if spec.Scale.Fork > 0 {
				x.patience = spec.Startup
			}
			x.follows, x.stopped = spec.Scale.Follows, !spec.Scale.Follows && spec.Instances == 0
		}
		st, err := store.State[berth.DeploymentState](d)
		if err != nil {
			g.o.Log.Error("deployment not read", "endpoint", d.Name, "deployment", d.Version, "err", err)
		}
		x.state = st.State
		if st.Good != nil {
			x.score = st.Good.Score
		}
		p.update(st.Replicas)
		g.trackReplicas(k.workspace, p, st.Replicas)
		p.settle(st.State == berth.DeploymentFailed, st.Error)
		if e != nil {
			e.deployments[name] = x
		}
	}
	for id, p := range g.table.pools {
		if id[0] == k.workspace && id[1] == k.name && !present[id[2]] {
			p.update(nil)
			g.trackReplicas(k.workspace, p, nil)
			delete(g.table.pools, id)
			g.table.pools[[3]string{id[0], id[1], id[2] + goneMark + berth.NewGUID()}] = p
		}
	}
	for id, p := range g.table.pools { // those of deleted deployments stay until they are empty
		if isGone(id[2]) && p.empty() {
			delete(g.table.pools, id)
		}
	}
	if e == nil {
		delete(g.table.endpoints, k)
		return
	}
	g.table.endpoints[k] = e
	g.table.marks[serve.Mark(k.workspace)] = k.workspace
}

// goneMark is in the names of pools whose deployments were deleted.
const goneMark = " gone "

func isGone(name string) bool { return strings.Contains(name, goneMark) }

// poolOf is the pool of a deployment, nil if there is none.
func (g *Gateway) poolOf(workspace, endpoint, deployment string) *pool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.table.pools[[3]string{workspace, strings.ToLower(endpoint), strings.ToLower(deployment)}]
}

// Idle says whether nobody waits for an answer of the replica that is this job, and none will.
func (g *Gateway) Idle(job string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.table.pools {
		if p.busy(job) {
			return false
		}
	}
	return true
}

// choose is the deployment by the shares of the traffic; nil where none has any.
func (e *endpoint) choose() *deployment {
	at := rand.IntN(100) //nolint:gosec // not a secret
	for _, s := range e.shares {
		if at -= s.percent; at < 0 {
			return e.deployments[s.name]
		}
	}
	return nil
}
