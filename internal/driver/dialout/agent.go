package dialout

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// Join is what an agent needs to connect: the file that `berth agent join` writes. It holds a
// secret.
type Join struct {
	Server    string          `json:"server"` // https://HOST:PORT
	Workspace berth.Workspace `json:"workspace"`
	Compute   string          `json:"compute"`
	Token     string          `json:"token"` // good for this compute only
	CA        string          `json:"ca,omitempty"`
}

// Pattern is the address where agents connect: that of each is the Path of its Join.
const Pattern = "GET " + agentsPath + "{subscription}/{group}/{workspace}/{compute}"

const agentsPath = "/runner/v1/agents/"

// Path is where an agent of a compute connects.
func (j Join) Path() string {
	w := j.Workspace
	return agentsPath + url.PathEscape(w.Subscription) + "/" + url.PathEscape(w.Group) + "/" + url.PathEscape(w.Name) + "/" + url.PathEscape(j.Compute)
}

// Place is the compute that a request to Pattern names.
func Place(r *http.Request) (ws berth.Workspace, compute string) {
	return berth.Workspace{Subscription: r.PathValue("subscription"), Group: r.PathValue("group"), Name: r.PathValue("workspace")}, r.PathValue("compute")
}

// Agent is the machine's side: it keeps a connection to the server and answers what comes over it.
type Agent struct {
	Join   Join
	Driver driver.Driver // runs the tasks
	// ID tells this machine from others that have the same token. It stays the same as long as
	// Driver knows the same tasks.
	ID   string
	Host string // what the machine calls itself
	Log  *slog.Logger
	// Connected is called each time a connection stands, and Ended when it has ended. They may be
	// nil.
	Connected, Ended func()

	handles sync.Map // of Driver, by task
	relays  *relays  // nil when tasks reach the server themselves

	// Pauses between attempts to connect grow from FirstPause to LastPause; 0 is 100 ms and 10 s.
	FirstPause, LastPause time.Duration
}

// Run keeps a connection until ctx ends, or until the server refuses this agent for good.
func (a *Agent) Run(ctx context.Context) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	first, last := a.FirstPause, a.LastPause
	if first == 0 {
		first = 100 * time.Millisecond
	}
	if last == 0 {
		last = 10 * time.Second
	}
	for pause := first; ; pause = min(2*pause, last) {
		began := time.Now()
		err := a.once(ctx, client)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was asked to end
		}
		switch berth.CodeOf(err) {
		case berth.Unauthenticated, berth.Denied, berth.Conflict, berth.Invalid, berth.Unsupported:
			return err
		}
		if time.Since(began) > last { // it was connected
			pause = first
		}
		a.Log.Warn("not connected; trying again", "server", a.Join.Server, "err", err)
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// client makes the connections, through the proxy that the environment names.
func (a *Agent) client() (*http.Transport, error) {
	u, err := url.Parse(a.Join.Server)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, berth.Errorf(berth.Invalid, "%q is not the address of a server: https://HOST:PORT", a.Join.Server)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if a.Join.CA != "" && !roots.AppendCertsFromPEM([]byte(a.Join.CA)) {
		return nil, berth.Errorf(berth.Invalid, "the server's CA certificate is not valid PEM")
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true) // only that can be upgraded
	return &http.Transport{
		Protocols: &protocols, Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: 20 * time.Second, ResponseHeaderTimeout: 20 * time.Second,
		DialContext:     (&net.Dialer{Timeout: 20 * time.Second}).DialContext,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}, nil
}

// once connects and serves until the connection ends.
func (a *Agent) once(ctx context.Context, client *http.Transport) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(a.Join.Server, "/")+a.Join.Path(), nil)
	if err != nil {
		return berth.Errorf(berth.Invalid, "the server's address: %w", err)
	}
	for k, v := range map[string]string{
		"Connection": "Upgrade", "Upgrade": Protocol, "Authorization": "Bearer " + a.Join.Token,
		HeaderID: a.ID, HeaderHost: a.Host, HeaderVersion: berth.Version,
	} {
		req.Header.Set(k, v)
	}
	res, err := client.RoundTrip(req)
	if err != nil {
		return berth.Errorf(berth.Unavailable, "reaching the server: %w", err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		return refusal(res)
	}
	body, ok := res.Body.(io.ReadWriteCloser)
	if !ok {
		res.Body.Close()
		return berth.Errorf(berth.Internal, "the connection was not upgraded")
	}
	a.Log.Info("connected", "server", a.Join.Server, "compute", a.Join.Compute)
	if a.Connected != nil {
		a.Connected()
	}
	if a.Ended != nil {
		defer a.Ended()
	}
	return a.Serve(ctx, body)
}

// refusal is the error of an answer that is not an upgrade.
func refusal(res *http.Response) error {
	defer res.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	var told struct {
		Error struct{ Message string }
	}
	msg := "the server answered " + res.Status
	if json.Unmarshal(b, &told) == nil && told.Error.Message != "" {
		msg = told.Error.Message
	}
	return &berth.Error{Code: berth.CodeOfHTTP(res.StatusCode), Msg: msg}
}

// Serve answers the server's requests over a connection until it ends.
func (a *Agent) Serve(ctx context.Context, c io.ReadWriteCloser) error {
	l := newLink(stream{c})
	defer l.Close()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{
		Handler: a.handler(), Protocols: &protocols, ReadHeaderTimeout: 20 * time.Second,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, SendPingTimeout: pingAfter, PingTimeout: pingWait,
			// A connection that is relayed and not read must not take the room of the calls.
			MaxReceiveBufferPerStream: 256 << 10, MaxReceiveBufferPerConnection: 128 << 20,
		},
		ErrorLog:    slog.NewLogLogger(a.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	defer srv.Close()
	if err := srv.Serve(&oneConn{link: l}); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, http.ErrServerClosed) {
		return berth.Errorf(berth.Unavailable, "%w", err)
	}
	return berth.Errorf(berth.Unavailable, "the connection was cut")
}

// oneConn is a listener that hands out one connection, and ends when that is closed.
type oneConn struct {
	link  *link
	given bool
}

func (o *oneConn) Accept() (net.Conn, error) {
	if !o.given {
		o.given = true
		return o.link, nil
	}
	<-o.link.closed
	return nil, io.EOF
}

func (o *oneConn) Close() error   { return o.link.Close() }
func (o *oneConn) Addr() net.Addr { return addr{} }

// handler answers the calls with the agent's own driver.
func (a *Agent) handler() http.Handler {
	d := a.Driver
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+relayPath, a.relay)
	if d == nil {
		return mux // see ServeRelay
	}
	mux.HandleFunc("POST "+dialPath, a.dial)
	answer(mux, "GET /probe", func(ctx context.Context, _ struct{}) (driver.Info, error) { return d.Probe(ctx) })
	answer(mux, "GET /tasks", func(ctx context.Context, _ struct{}) ([]driver.Observed, error) { return d.Observe(ctx) })
	answer(mux, "POST /start", func(ctx context.Context, l berth.Launch) (struct{}, error) {
		h, err := d.Start(ctx, a.here(l))
		if err == nil {
			a.handles.Store(l.Task, h)
		}
		return struct{}{}, err
	})
	answer(mux, "POST /stop", func(ctx context.Context, r stopRequest) (struct{}, error) {
		return struct{}{}, a.about(ctx, r.Task, func(h driver.Handle) error {
			return d.Stop(ctx, h, driver.Stop{Grace: r.Grace, Cause: r.Cause, Why: r.Why})
		})
	})
	answer(mux, "POST /remove", func(ctx context.Context, r removeRequest) (struct{}, error) {
		err := a.about(ctx, r.Task, func(h driver.Handle) error { return d.Remove(ctx, h) })
		if err == nil {
			a.handles.Delete(r.Task)
		}
		return struct{}{}, err
	})
	return mux
}

// about finds a task's handle and calls f with it. A task that is not there is success, as the
// contract says of Stop and Remove.
func (a *Agent) about(ctx context.Context, id berth.TaskID, f func(driver.Handle) error) error {
	if h, ok := a.handles.Load(id); ok {
		return f(h.(driver.Handle))
	}
	all, err := a.Driver.Observe(ctx)
	if err != nil {
		return err
	}
	for _, o := range all {
		if o.Task == id {
			return f(o.Handle)
		}
	}
	return nil
}

// here is a launch as it is right on this machine: the server is where this agent reaches it, and
// none of the server's own directories are here.
func (a *Agent) here(l berth.Launch) berth.Launch {
	l.LogFile, l.Keep = "", ""
	return l.At(a.Join.Server)
}

// answer makes a handler of a function from a JSON body to another.
func answer[In, Out any](mux *http.ServeMux, pattern string, f func(context.Context, In) (Out, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var in In
		if r.Method == http.MethodPost {
			if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&in); err != nil {
				fail(w, berth.Errorf(berth.Invalid, "the body of %s is not understood: %w", r.URL.Path, err))
				return
			}
		}
		ctx := r.Context()
		if text := r.Header.Get(headerTerm); text != "" {
			term, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				fail(w, berth.Errorf(berth.Invalid, "the header %s is not a number: %w", headerTerm, err))
				return
			}
			ctx = berth.WithTermProof(berth.WithTerm(ctx, term), r.Header.Get(headerTermProof))
		}
		out, err := f(ctx, in)
		if err != nil {
			fail(w, err)
			return
		}
		b, err := json.Marshal(out)
		if err != nil {
			fail(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(b) // if the server is gone it asks again
	})
}

func fail(w http.ResponseWriter, err error) {
	code := berth.CodeOf(err)
	b, merr := json.Marshal(failure{Code: code, Msg: err.Error()})
	if merr != nil {
		b = fmt.Appendf(nil, `{"code":%q}`, code)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code.HTTPStatus())
	_, _ = w.Write(b)
}
