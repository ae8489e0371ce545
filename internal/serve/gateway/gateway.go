// Package gateway answers for online endpoints: it checks who calls, chooses a deployment, waits
// for a worker that is free and passes the request on.
//
// The queue is here. A worker has one request at a time, so that a replica which is stopped or dies
// has none waiting; which replicas are ready is read from the documents that package serve writes.
package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/serve"
	"github.com/berthml/berth/internal/serve/collect"
	"github.com/berthml/berth/internal/store"
)

// Options is what a Gateway is made of.
type Options struct {
	DB  *store.DB
	Log *slog.Logger
	// Keys are the keys of an endpoint, none where it has none.
	Keys func(d *store.Doc) ([]string, error)
	// Token says whether a token calls the endpoint that serve.TokenName names.
	Token func(token, endpoint string, now time.Time) error
	// User checks the token of a user.
	User func(r *http.Request) (auth.Principal, error)
	// Reach connects to replicas that are not on this machine.
	Reach serve.Reach
	// Secret is what the replica that is this job asks of everybody who calls it.
	Secret func(job string) string
	// Collect takes a sample of a request, for deployments that ask for it. Nil takes none.
	Collect func(collect.Sample)
	// Demand says that requests wait for a deployment, or come to one that follows the load.
	Demand func(workspace, endpoint, deployment string)
	// Zone is where endpoints have host names.
	Zone serve.Zone
}

// Gateway is an http.Handler for everything below berth.EndpointRoot, and at the host names of
// endpoints.
type Gateway struct {
	o       Options
	http2   http.RoundTripper // for gRPC
	loading sync.Mutex

	mu    sync.Mutex
	table route

	seen atomic.Int64 // revision of the last event that the table knows of

	stopping atomic.Bool
	inside   atomic.Int64 // requests under way
	last     atomic.Int64 // when the last one came or ended, in nanoseconds
}

// New returns a Gateway whose table is empty until Run.
func New(o Options) *Gateway {
	g := &Gateway{o: o, table: route{endpoints: map[key]*endpoint{}, pools: map[[3]string]*pool{}, marks: map[string]string{}, replicas: map[replicaKey]*pool{}}}
	g.http2 = g.newHTTP2()
	return g
}

// ServeHTTP answers a request for an endpoint.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.last.Store(time.Now().UnixNano())
	g.inside.Add(1)
	defer func() {
		g.last.Store(time.Now().UnixNano())
		g.inside.Add(-1)
	}()
	id := berth.NewGUID()
	h := w.Header()
	if g.stopping.Load() {
		h.Set("Connection", "close")
	}
	h.Set("X-Request-Id", id)
	if client := cleanID(r.Header.Get("X-Ms-Client-Request-Id")); client != "" {
		r.Header.Set("X-Ms-Client-Request-Id", client)
		h.Set("X-Ms-Client-Request-Id", client)
	} else {
		r.Header.Del("X-Ms-Client-Request-Id")
	}
	if !isToken(r.Method) { // HTTP/2 lets any text through, and the request line for a worker has it
		refuse(w, r, http.StatusBadRequest, "BadRequest", "the method of the request is not one of HTTP")
		return
	}
	k, rest, ok := g.find(r)
	if !ok {
		refuse(w, r, http.StatusNotFound, "NotFound", "there is no endpoint at this address: it is "+berth.EndpointRoot+"SUBSCRIPTION/GROUP/WORKSPACE/ENDPOINT/score")
		return
	}
	e, d, not := g.route(k, r)
	if not != nil && auth.Bearer(r.Header.Get("Authorization")) != "" && g.behind() {
		// What was changed this moment is read before it is refused: the table hears of it later.
		if err := g.load(r.Context(), k); err != nil {
			g.o.Log.Error("endpoint not read", "err", err)
			refuse(w, r, http.StatusServiceUnavailable, "ServiceUnavailable", "the endpoint cannot be read at the moment; try again")
			return
		}
		e, d, not = g.route(k, r)
	}
	if not != nil {
		if not.status == http.StatusUnauthorized {
			h.Set("WWW-Authenticate", "Bearer")
		}
		refuse(w, r, not.status, not.code, not.message)
		return
	}
	begun := time.Now()
	d.pool.stats.arrived(begun)
	if d.follows {
		d.pool.tell()
	}
	x := &exchange{g: g, d: d, w: w, r: r, asked: rest, path: d.pathOf(rest), id: id, upgrade: protocol(r)}
	defer func() { d.pool.stats.done(time.Now(), x.status, time.Since(begun)) }()
	if err := d.pool.dead(); err != nil {
		x.failed(err)
		return
	}
	if d.stopped && !d.pool.ready() {
		x.status = http.StatusServiceUnavailable
		refuse(w, r, x.status, "NoReplica", "deployment "+d.name+" is stopped: its instance_count is 0")
		return
	}
	if err := x.buffer(); err != nil {
		x.status = http.StatusBadRequest
		refuse(w, r, http.StatusBadRequest, "BadRequest", "the body of the request could not be read: "+err.Error())
		return
	}
	x.mirror(e)
	if d.collect != nil && g.o.Collect != nil && x.again {
		x.kept = &collect.Sample{Chance: rand.Float64(), Time: begun} //nolint:gosec // not a secret
	}
	if err := x.run(); err != nil {
		x.failed(err)
		return
	}
	x.collect(k, e)
}

// drainTime is how long a connection may be silent before a server that stops closes it: a client
// that sends its next request meanwhile could not know whether it was carried out.
const drainTime = 300 * time.Millisecond

// Drain has clients close their connections after the next answer, and returns when no request is
// under way and none has come for a moment, or when ctx ends.
func (g *Gateway) Drain(ctx context.Context) {
	g.stopping.Store(true)
	for ctx.Err() == nil {
		silent := time.Since(time.Unix(0, g.last.Load()))
		if g.inside.Load() == 0 && silent >= drainTime {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(drainTime-silent, 10*time.Millisecond)):
		}
	}
}

// refusal is why a request is not passed on.
type refusal struct {
	status        int
	code, message string
}

// route finds the endpoint and the deployment of a request, for who may call it.
func (g *Gateway) route(k key, r *http.Request) (*endpoint, *deployment, *refusal) {
	g.mu.Lock()
	e := g.table.endpoints[k]
	g.mu.Unlock()
	if err := g.admit(e, r); err != nil {
		status := http.StatusUnauthorized
		if berth.CodeOf(err) == berth.Denied {
			status = http.StatusForbidden
		}
		return nil, nil, &refusal{status, "Unauthorized", err.Error()}
	}
	d, why := e.pick(r.Header.Get(berth.DeploymentHeader))
	if d == nil {
		return nil, nil, &refusal{http.StatusNotFound, "NoDeployment", why}
	}
	return e, d, nil
}

// pathOf is where the replicas of a deployment take what is sent to a path of the endpoint.
func (d *deployment) pathOf(path string) string {
	if d.score != "" && path == "/score" {
		return d.score
	}
	return path
}

// find is the endpoint that a request names by its host or its path, and the path below it.
func (g *Gateway) find(r *http.Request) (k key, rest string, ok bool) {
	label, ok := g.o.Zone.Label(r.Host)
	if !ok {
		return split(r.URL)
	}
	rest = r.URL.EscapedPath()
	if rest == "" {
		rest = "/"
	}
	name, mark := g.o.Zone.Endpoint(label)
	return key{g.workspace(r, mark), name}, rest, rest[0] == '/'
}

// split is the endpoint that a path names, and the path below it.
func split(u *url.URL) (k key, rest string, ok bool) {
	path, found := strings.CutPrefix(u.EscapedPath(), berth.EndpointRoot)
	p := strings.SplitN(path, "/", 5)
	if !found || len(p) < 5 {
		return k, "", false
	}
	for i, s := range p[:4] {
		text, err := url.PathUnescape(s)
		if err != nil || text == "" || strings.Contains(text, "/") {
			return k, "", false
		}
		p[i] = text
	}
	ws := berth.Workspace{Subscription: p[0], Group: p[1], Name: p[2]}
	return key{ws.Key(), strings.ToLower(p[3])}, "/" + p[4], true
}

// errCredential is the one answer to everybody who may not call, whether there is an endpoint or
// not.
var errCredential = berth.Errorf(berth.Unauthenticated, "the key or token is not one of this endpoint, or there is no such endpoint: send Authorization: Bearer KEY")

// admit checks who calls. Keys are compared in constant time.
func (g *Gateway) admit(e *endpoint, r *http.Request) error {
	bearer := auth.Bearer(r.Header.Get("Authorization"))
	if e == nil || bearer == "" {
		return errCredential
	}
	switch e.mode {
	case "key":
		sum := sha256.Sum256([]byte(bearer))
		good := 0
		for _, want := range e.keys {
			good |= subtle.ConstantTimeCompare(sum[:], want[:])
		}
		if good != 1 {
			return errCredential
		}
	case "amltoken":
		if g.o.Token(bearer, e.token, time.Now()) != nil {
			return errCredential
		}
	default:
		p, err := g.o.User(r)
		if err != nil {
			return errCredential
		}
		if p.Task != "" {
			return berth.Errorf(berth.Denied, "the token of a task does not open endpoints")
		}
	}
	auth.Known(r.Context(), "endpoint "+e.name)
	return nil
}

// pick is the deployment a request is for.
func (e *endpoint) pick(pinned string) (d *deployment, why string) {
	if pinned != "" {
		if d := e.deployments[strings.ToLower(pinned)]; d != nil {
			return d, ""
		}
		return nil, "the header azureml-model-deployment names " + clip(pinned, 64) + ", and endpoint " + e.name +
			" has no deployment of that name. (A Python client that once named a deployment keeps sending the header, to other endpoints too: create a new MLClient.)"
	}
	if d := e.choose(); d != nil {
		return d, ""
	}
	return nil, "endpoint " + e.name + " has no deployment with traffic: give one a share with `az ml online-endpoint update --traffic`, or name one in the header azureml-model-deployment"
}

// failed answers where no worker did.
func (x *exchange) failed(err error) {
	if errors.Is(err, errBroken) {
		panic(http.ErrAbortHandler) // an orderly end would make what was sent look whole
	}
	h := x.w.Header()
	h.Set("X-Request-Id", x.id)
	h.Set(berth.DeploymentHeader, x.d.name)
	refuse := func(status int, code, message string) {
		x.status = status
		refuse(x.w, x.r, status, code, message)
	}
	dead := new(failure)
	switch {
	case errors.As(err, &dead):
		refuse(http.StatusServiceUnavailable, "DeploymentFailed", "deployment "+x.d.name+" has failed and nothing of it runs: "+firstLine(dead.why))
	case errors.Is(err, errTimeout):
		refuse(http.StatusRequestTimeout, "Timeout", "deployment "+x.d.name+" gave no answer within "+x.d.timeout.String()+" (request_timeout_ms)")
	case err == errFull || err == errSlow:
		h.Set("Retry-After", "1")
		if !x.d.pool.reachable() {
			refuse(http.StatusServiceUnavailable, "NoReplica", "deployment "+x.d.name+" has no replica that is ready; it is "+x.d.state)
			return
		}
		refuse(http.StatusTooManyRequests, "TooManyRequests", err.Error())
	case x.r.Context().Err() != nil && !isSilent(err): // nobody is there to read it
		x.status = statusClosed
		x.w.WriteHeader(statusClosed)
	case errors.Is(err, errBody):
		h.Set("Connection", "close")
		refuse(http.StatusBadRequest, "BadRequest", err.Error())
	case errors.Is(err, errNoHTTP2):
		refuse(http.StatusNotImplemented, "NotSupported", "deployment "+x.d.name+" does not speak gRPC: only servers of your own do (berth.command)")
	default:
		x.g.o.Log.Warn("request failed in a replica", "deployment", x.d.name, "request", x.id, "err", err)
		refuse(http.StatusBadGateway, "ReplicaLost", "the replica of deployment "+x.d.name+" ended while it worked on the request; whether it was carried out is not known")
	}
}

// statusClosed is counted for requests whose client did not wait for the answer.
const statusClosed = 499

// refuse answers in the form that Azure's clients can read.
func refuse(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	if isGRPC(r) {
		refuseGRPC(w, status, message)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	b, err := json.Marshal(map[string]any{"error": map[string]string{"code": code, "message": message}, "message": message})
	if err == nil {
		_, _ = w.Write(b) // the client may have gone
	}
}

// cleanID is an id of a client as far as it is one.
func cleanID(s string) string {
	return clip(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return -1
	}, s), 40)
}

func clip(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
