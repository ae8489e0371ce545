// Package api is the HTTP front door: Azure ML's v2 REST tree over one table of resources, the
// identity endpoint, run history, event and log streams, and the runner's own calls. Handlers write
// intent into the store; they start nothing themselves.
package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/blob/front"
	"github.com/berthml/berth/internal/filewatch"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/metrics"
	"github.com/berthml/berth/internal/ordered"
	"github.com/berthml/berth/internal/pace"
	"github.com/berthml/berth/internal/sched"
	"github.com/berthml/berth/internal/serve"
	"github.com/berthml/berth/internal/store"
)

// Options is what a Server is made of. Fields that may be left out say so.
type Options struct {
	DB        *store.DB
	Blobs     *blob.Store
	Front     *front.Handler // the Azure Blob subset
	Authority *auth.Authority
	Signer    *front.Signer
	Watcher   *filewatch.Watcher
	Log       *slog.Logger
	// Locator says where the server and its storage are, as clients see them.
	locate.Locator
	Location string
	// CABundle is where clients of this machine find the CA.
	CABundle string
	// CA is the certificate authority itself, PEM, for machines that join.
	CA string
	// Curated is the environment behind a name that is always there.
	Curated func(name string) (berth.LaunchEnv, bool)
	// CuratedNames are the names of those that Azure publishes.
	CuratedNames func() []string
	// NearestCurated is the name like that which is always there, or empty.
	NearestCurated func(name string) string
	// Default is the workspace a client gets that names none.
	Default berth.Workspace
	// QuotaDefault is how many vCPUs of a family a workspace may have where no limit says anything;
	// 0 is no end.
	QuotaDefault int
	// WorkspaceStorage is how many bytes a workspace may store where its tags say nothing; 0 is no
	// end.
	WorkspaceStorage int64
	// Points lists the files of the points of metrics of a workspace, see [track.PointFiles]. Nil
	// knows of none.
	Points func(id string) ([]fs.FileInfo, error)
	// Slots is how many tasks this machine itself runs at once.
	Slots int
	// Local is on which terms jobs run on this machine itself.
	Local berth.LocalTerms
	// ImagesOnHost says that jobs that name only an image may run without a container.
	ImagesOnHost bool
	// Machine is what this machine has: sizes larger than it are overcommitted, or refused.
	Machine sched.Machine
	// FromTask says whether a request comes from a process of a task on this machine. Nil knows of
	// none.
	FromTask func(*http.Request) bool
	// Instances is the way to compute instances; the zero value is for a server that has none.
	Instances Instances
	// Tasks is the way to tasks that run; the zero value reaches none.
	Tasks Tasks
	// Loopback is the origin of the listener for the owner's browser, "" where there is none: see
	// LoopbackHandler.
	Loopback string
	// Followers is how many logs and streams of events may be followed at once; 0 is no end.
	Followers int
	// Patience is how long a follower may take nothing of what it is sent; 0 is the usual time.
	Patience time.Duration
	// Pace is how slowly bodies may come; the zero value is the usual one.
	Pace pace.Pace
	// Attached looks after machines that connect by themselves. Nil attaches none.
	Attached Attached
	// Tracking is the MLflow servers of the workspaces.
	Tracking Tracking
	// PassOn sends a request to the server that leads, which answers it. It returns false, and
	// does nothing, on that server itself. Nil is for a server that always leads.
	PassOn func(w http.ResponseWriter, r *http.Request) (passed bool, err error)
	// KindOf is the kind of a jobType; nil is kind.Of.
	KindOf func(jobType string) (kind.Kind, error)
	// Program opens the server's own program by its hash, for nodes that have none. Nil gives out
	// nothing.
	Program func(hash string) (io.ReadSeekCloser, error)
	// Endpoints answers for online endpoints, below berth.EndpointRoot and at the host names of
	// EndpointZone. Nil answers nothing.
	Endpoints    http.Handler
	EndpointZone serve.Zone
	// Serving is what was counted of the requests for a deployment. Nil counts none.
	Serving func(workspace, endpoint, deployment string) berth.ServingStats
	// ReplicaUsage is what a replica used when it was last measured. Nil measures none.
	ReplicaUsage func(workspace, job string) berth.Usage
	// Metrics write what other parts of the server count.
	Metrics []func(*metrics.Writer)
}

// Server answers the API: it lets requests in, finds out who sends them, and hands them to a
// service.
type Server struct {
	Options
	services
	mux           *http.ServeMux
	subscriptions http.Handler // /subscriptions/…, whose segments are compared without case
	gate          *gate
	requests      *requests
}

// New returns the front door.
func New(o Options) *Server {
	s := &Server{Options: o, mux: http.NewServeMux(), gate: newGate()}
	if s.Attached == nil {
		s.Attached = noneAttached{}
	}
	if s.KindOf == nil {
		s.KindOf = kind.Of
	}
	s.assemble()
	s.routes()
	return s
}

// EnsureWorkspace creates a workspace unless it exists: its storage, its datastores and the compute
// `local`.
func (s *Server) EnsureWorkspace(ctx context.Context, ws berth.Workspace, by string) error {
	return s.workspaces.ensureWorkspace(ctx, ws, by)
}

// Samples writes what tasks use, as their runners report it, until ctx ends. Where it does not run,
// each report is written as it comes.
func (s *Server) Samples(ctx context.Context) error { return s.runners.writeSamples(ctx) }

// ServeHTTP answers a request and counts it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin, answer := time.Now(), &statusWriter{ResponseWriter: w}
	route, method := s.requests.route(r.URL.Path), r.Method
	switch {
	case s.isHosted(r):
		route = s.requests.route(berth.EndpointRoot)
	case s.Front.Match(r):
		route = s.requests.route("blob")
	}
	defer func() {
		if answer.status != 0 { // else the connection was handed over, or nobody was there any more
			s.requests.count(route, method, answer.status, time.Since(begin))
		}
	}()
	s.admit(answer, r)
}

// admit answers a request, unless the server is stopping.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) {
	r = pace.Limit(w, r, cmp.Or(s.Pace, pace.Stream))
	defer pace.End(r)
	if p := r.URL.Path; (p == "/healthz" || p == "/readyz") && !s.isHosted(r) {
		s.mux.ServeHTTP(w, r) // those who watch over a server ask also while it stops
		return
	}
	if !s.gate.enter() {
		w.Header().Set("Connection", "close")
		if s.isScoring(r) { // clients of models do not expect to be refused; their connections are waited for
			s.route(w, r)
			return
		}
		s.fail(w, r, errStopping)
		return
	}
	defer s.gate.leave()
	s.route(w, r)
}

// isScoring says whether a request is for an online endpoint.
func (s *Server) isScoring(r *http.Request) bool {
	return s.Endpoints != nil && strings.HasPrefix(r.URL.Path, berth.EndpointRoot) || s.isHosted(r)
}

// isHosted says whether a request is for the host name of an online endpoint: then its path is the
// endpoint's, whatever it is.
func (s *Server) isHosted(r *http.Request) bool {
	_, ok := s.EndpointZone.Label(r.Host)
	return ok && s.Endpoints != nil
}

// route takes blob requests around the mux, which would clean their names.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	if s.isHosted(r) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		s.Endpoints.ServeHTTP(w, r)
		return
	}
	if s.Front.Match(r) {
		s.Front.ServeHTTP(w, r)
		return
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if strings.HasPrefix(r.URL.Path, instancePath) {
		s.instances.proxy(w, r)
		return
	}
	if strings.HasPrefix(r.URL.Path, berth.ServiceRoot) {
		s.instances.service(w, r)
		return
	}
	if s.isScoring(r) {
		s.Endpoints.ServeHTTP(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Header.Get("Origin") != "" && !s.sameOrigin(r.Header.Get("Origin")) {
		s.fail(w, r, berth.Errorf(berth.Denied, "requests from pages of %s are not accepted", r.Header.Get("Origin")))
		return
	}
	if strings.HasPrefix(r.URL.Path, berth.TrackingRoot) {
		s.tracking.track(w, r)
		return
	}
	if isMLflow(r.URL.Path) {
		s.tracking.fail(w, errNoWorkspace)
		return
	}
	if first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); strings.EqualFold(first, "subscriptions") {
		s.subscriptions.ServeHTTP(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

func (s *Server) sameOrigin(origin string) bool { return strings.EqualFold(origin, s.BaseURL) }

// call is one authenticated request.
type call struct {
	s    *Server
	w    http.ResponseWriter
	r    *http.Request
	who  auth.Principal
	ws   berth.Workspace
	q    url.Values
	now  time.Time
	sent bool
	// latest is the newest versions of assets as far as they were looked up, by collection and
	// name.
	latest map[string]string
	// received is the body as it was sent, once it was read.
	received []byte
	// made is what a client would make before the job that is planned, by madeKey.
	made map[string]json.RawMessage
}

func (c *call) ctx() context.Context { return c.r.Context() }

// guard authenticates a user and hands a call to h. Runners have their own calls; a reader's may
// only ask.
func (s *Server) guard(h func(*call) error) http.Handler {
	return s.authenticate(func(c *call) error {
		if c.who.Task != "" {
			return berth.Errorf(berth.Denied, "a task's token opens its own task only")
		}
		if c.who.Role == auth.Reader && !s.isReadOnly(c.r) {
			return berth.Errorf(berth.Denied, "the token %q may only read", c.who.Token)
		}
		return h(c)
	})
}

// authenticate finds out who calls.
func (s *Server) authenticate(h func(*call) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := s.principal(r)
		if err != nil {
			w.Header().Set("WWW-Authenticate", challenge)
			s.fail(w, r, err)
			return
		}
		s.serve(w, r, p, h)
	})
}

// challenge tells who is nobody how to say who they are.
const challenge = `Bearer realm="berth"`

// principal is who sends a request.
func (s *Server) principal(r *http.Request) (auth.Principal, error) {
	if p, ok := auth.From(r.Context()); ok { // the local socket has authenticated already
		return p, nil
	}
	return s.Authority.Check(r.Context(), auth.Bearer(r.Header.Get("Authorization")), time.Now())
}

// dataQuestions are the POSTs of the data plane with which clients ask questions: their last
// segment, by the first.
var dataQuestions = map[string]string{"history": "rundata", "data": "batchGetResolvedUris", "modelregistry": "batchGetResolvedUris"}

// isReadOnly is true for requests that change nothing: GET, HEAD, and the POSTs with which clients
// ask questions. Secrets are not among them.
func (s *Server) isReadOnly(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return true
	case http.MethodPost:
	default:
		return false
	}
	p, err := segments(r.URL.EscapedPath())
	n := len(p)
	if err != nil || n < 3 {
		return false
	}
	if q := dataQuestions[strings.ToLower(p[0])]; q != "" {
		return fold(p, n-1, q) && !fold(p, n-2, "runs")
	}
	// …/workspaces/{name}/{collection}/{name}[/{child}/{name}]/{question}
	if n != 11 && n != 13 || !fold(p, 0, "subscriptions") || !fold(p, 6, "workspaces") {
		return false
	}
	row := s.docs.row(p[8])
	return row != nil && (n == 11 || row.Child != "" && fold(p, 10, row.Child)) && slices.Contains(row.Questions, strings.ToLower(p[n-1]))
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, p auth.Principal, h func(*call) error) {
	c := &call{s: s, w: w, r: r, who: p, q: r.URL.Query(), now: s.DB.Now()}
	if err := h(c); err != nil {
		if c.sent {
			if berth.CodeOf(err) == berth.Internal { // others are no fault of ours, as the stop of this server or a token revoked
				s.Log.Error("answer broke off", "path", r.URL.Path, "err", err)
			}
			panic(http.ErrAbortHandler) // an orderly end would make what was sent look whole
		}
		s.fail(w, r, err)
	}
}

// usersError is Azure's word for whatever the one who asks could mend; which of these it is, is
// said further inside.
const usersError = "UserError"

var inners = map[berth.Code]string{berth.NotFound: "NotFound", berth.Invalid: "BadArgument"}

// fail answers with an Azure-shaped error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var e *berth.Error
	switch coded := errors.As(err, &e); {
	case !coded && r.Context().Err() != nil && errors.Is(err, r.Context().Err()):
		// As a rule nobody is there to read it. Whoever is must not take silence for success.
		e = berth.Errorf(berth.Unavailable, "the request was cut off before it was answered; whether it was carried out is not known")
	case !coded:
		id := berth.NewGUID()
		s.Log.Error("internal error", "request", id, "method", r.Method, "path", r.URL.Path, "err", err)
		e = &berth.Error{Code: berth.Internal, Msg: "an internal error; the server's log has it under request " + id}
	}
	told := map[string]any{"code": e.WireCode(), "message": clip(jsonErrorText(e)), "details": []any{}}
	inner := inners[e.Code]
	if e.Code == berth.Invalid && berth.IsMissing(e) {
		inner = inners[berth.NotFound]
	}
	if inner != "" && e.WireCode() == usersError {
		told["additionalInfo"] = []any{map[string]any{"type": "InnerError", "info": map[string]any{"value": map[string]any{"code": inner, "innerError": nil}}}}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("x-ms-error-code", e.WireCode())
	status := e.Code.HTTPStatus()
	if e.Wire == wrongMethod {
		status = http.StatusMethodNotAllowed
	}
	if errors.Is(err, errStopping) || errors.Is(err, errCrowded) {
		w.Header().Set("Retry-After", retrySeconds)
	}
	drainBody(w, r)
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"error": told}) //nolint:errcheck // the client has gone
}

// maxMessage bounds an error's message: it may name what was sent, and does not send it back.
const maxMessage = 4 << 10

func clip(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + " …"
}

// send answers with JSON.
func (c *call) send(status int, v any) error {
	b, err := ordered.Marshal(v)
	if err != nil {
		return err
	}
	return c.sendJSON(status, b)
}

// sendJSON answers with what is encoded already.
func (c *call) sendJSON(status int, b []byte) error {
	c.sent = true
	c.w.Header().Set("Content-Type", "application/json; charset=utf-8")
	c.w.Header().Set("Content-Length", strconv.Itoa(len(b))) // a reader can make room for it
	drainBody(c.w, c.r)
	c.w.WriteHeader(status)
	_, err := c.w.Write(b)
	return err
}

// empty answers without a body.
func (c *call) empty(status int) error {
	c.sent = true
	drainBody(c.w, c.r)
	c.w.WriteHeader(status)
	return nil
}

// drainBody reads what a handler left of a small body, if it comes soon. Over HTTP/2 an answer that
// overtakes the body resets the stream, and some clients then lose the answer; HTTP/1 does the same
// by itself.
func drainBody(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor < 2 || r.Body == nil || r.Body == http.NoBody {
		return
	}
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(time.Now().Add(time.Second)) != nil {
		return
	}
	io.CopyN(io.Discard, r.Body, 256<<10) //nolint:errcheck // the answer is what counts
	rc.SetReadDeadline(time.Time{})       //nolint:errcheck // as above
}

// body reads a JSON object; numbers keep their text.
func (c *call) body() (map[string]any, error) {
	var m map[string]any
	if _, err := c.document(&m, "a JSON object"); err != nil {
		return nil, err
	}
	if m == nil {
		return nil, berth.Errorf(berth.Invalid, "the body is empty or null; a JSON object is needed")
	}
	c.sealAddresses(m, c.who.User)
	return m, checkLimits(m)
}

// into reads a JSON body into v; an empty body leaves v alone.
func (c *call) into(v any) error {
	_, err := c.document(v, "the JSON this call takes")
	return err
}

// serverInfo tells clients of ours what they talk to.
func (s *Server) serverInfo(c *call) error {
	servers, err := s.DB.Servers(c.ctx())
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, map[string]any{
		"version": berth.Version, "url": s.BaseURL, "location": s.Location, "caBundle": s.CABundle,
		"workspace": s.Default, "rev": s.DB.Rev(), "user": c.who.User, "role": c.who.Role, "trouble": s.health.trouble(), "unlimited": s.Machine.Unlimited,
		"servers": servers,
	})
}
