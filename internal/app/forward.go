package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/attach"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

// Two things only the server that leads can answer: tracking, whose index and files one process has
// (removing deleted runs is part of it), and machines that connect by themselves, because the loops
// need their connections. The others pass such requests on to it.

// forwardedHeader marks a request that another server has passed on. It is not passed on again.
const forwardedHeader = "Berth-Forwarded"

// electionTime is how long a request waits for a server to lead.
const electionTime = 10 * time.Second

// errNoLeader is the answer while no server leads.
var errNoLeader = berth.Errorf(berth.Unavailable, "no server is the leader at the moment; one is elected within seconds, so try again")

// forwarder passes requests on to the server that leads.
type forwarder struct {
	a *App

	mu   sync.Mutex
	to   string // where the transports lead
	tcp  *http.Transport
	unix *http.Transport
}

// A route is how a request reaches the server that leads.
type route struct {
	here  *term             // it is this one
	there http.RoundTripper // it is another
	moved <-chan struct{}   // closed when another leads than that
}

// route finds the way of a request.
func (f *forwarder) route(r *http.Request) (route, error) {
	ctx, cancel := context.WithTimeout(r.Context(), electionTime)
	defer cancel()
	for {
		t, begins := f.a.terms.get()
		if t != nil && f.a.db.Leads() {
			return route{here: t}, nil
		}
		if r.Header.Get(forwardedHeader) != "" {
			return route{}, errNoLeader
		}
		leader, err := f.a.db.Leader(ctx)
		switch {
		case err != nil && r.Context().Err() == nil && ctx.Err() != nil:
			return route{}, errNoLeader
		case err != nil:
			return route{}, err
		case !leader.Here:
			return route{there: f.transport(r, leader.Address, leader.Socket), moved: leader.Moved}, nil
		}
		select { // this server leads, and begins, or is cut off from the database
		case <-begins:
		case <-leader.Moved:
		case <-ctx.Done():
			return route{}, errNoLeader
		}
	}
}

// transport leads to another server. What came over the socket, from this machine's user, goes on
// over the other's socket; everything else has to show its token again.
func (f *forwarder) transport(r *http.Request, address, socket string) http.RoundTripper {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.to != address+" "+socket {
		f.close()
		f.to = address + " " + socket
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(f.a.certs.CA)
		f.tcp = transportTo("tcp", address)
		f.tcp.TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}
		f.unix = transportTo("unix", socket)
	}
	if _, local := auth.From(r.Context()); local {
		return f.unix
	}
	return f.tcp
}

func transportTo(network, address string) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			d := net.Dialer{Timeout: 5 * time.Second}
			return d.DialContext(ctx, network, address)
		},
		IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: 16, MaxIdleConns: 64,
	}
}

// close lets connections go that nobody uses. The mutex is held, or nobody else is there.
func (f *forwarder) close() {
	if f.tcp != nil {
		f.tcp.CloseIdleConnections()
		f.unix.CloseIdleConnections()
	}
}

// pass passes a request on. It ends with the term of the other server.
func (f *forwarder) pass(w http.ResponseWriter, r *http.Request, way route, fail func(error)) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-way.moved:
			cancel()
		case <-ctx.Done():
		}
	}()
	scheme := "https"
	if _, local := auth.From(r.Context()); local {
		scheme = "http"
	}
	p := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = scheme, p.In.Host, p.In.Host
			p.Out.Header.Set(forwardedHeader, "1")
		},
		Transport: way.there, FlushInterval: -1,
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			f.a.log.Warn("request not forwarded to the leader", "path", r.URL.Path, "err", err)
			fail(berth.Errorf(berth.Unavailable, "the leader did not respond; another is elected within seconds, so try again"))
		},
	}
	p.ServeHTTP(w, r.WithContext(ctx))
}

// leaderTracking is the tracking service of the server that leads.
type leaderTracking struct{ *forwarder }

// Serve is [track.Service.Serve].
func (l leaderTracking) Serve(w http.ResponseWriter, r *http.Request, ws track.Workspace, who track.Caller, path string) {
	way, err := l.route(r)
	switch {
	case err != nil:
		track.Fail(w, err)
	case way.here != nil:
		way.here.tracking.Serve(w, way.here.in(r), ws, who, path)
	default:
		l.pass(w, r, way, func(err error) { track.Fail(w, err) })
	}
}

// Clean is [track.Service.Clean].
func (l leaderTracking) Clean(ctx context.Context, ws track.Workspace, user string, q berth.CleanStorage) (berth.CleanedStorage, error) {
	t, _ := l.a.terms.get()
	if t == nil || !l.a.db.Leads() {
		return berth.CleanedStorage{}, errNoLeader
	}
	return t.tracking.Clean(t.bind(ctx), ws, user, q)
}

// passOn is [api.Options.PassOn].
func (f *forwarder) passOn(w http.ResponseWriter, r *http.Request) (passed bool, err error) {
	way, err := f.route(r)
	if err != nil || way.here != nil {
		return false, err
	}
	f.pass(w, r, way, func(failed error) { err = failed })
	return err == nil, err
}

// leaderGate is the gate of the server that leads.
type leaderGate struct{ *forwarder }

// Check is [attach.Gate.Check].
func (l leaderGate) Check(workspace, name string, old, body json.RawMessage) error {
	return l.a.registry().Check(driver.Compute{Workspace: workspace, Name: name, Body: body}, old)
}

// CheckProvider is [driver.Registry.CheckProvider].
func (l leaderGate) CheckProvider(workspace, name string, body json.RawMessage) error {
	return l.a.registry().CheckProvider(driver.Compute{Workspace: workspace, Name: name, Body: body})
}

// Connect is [attach.Gate.Connect]. Nothing is passed on, nor waits for a leader, that this server
// does not know itself.
func (l leaderGate) Connect(w http.ResponseWriter, r *http.Request, token string) (failed error) {
	agent, err := attach.Authenticate(r, l.a.db, l.a.keys, token)
	if err != nil {
		return err
	}
	way, err := l.route(r)
	switch {
	case err != nil:
		return err
	case way.here != nil:
		return way.here.gate.Connect(w, way.here.in(r), agent)
	}
	l.pass(w, r, way, func(err error) { failed = err })
	return failed
}

// Drop is [attach.Gate.Drop]. The gate of another server learns by itself that a token is not good
// any more.
func (l leaderGate) Drop(d *store.Doc) {
	if t, _ := l.a.terms.get(); t != nil {
		t.gate.Drop(d)
	}
}

// reachable is the address of a listener for processes of its machine.
func reachable(l net.Listener) string {
	at, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil || !at.Addr().IsUnspecified() {
		return l.Addr().String()
	}
	return net.JoinHostPort("localhost", strconv.Itoa(int(at.Port())))
}
