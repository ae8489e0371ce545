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
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/serve"
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
	// Secret is what the replica that is this job asks of everybody who calls it.
	Secret func(job string) string
	// Demand says that requests wait for a deployment, or come to one that follows the load.
	Demand func(workspace, endpoint, deployment string)
}

// Gateway is an http.Handler for everything below berth.EndpointRoot.
type Gateway struct {
	o       Options
	proxy   *httputil.ReverseProxy
	client  http.RoundTripper
	loading sync.Mutex

	mu    sync.Mutex
	table route

	seen atomic.Int64 // revision of the last event that the table knows of
}

// New returns a Gateway whose table is empty until Run.
func New(o Options) *Gateway {
	g := &Gateway{o: o, table: route{endpoints: map[key]*endpoint{}, pools: map[[3]string]*pool{}}}
	g.client = &http.Transport{
		DialContext: g.dial, MaxIdleConnsPerHost: 64, DisableCompression: true,
		// Shorter than the worker's, so that it is this end which closes.
		// Workers rest when there are no connections.
		IdleConnTimeout: 4 * time.Second, MaxResponseHeaderBytes: 64 << 10, ReadBufferSize: 16 << 10, WriteBufferSize: 16 << 10,
	}
	g.proxy = &httputil.ReverseProxy{
		Rewrite: g.rewrite, Transport: forwarder{g}, FlushInterval: -1, ModifyResponse: g.finish, ErrorHandler: g.failed,
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug), BufferPool: &buffers{},
	}
	return g
}

// buffers are the buffers with which bodies are copied.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if x, ok := b.pool.Get().(*[]byte); ok {
		return *x
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(x []byte) { b.pool.Put(&x) }

// ServeHTTP answers a request below berth.EndpointRoot.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := berth.NewGUID()
	h := w.Header()
	h.Set("X-Request-Id", id)
	if client := cleanID(r.Header.Get("X-Ms-Client-Request-Id")); client != "" {
		r.Header.Set("X-Ms-Client-Request-Id", client)
		h.Set("X-Ms-Client-Request-Id", client)
	} else {
		r.Header.Del("X-Ms-Client-Request-Id")
	}
	k, rest, ok := split(r.URL)
	if !ok {
		refuse(w, http.StatusNotFound, "NotFound", "there is no endpoint at this address: it is "+berth.EndpointRoot+"SUBSCRIPTION/GROUP/WORKSPACE/ENDPOINT/score")
		return
	}
	e, d, not := g.route(k, r)
	if not != nil && auth.Bearer(r.Header.Get("Authorization")) != "" && g.behind() {
		// What was changed this moment is read before it is refused: the table hears of it later.
		if err := g.load(r.Context(), k); err != nil {
			g.o.Log.Error("endpoint not read", "err", err)
			refuse(w, http.StatusServiceUnavailable, "ServiceUnavailable", "the endpoint cannot be read at the moment; try again")
			return
		}
		e, d, not = g.route(k, r)
	}
	if not != nil {
		if not.status == http.StatusUnauthorized {
			h.Set("WWW-Authenticate", "Bearer")
		}
		refuse(w, not.status, not.code, not.message)
		return
	}
	begun := time.Now()
	d.pool.stats.arrived(begun)
	if d.follows {
		d.pool.tell()
	}
	x := &exchange{g: g, d: d, path: rest, id: id}
	defer func() { d.pool.stats.done(time.Now(), x.status, time.Since(begun)) }()
	if !d.pool.ready() && d.state == berth.DeploymentFailed {
		x.status = http.StatusServiceUnavailable
		refuse(w, http.StatusServiceUnavailable, "DeploymentFailed", "deployment "+d.name+" has failed and nothing of it runs: "+firstLine(d.why))
		return
	}
	if d.stopped && !d.pool.ready() {
		x.status = http.StatusServiceUnavailable
		refuse(w, x.status, "NoReplica", "deployment "+d.name+" is stopped: its instance_count is 0")
		return
	}
	if err := x.buffer(r); err != nil {
		x.status = http.StatusBadRequest
		refuse(w, http.StatusBadRequest, "BadRequest", "the body of the request could not be read: "+err.Error())
		return
	}
	x.mirror(e, r)
	ctx, cancel := context.WithCancelCause(context.WithValue(r.Context(), exchangeKey{}, x))
	defer cancel(nil)
	x.cancel = cancel
	h.Del("X-Request-Id") // the answer of the worker is given ours below
	g.proxy.ServeHTTP(w, r.WithContext(ctx))
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

// split is the endpoint that an address names, and the path below it.
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

// rewrite makes the request for the worker of the one that came in.
func (g *Gateway) rewrite(p *httputil.ProxyRequest) {
	x := p.In.Context().Value(exchangeKey{}).(*exchange) //nolint:forcetypeassert // set above
	out := p.Out
	out.URL.Scheme, out.URL.Host = "http", "worker" // which one is chosen later
	out.URL.RawPath = x.path
	out.URL.Path, _ = url.PathUnescape(x.path)
	p.SetXForwarded()
	x.outgoing(out.Header)
}

// outgoing takes out of a request what is not for the model, and what it must not see.
func (x *exchange) outgoing(h http.Header) {
	for _, name := range []string{"Authorization", "Cookie", berth.DeploymentHeader, secretHeader, serve.NonceHeader} {
		h.Del(name)
	}
	h.Set("X-Request-Id", x.id)
}

// finish makes the answer to the client of a worker's.
func (g *Gateway) finish(resp *http.Response) error {
	x := resp.Request.Context().Value(exchangeKey{}).(*exchange) //nolint:forcetypeassert // as above
	// The answer is from the server's own address: it may not act there as a page of the server.
	for _, name := range []string{"Set-Cookie", "Clear-Site-Data", "Service-Worker-Allowed", serve.ProofHeader} {
		resp.Header.Del(name)
	}
	resp.Header.Set("Content-Security-Policy", "sandbox")
	resp.Header.Set("X-Request-Id", x.id)
	resp.Header.Set(berth.DeploymentHeader, x.d.name)
	defer func() { x.status = resp.StatusCode }()
	if resp.StatusCode >= http.StatusBadRequest {
		resp.Header.Set("Ms-Azureml-Model-Error-Statuscode", strconv.Itoa(resp.StatusCode))
		resp.Header.Set("Ms-Azureml-Model-Error-Reason", "model_error")
		resp.StatusCode = http.StatusFailedDependency
	}
	return nil
}

// failed answers where no worker did.
func (g *Gateway) failed(w http.ResponseWriter, r *http.Request, err error) {
	x := r.Context().Value(exchangeKey{}).(*exchange) //nolint:forcetypeassert // as above
	w.Header().Set("X-Request-Id", x.id)
	w.Header().Set(berth.DeploymentHeader, x.d.name)
	refuse := func(w http.ResponseWriter, status int, code, message string) {
		x.status = status
		refuse(w, status, code, message)
	}
	switch cause := context.Cause(r.Context()); {
	case cause == errTimeout:
		refuse(w, http.StatusRequestTimeout, "Timeout", "deployment "+x.d.name+" gave no answer within "+x.d.timeout.String()+" (request_timeout_ms)")
	case err == errFull || err == errSlow:
		w.Header().Set("Retry-After", "1")
		if !x.d.pool.ready() {
			refuse(w, http.StatusServiceUnavailable, "NoReplica", "deployment "+x.d.name+" has no replica that is ready; it is "+x.d.state)
			return
		}
		refuse(w, http.StatusTooManyRequests, "TooManyRequests", err.Error())
	case r.Context().Err() != nil: // nobody is there to read it
		x.status = statusClosed
		w.WriteHeader(statusClosed)
	default:
		g.o.Log.Warn("request failed in a replica", "deployment", x.d.name, "request", x.id, "err", err)
		refuse(w, http.StatusBadGateway, "ReplicaLost", "the replica of deployment "+x.d.name+" ended while it worked on the request; whether it was carried out is not known")
	}
}

// statusClosed is counted for requests whose client did not wait for the answer.
const statusClosed = 499

// refuse answers in the form that Azure's clients can read.
func refuse(w http.ResponseWriter, status int, code, message string) {
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

// discard reads a body, so that its connection can be used again.
func discard(b io.Reader) {
	io.CopyN(io.Discard, b, 1<<20) //nolint:errcheck // nobody wants it
}
