// Package track is the tracking server: experiments, runs, metrics, parameters, tags, artifacts and
// the model registry in MLflow's own REST protocol. One workspace is one MLflow server.
//
// Experiments, runs and models are documents in the database, and an index of them in memory
// answers searches; points of metrics are in append-only files (package points); artifacts are
// blobs. A request that was answered with 200 is durable.
package track

import (
	"context"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// Options is what a Service is made of. All fields but Locator, Sign, Leads, KeepDeleted,
// MaxMemory and NoSync are needed.
type Options struct {
	DB    *store.DB
	Blobs *blob.Store
	// Locator finds the files of models that MLflow did not register.
	Locator locate.Locator
	// Sign makes an address at which one blob is read or written without a token, in the caller's
	// name and as long as the caller's Holder is valid. Without Sign, multipart uploads and the
	// run history's artifacts are not served.
	Sign func(Address) string
	Dir  string // where points are
	Log  *slog.Logger
	// Leads says whether no other server can have opened the points since; nil where there is none.
	Leads func() bool
	// KeepDeleted is how long runs, models and experiments are kept that were deleted; 0 is for
	// ever.
	KeepDeleted time.Duration
	// MaxMemory is how many bytes of memory what is known of runs, models and series may take, see
	// memory.go; 0 is no limit.
	MaxMemory int64
	// NoSync gives up durability for speed: for tests only.
	NoSync bool
}

// Service is the tracking of all workspaces.
type Service struct {
	Options

	mu     sync.Mutex
	spaces map[string]*workspace // by ID
	closed bool
	gone   map[string]bool  // the IDs of workspaces that were deleted
	unread map[string]int64 // about how much memory those take that are not in spaces, see memory.go

	estimated  sync.Once
	estimating sync.WaitGroup

	saidFull atomic.Int64 // when the log was told last that the disk is full, in nanoseconds

	histories turns // pieces of long histories
	drawings  turns // charts of series with falling steps
	answers   turns // large ones
	patterns  turns // searches that compare texts with patterns
	streams   turns // of metrics

	changes, largeChanges turns // what the writer of the database does
	bodies                turns // bytes of requests
}

// New returns the tracking service. Nothing is read before it is asked for.
func New(o Options) *Service {
	return &Service{
		Options: o, spaces: map[string]*workspace{}, gone: map[string]bool{},
		histories: turns{most: turnsOfUser}, drawings: turns{most: drawingsOfUser}, answers: turns{most: turnsOfUser},
		patterns: turns{most: patternsOfUser}, streams: turns{most: streamsOfUser},
		changes: turns{most: changesOfUser}, largeChanges: turns{most: largeChangesOfUser},
		bodies: turns{most: bodiesOfUser},
	}
}

// Close closes the files of all workspaces.
func (s *Service) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.estimating.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for _, w := range s.spaces {
		w.once.Do(func() { w.err = store.ErrClosed })
		if w.points != nil {
			err = errors.Join(err, w.points.Close())
		}
	}
	return err
}

// A Caller is who asks.
type Caller struct {
	User  string
	Write bool   // may change things
	Admin bool   // may change what others made
	Job   string // the job whose task asks: it sees its own run, those it makes, and their experiment
	JobID int64  // the ID of the job's document
	// Holder is what has to be good still when something that was signed for the caller is used,
	// see [auth.Authority.CheckHolder].
	Holder string
	// Full returns an error if the workspace has no room left for what the caller adds. It is
	// called for each change and batch; nil means no limit.
	Full func(context.Context) error
	// Check returns an error if a long upload, of which some bytes have arrived, must not go on:
	// the credentials of the caller have ended, or it exceeds the limit. Nil lets each go on.
	Check func(ctx context.Context, bytes int64) error
	// Azure says that the caller's client is Azure's plugin, which has addresses of artifacts in a
	// form of its own.
	Azure bool
}

// call is one request.
type call struct {
	*workspace
	who  Caller
	ctx  context.Context // of the request, for as long as it is served
	w    http.ResponseWriter
	r    *http.Request
	path string // of what a route leaves open: an id, an artifact's path
	// sent says that a part of the answer has been sent: an error breaks it off.
	sent  bool
	reads bool   // the route changes nothing
	frees bool   // it only ends things or makes them smaller
	turn  bool   // one of the user's turns to send a large answer is the call's
	body  func() // gives back the room that the body takes in memory; nil for a small one
	params
}

// A handler answers a call with something that becomes JSON; nil is for one that has answered
// itself.
type handler func(c *call) (any, error)

// empty is the answer that says nothing.
var empty = struct{}{}

// Serve answers a request to the MLflow server of a workspace. path is what follows the server's
// own address, escaped.
func (s *Service) Serve(w http.ResponseWriter, r *http.Request, ws Workspace, who Caller, path string) {
	err := s.serve(w, r, ws, who, path)
	if err == nil {
		return
	}
	if _, known := faultOf(err); !known {
		s.report("tracking", r, err)
	}
	Fail(w, err)
}

func (s *Service) serve(w http.ResponseWriter, r *http.Request, ws Workspace, who Caller, path string) error {
	route, rest, err := routeOf(r.Method, path)
	if err != nil {
		return err
	}
	if err := who.may(route); err != nil {
		return err
	}
	if err := s.leads(); err != nil { // another server may have changed what is kept here
		return err
	}
	space, err := s.open(r.Context(), ws)
	if err != nil {
		return err
	}
	if who.Job != "" {
		if own := space.run(who.Job); own == nil || own.doc == nil {
			if _, err := space.jobRunOf(r.Context(), who.Job); err != nil {
				return err
			}
		}
	}
	if route.all {
		if err := space.catchUp(r.Context()); err != nil {
			return err
		}
	}
	c := &call{workspace: space, who: who, ctx: blob.WithUser(r.Context(), who.User), w: w, r: r, path: rest, reads: route.reads, frees: route.frees}
	defer func() {
		if c.body != nil {
			c.body()
		}
	}()
	if !route.raw {
		if err := c.readParams(); err != nil {
			return err
		}
	}
	answer, err := route.do(c)
	if err != nil && c.sent {
		s.breakOff(r, err)
	}
	if err != nil || answer == nil {
		return err
	}
	if route.reads {
		if err := s.leads(); err != nil {
			return err
		}
	}
	e := encoder{c: c}
	b, done, err := e.encode(answer)
	if err != nil {
		return err
	}
	defer done()
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
	return nil
}

// breakOff ends an answer that cannot be completed.
func (s *Service) breakOff(r *http.Request, err error) {
	if _, known := faultOf(err); !known && !errors.Is(err, errGone) {
		s.report("tracking: an answer broke off", r, err)
	}
	panic(http.ErrAbortHandler) // an orderly end would make what was sent look whole
}

// leads is nil when no other server can have opened the points.
func (s *Service) leads() error {
	if s.Leads == nil || s.Leads() {
		return nil
	}
	return berth.Errorf(berth.Unavailable, "another server may have become the leader; send the request again")
}

// readParams reads the query of a GET, or the JSON of anything else. What is no JSON, and an empty
// list, are an empty object, whose parameters are missing, as in the original; other JSON that is
// no object is refused.
func (c *call) readParams() error {
	if c.r.Method == http.MethodGet && c.r.URL.RawQuery != "" {
		q, err := url.ParseQuery(c.r.URL.RawQuery)
		if err != nil {
			return invalid("The query string is malformed")
		}
		c.q = q
		return nil
	}
	if c.r.Method != http.MethodGet {
		kind := c.r.Header.Get("Content-Type")
		if kind == "" {
			return invalid("Bad Request. Content-Type header is missing.")
		}
		if t, _, err := mime.ParseMediaType(kind); err != nil || t != "application/json" {
			return invalid("Bad Request. Content-Type must be one of ['application/json'].")
		}
	}
	b, err := c.readBody(maxBody)
	if err != nil {
		return err
	}
	v, err := parseJSON(b)
	if inner, ok := v.(string); ok { // some clients send JSON in JSON
		if v, err = parseJSON([]byte(inner)); errors.Is(err, errJSON) {
			return notAnObject()
		}
	}
	if err != nil && !errors.Is(err, errJSON) {
		return err
	}
	if l, ok := v.(list); err != nil || v == nil || ok && len(l) == 0 {
		v = object{}
	}
	var ok bool
	if c.m, ok = v.(object); !ok {
		return notAnObject()
	}
	return nil
}

func notAnObject() error { return invalid("The request must be a JSON object") }

// clean reports whether an escaped path means the same to everybody.
func clean(escaped string) (string, bool) {
	p, err := url.PathUnescape(escaped)
	if err != nil || strings.Contains(strings.ToLower(escaped), "%2f") {
		return "", false
	}
	return p, true
}
