package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/devbox"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// instanceCall is a call for an instance or one of its applications.
type instanceCall struct{ *call }

// instanceService serves the applications of compute instances, and the services of jobs.
type instanceService struct {
	db        *store.DB
	authority *auth.Authority
	links     openLinks
	front     *Server
}

// The way into an instance:
// /berth/instances/{subscription}/{group}/{workspace}/{instance}/{application}/…, with the user's
// token or with a cookie that was got for it. Requests go to the agent of the instance, over its
// socket; nothing of it listens elsewhere.

// instancePath is where the applications of instances are.
const instancePath = "/berth/instances/"

const (
	instanceCookie = "berth_instance"
	cookieLife     = 12 * time.Hour
	sshProtocol    = "berth-ssh"
)

// Instances is how the front door reaches instances.
type Instances struct {
	// Dir holds their directories, see devbox.Dir.
	Dir string
	// Dial opens a stream to the agent of the instance in dir: to one of its applications, or to
	// "ssh".
	Dial func(ctx context.Context, dir, to string) (net.Conn, error)
}

// entry is a request for an instance, taken apart.
type entry struct {
	doc    *store.Doc
	it     berth.InstanceState
	prefix string // of the instance, canonical
	app    string
	rest   string // escaped, with its slash
	bearer string // what the caller is known by
}

// proxy serves everything below instancePath. It does not go through the mux, which would clean the
// paths of applications.
func (s *instanceService) proxy(w http.ResponseWriter, r *http.Request) {
	prefix := func(ws berth.Workspace, name string) string { return devbox.Prefix(ws.Key(), name) }
	s.enter(w, r, instancePath, prefix, func(c instanceCall, name string, e entry) error {
		if err := c.instance(name, &e); err != nil {
			return err
		}
		if e.app == "ssh" {
			return c.tunnel(e)
		}
		return c.forward(e)
	})
}

// enter takes an address below root apart, SUBSCRIPTION/GROUP/WORKSPACE/NAME/APPLICATION, lets its
// caller in, whose cookies are for what prefix returns, and calls then.
func (s *instanceService) enter(w http.ResponseWriter, r *http.Request, root string, prefix func(ws berth.Workspace, name string) string,
	then func(c instanceCall, name string, e entry) error,
) {
	parts := strings.SplitN(strings.TrimPrefix(r.URL.EscapedPath(), root), "/", 6)
	head, err := segments(strings.Join(parts[:min(5, len(parts))], "/"))
	if err != nil || len(head) < 5 || unclean(r.URL.EscapedPath()) {
		s.front.fail(w, r, notFound(&call{r: r}))
		return
	}
	ws := berth.Workspace{Subscription: head[0], Group: head[1], Name: head[2]}
	e := entry{prefix: prefix(ws, head[3]), app: head[4]}
	if len(parts) > 5 {
		e.rest = "/" + parts[5]
	}
	p, bearer, err := s.enterer(r, e.prefix)
	e.bearer = bearer
	if err != nil {
		w.Header().Set("WWW-Authenticate", `Bearer realm="berth"`)
		s.front.fail(w, r, err)
		return
	}
	s.front.serve(w, r, p, func(c *call) error {
		if err := c.s.workspaces.enter(c, ws); err != nil {
			return err
		}
		return then(instanceCall{c}, head[3], e)
	})
}

// unclean says whether a path could mean another one to somebody who tidies it.
func unclean(escaped string) bool {
	for part := range strings.SplitSeq(escaped, "/") {
		p, err := url.PathUnescape(part)
		if err != nil || p == "." || p == ".." || strings.ContainsAny(p, "\x00\\") {
			return true
		}
		for sub := range strings.SplitSeq(p, "/") { // of an escaped slash
			if sub == ".." {
				return true
			}
		}
	}
	return false
}

// enterer is who makes a request for what is below a path: the local socket's owner, the bearer of
// a token, or of a cookie for that path.
func (s *instanceService) enterer(r *http.Request, prefix string) (p auth.Principal, bearer string, err error) {
	if p, ok := auth.From(r.Context()); ok {
		return p, "", nil
	}
	bearer = auth.Bearer(r.Header.Get("Authorization"))
	if bearer == "" {
		if c, err := r.Cookie(instanceCookie); err == nil {
			if bearer = s.authority.Keys.OpenPass(c.Value, "cookie "+prefix, time.Now()); bearer == "" {
				return p, "", berth.Errorf(berth.Unauthenticated, "your session is over; open this again with `berth open NAME`")
			}
			// A page of another origin makes the browser send the cookie along; what it says about
			// itself gives it away. One of the same site is another origin too: another port of
			// this machine, or another name of its domain.
			if o := r.Header.Get("Origin"); o != "" && !s.front.ownOrigin(r, o) {
				return p, "", berth.Errorf(berth.Denied, "requests from pages of %s are not accepted", o)
			}
			switch site := r.Header.Get("Sec-Fetch-Site"); site {
			case "", "same-origin", "none":
			default:
				return p, "", berth.Errorf(berth.Denied, "requests from pages of other origins are not accepted; open this with `berth open NAME`")
			}
		}
	}
	if bearer == "" {
		return p, "", berth.Errorf(berth.Unauthenticated, "open this with `berth open NAME`, or send your token in an Authorization header")
	}
	p, err = s.authority.Check(r.Context(), bearer, time.Now())
	return p, bearer, err
}

// instance finds the instance and lets in whose it is, and administrators.
func (c instanceCall) instance(name string, e *entry) error {
	d, err := c.s.docs.load(c.call, c.s.docs.row("computes"), name, "")
	if err != nil {
		return err
	}
	st, err := target.State(d)
	if err != nil {
		return err
	}
	if st.Instance == nil {
		return berth.Errorf(berth.NotFound, "compute %s is not a compute instance", d.Name)
	}
	e.doc, e.it = d, *st.Instance
	return c.mayEnter(d, st.Instance)
}

func (c instanceCall) mayEnter(d *store.Doc, it *berth.InstanceState) error {
	if c.who.Task != "" || !c.who.CanWrite() || c.who.Role != auth.Admin && c.who.User != it.User {
		return berth.Errorf(berth.Denied, "instance %s belongs to %s; only they and administrators get in", d.Name, it.User)
	}
	return nil
}

// dialable says why an instance cannot be reached, nil when it can. One whose setup failed can be
// looked at over ssh.
func (e entry) dialable() error {
	if e.it.Up() || e.app == "ssh" && (e.it.State == berth.InstanceSetupFailed || e.it.State == berth.InstanceSettingUp) {
		return nil
	}
	msg := "instance %s is %s"
	if e.it.State == berth.InstanceStopped {
		msg += "; start it with `berth compute start -n " + e.doc.Name + "`"
	}
	return berth.Errorf(berth.Conflict, msg, e.doc.Name, e.it.State)
}

// find is the application that is shown under a title, or that has the name.
func (e entry) find(app string) (berth.InstanceApp, bool) {
	for _, same := range []func(berth.InstanceApp) string{
		func(a berth.InstanceApp) string { return a.Title }, func(a berth.InstanceApp) string { return a.Name },
	} {
		if i := slices.IndexFunc(e.it.Apps, func(a berth.InstanceApp) bool { return strings.EqualFold(same(a), app) }); i >= 0 {
			return e.it.Apps[i], true
		}
	}
	return berth.InstanceApp{}, false
}

// forward passes a request on to an application.
func (c instanceCall) forward(e entry) error {
	if err := e.dialable(); err != nil {
		return err
	}
	var app *berth.InstanceApp
	for i := range e.it.Apps {
		if strings.EqualFold(e.it.Apps[i].Name, e.app) {
			app = &e.it.Apps[i]
		}
	}
	if app == nil {
		return berth.Errorf(berth.NotFound, "instance %s has no application %q", e.doc.Name, e.app)
	}
	if app.Error != "" {
		return berth.Errorf(berth.Conflict, "application %s of instance %s does not run: %s", app.Name, e.doc.Name, app.Error)
	}
	dir := devbox.Dir(c.s.Instances.Dir, e.doc.Workspace, e.doc.Name)
	return c.pass(passage{
		base: e.prefix + "/" + app.Name, rest: e.rest, whole: app.Name == "jupyter", bearer: e.bearer,
		dial: func(ctx context.Context) (net.Conn, error) { return c.s.Instances.Dial(ctx, dir, app.Name) },
		what: "application " + app.Name + " of instance " + e.doc.Name,
	})
}

// passage is the way of a request to an application.
type passage struct {
	what   string // for people
	base   string // path of the application here
	rest   string // path in it, with its slash
	whole  bool   // it knows where it is; others believe to be at the root
	bearer string // what the caller is known by
	dial   func(context.Context) (net.Conn, error)
	// show adds to a request what the application asks of everybody; nil where it asks nothing.
	show func(*http.Request)
}

// pass passes a request on to an application.
func (c instanceCall) pass(a passage) error {
	if a.rest == "" {
		c.w.Header().Set("Location", a.base+"/"+query(c.r))
		return c.empty(http.StatusTemporaryRedirect)
	}
	ctx, cancel := c.holdFor(a.bearer)
	defer cancel()
	// Every request has a connection of its own, which makes an open one mean somebody is there.
	transport := &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, ResponseHeaderTimeout: 10 * time.Minute,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return a.dial(ctx) },
	}
	defer transport.CloseIdleConnections()
	c.sent = true // by the proxy, whatever happens
	(&httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			c.rewrite(p, a.base, a.whole, a.rest)
			if a.show != nil {
				a.show(p.Out)
			}
		},
		ModifyResponse: func(res *http.Response) error { return c.tidy(res, a.base) },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if cause := context.Cause(ctx); cause != nil && c.ctx().Err() == nil {
				err = cause
			} else if berth.CodeOf(err) == berth.Internal {
				err = berth.Errorf(berth.Unavailable, "%s does not answer: %v", a.what, err)
			}
			c.s.fail(w, r, err)
		},
	}).ServeHTTP(c.w, c.r.WithContext(ctx))
	return nil
}

// holdFor is hold for a caller who may be known by a cookie. An ordinary request of an application
// may end when the server stops; a connection that was turned into something else may not wait for
// that.
func (c instanceCall) holdFor(bearer string) (context.Context, func()) {
	ctx, end := c.ctx(), func() {}
	if c.r.Header.Get("Upgrade") != "" {
		ctx, end = c.s.gate.untilStop(ctx, c.w)
	}
	if bearer == "" {
		return ctx, end
	}
	ctx, release := c.s.Authority.Hold(ctx, bearer, c.who)
	return ctx, func() { release(); end() }
}

func query(r *http.Request) string {
	if r.URL.RawQuery == "" {
		return ""
	}
	return "?" + r.URL.RawQuery
}

// rewrite makes the request that the application sees: without our credentials, and with the path
// it serves. Jupyter knows where it is; other applications believe to be at the root.
func (c instanceCall) rewrite(p *httputil.ProxyRequest, base string, whole bool, rest string) {
	out := p.Out
	path := rest
	if whole {
		path = base + rest
	}
	out.URL.Scheme, out.URL.Host = "http", "instance"
	// The escaped form is what was checked; Path has to agree with it.
	out.URL.RawPath = path
	if u, err := url.PathUnescape(path); err == nil {
		out.URL.Path = u
	}
	out.Host = p.In.Host
	p.SetXForwarded()
	if !fromLoopback(p.In) {
		out.Header.Set("X-Forwarded-Proto", "https")
	}
	out.Header.Set("X-Forwarded-Prefix", base)
	out.Header.Del("Authorization")
	out.Header.Del("Proxy-Authorization")
	cookies := p.In.Cookies()
	out.Header.Del("Cookie")
	for _, k := range cookies {
		if k.Name != instanceCookie {
			out.AddCookie(k)
		}
	}
}

// tidy keeps what an application sets within its own path.
func (c instanceCall) tidy(res *http.Response, base string) error {
	cookies := res.Cookies()
	res.Header.Del("Set-Cookie")
	for _, k := range cookies {
		if k.Name == instanceCookie {
			continue
		}
		k.Domain = ""
		if !strings.HasPrefix(k.Path, base+"/") {
			k.Path = base + "/"
		}
		res.Header.Add("Set-Cookie", k.String())
	}
	// Azure's own headers and ours are not an application's to send.
	res.Header.Del("Azure-AsyncOperation")
	res.Header.Set("Referrer-Policy", "same-origin")
	if loc := res.Header.Get("Location"); strings.HasPrefix(loc, "/") && !strings.HasPrefix(loc, "//") && !strings.HasPrefix(loc, base+"/") && loc != base {
		res.Header.Set("Location", base+loc)
	}
	return nil
}

// tunnel joins the connection with the ssh server of the instance.
func (c instanceCall) tunnel(e entry) error {
	if !strings.EqualFold(c.r.Header.Get("Upgrade"), sshProtocol) {
		return berth.Errorf(berth.Invalid, "use `berth ssh %s`", e.doc.Name)
	}
	if err := e.dialable(); err != nil {
		return err
	}
	ctx, cancel := c.holdFor(e.bearer)
	defer cancel()
	far, err := c.s.Instances.Dial(ctx, devbox.Dir(c.s.Instances.Dir, e.doc.Workspace, e.doc.Name), "ssh")
	if err != nil {
		return berth.Errorf(berth.Unavailable, "instance %s does not answer: %w", e.doc.Name, err)
	}
	defer far.Close()
	near, err := c.hijack(sshProtocol)
	if err != nil {
		return err
	}
	defer near.Close()
	defer context.AfterFunc(ctx, func() { near.Close(); far.Close() })()
	var group sync.WaitGroup
	group.Go(func() {
		_, _ = io.Copy(far, near)
		closeWrite(far)
	})
	_, _ = io.Copy(near, far)
	near.Close()
	far.Close()
	group.Wait()
	return nil
}

// hijacked is a connection that was an HTTP request's, with what was read of it too early.
type hijacked struct {
	net.Conn
	r io.Reader
}

func (h hijacked) Read(p []byte) (int, error) { return h.r.Read(p) }

// hijack takes the connection of a request over, for another protocol.
func (c instanceCall) hijack(protocol string) (net.Conn, error) {
	near, rw, err := http.NewResponseController(c.w).Hijack()
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "an ssh tunnel needs HTTP/1.1")
	}
	c.sent = true
	// A client that has gone is noticed by whoever reads next.
	_, _ = io.WriteString(near, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\n\r\n")
	return hijacked{near, rw}, nil
}

// closeWrite says that nothing more comes, where that can be said.
func closeWrite(c net.Conn) {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite()
	}
}

// maxLog is how much of a log is sent.
const maxLog = 1 << 20

// instanceLog sends the end of one of the instance's logs.
func instanceLog(c *call, r *resource, name, _ string) error {
	var e entry
	if err := (instanceCall{c}).instance(name, &e); err != nil {
		return err
	}
	which := c.q.Get("name")
	switch which {
	case "":
		which = "agent"
	case "agent", "creation", "startup", "jupyter", "environment":
	default:
		return berth.Errorf(berth.Invalid, "there is no log %q: the logs are agent, environment, creation, startup and jupyter", which)
	}
	path := filepath.Join(devbox.Dir(c.s.Instances.Dir, e.doc.Workspace, e.doc.Name), "log", which+".log")
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && !info.Mode().IsRegular() { // the instance may put there what it likes
		return berth.Errorf(berth.NotFound, "instance %s has no log %s yet", e.doc.Name, which)
	}
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > maxLog {
		if _, err := f.Seek(-maxLog, io.SeekEnd); err != nil {
			return err
		}
	}
	c.sent = true
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err = io.Copy(c.w, io.LimitReader(f, maxLog))
	return err
}
