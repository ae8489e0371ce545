package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthml/berth"
)

// Config says which server and workspace a Client talks to.
type Config struct {
	// URL is https://HOST:PORT of a remote server; empty means the server of Home.
	URL string
	// Token is the secret of a remote server's token.
	Token string
	// CA is a file with the certificate authority of URL; empty tries Home's own and the system's.
	CA string
	// Home is the folder of the local server.
	Home string
	// Workspace overrides the server's default, member by member.
	Workspace berth.Workspace
	// Start is called if the home's server does not answer; if nil, it is not started. It returns
	// when the server answers. With URL it is not called.
	Start func(ctx context.Context) error
	// Trace, if not nil, is called for every response with the request, its status or error, and
	// the time to the first byte.
	Trace func(r *http.Request, status string, took time.Duration)
}

// traced tells of every answer.
type traced struct {
	http.RoundTripper
	tell func(*http.Request, string, time.Duration)
}

func (t traced) RoundTrip(r *http.Request) (*http.Response, error) {
	begun := time.Now()
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		t.tell(r, err.Error(), time.Since(begun))
		return nil, err
	}
	t.tell(r, resp.Status, time.Since(begun))
	return resp, nil
}

// transport is a client over t.
func (c Config) transport(t http.RoundTripper) *http.Client {
	if c.Trace != nil {
		t = traced{t, c.Trace}
	}
	return &http.Client{Transport: t, CheckRedirect: noRedirect}
}

// FromEnv returns the configuration from the environment: BERTH_URL, BERTH_TOKEN and BERTH_CA, or
// BERTH_HOME; BERTH_WORKSPACE, BERTH_RESOURCE_GROUP and BERTH_SUBSCRIPTION.
func FromEnv(getenv func(string) string) (Config, error) {
	c := Config{
		URL: strings.TrimSuffix(getenv("BERTH_URL"), "/"), Token: getenv("BERTH_TOKEN"), CA: getenv("BERTH_CA"), Home: getenv("BERTH_HOME"),
		Workspace: berth.Workspace{Subscription: getenv("BERTH_SUBSCRIPTION"), Group: getenv("BERTH_RESOURCE_GROUP"), Name: getenv("BERTH_WORKSPACE")},
	}
	if c.Home == "" {
		home, err := defaultHome(getenv)
		if err != nil {
			return c, err
		}
		c.Home = home
	}
	abs, err := filepath.Abs(c.Home)
	if err != nil {
		return c, err
	}
	c.Home = abs
	return c, nil
}

// defaultHome is berth in the user's data directory.
func defaultHome(getenv func(string) string) (string, error) {
	if runtime.GOOS == "windows" {
		if d := getenv("LOCALAPPDATA"); d != "" {
			return filepath.Join(d, "berth"), nil
		}
	}
	if d := getenv("XDG_DATA_HOME"); d != "" && runtime.GOOS != "darwin" {
		return filepath.Join(d, "berth"), nil
	}
	home := getenv("HOME")
	if home == "" {
		var err error
		if home, err = os.UserHomeDir(); err != nil {
			return "", berth.Errorf(berth.Invalid, "there is no home directory to keep Berth's files in; set BERTH_HOME")
		}
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Application Support", "berth"), nil
	}
	return filepath.Join(home, ".local", "share", "berth"), nil
}

// Server is what a running server writes about itself into its home.
type Server struct {
	URL       string          `json:"url"`
	PID       int             `json:"pid,omitempty"`
	Version   string          `json:"version,omitempty"`
	Workspace berth.Workspace `json:"workspace,omitzero"`
	Socket    string          `json:"socket,omitempty"`
}

// errDamaged is the error of a server.json that was cut while it was written.
var errDamaged = errors.New("damaged")

// ReadServer reads HOME/run/server.json. The server it describes may have ended. The error is
// fs.ErrNotExist if no server has run in this home.
func ReadServer(home string) (Server, error) {
	var s Server
	path := filepath.Join(home, "run", "server.json")
	b, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, berth.Errorf(berth.Internal, "%s is %w (%v); run `berth up`, which writes it again", path, errDamaged, err)
	}
	if s.Socket == "" {
		s.Socket = filepath.Join(home, "run", "api.sock")
	}
	return s, nil
}

// Dial connects to the server of a home.
func Dial(ctx context.Context, home string) (net.Conn, Server, error) {
	s, err := ReadServer(home)
	if err != nil {
		return nil, s, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", s.Socket)
	return conn, s, err
}

// NotRunning reports whether err, from Dial, means that no server is running in the home.
func NotRunning(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errDamaged) || refused(err)
}

// Open returns a client. It connects to a local server, and starts it if cfg says how; it contacts
// a remote server only if the workspace is unknown.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	if cfg.URL != "" {
		return openRemote(ctx, cfg)
	}
	c := &Client{cfg: cfg, base: "http://berth", local: true, store: &stores{}, met: &atomic.Bool{}}
	c.cfg.Token = "" // the socket needs none
	conn, info, err := Dial(ctx, cfg.Home)
	if err != nil && NotRunning(err) && cfg.Start != nil {
		if err := cfg.Start(ctx); err != nil {
			return nil, err
		}
		conn, info, err = Dial(ctx, cfg.Home)
	}
	if err != nil {
		return nil, &Unreachable{Server: c.where(), Err: err, dial: true, local: true}
	}
	c.info = info
	c.Workspace = override(info.Workspace, cfg.Workspace)
	first := &firstConn{conn: conn}
	c.http = cfg.transport(&http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if conn := first.take(); conn != nil {
				return conn, nil
			}
			conn, _, err := Dial(ctx, cfg.Home) // the server may have moved since
			return conn, err
		},
		MaxIdleConnsPerHost: parallel, DisableCompression: true, WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10,
	})
	return c, nil
}

// firstConn is the connection made by Open, for the first request.
type firstConn struct {
	mu   sync.Mutex
	conn net.Conn
}

func (f *firstConn) take() net.Conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	conn := f.conn
	f.conn = nil
	return conn
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func openRemote(ctx context.Context, cfg Config) (*Client, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
		return nil, berth.Errorf(berth.Invalid, "BERTH_URL: %q is not https://HOST:PORT", cfg.URL)
	}
	if u.Scheme == "http" {
		return nil, berth.Errorf(berth.Invalid, "BERTH_URL: %q would send your token in the clear; use https", cfg.URL)
	}
	if cfg.Token == "" {
		return nil, berth.Errorf(berth.Unauthenticated, "BERTH_URL is set but BERTH_TOKEN is not; ask for a token created with `berth token create NAME`")
	}
	pool, err := cfg.roots()
	if err != nil {
		return nil, err
	}
	cfg.Start = nil // nothing on this machine is started in the place of another server
	c := &Client{cfg: cfg, base: u.Scheme + "://" + u.Host, info: Server{URL: u.Scheme + "://" + u.Host}, store: &stores{}, met: &atomic.Bool{}}
	c.http = cfg.transport(&http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		MaxIdleConnsPerHost: parallel, DisableCompression: true, TLSHandshakeTimeout: 10 * time.Second,
		DialContext: (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
	})
	if w := cfg.Workspace; w.Subscription == "" || w.Group == "" || w.Name == "" {
		about, err := c.About(ctx)
		if err != nil {
			return nil, err
		}
		c.Workspace = about.Workspace
	}
	c.Workspace = override(c.Workspace, cfg.Workspace)
	return c, nil
}

// roots are the authorities a remote server's certificate may come from; nil means the system's.
func (c Config) roots() (*x509.CertPool, error) {
	if c.CA != "" {
		pool := x509.NewCertPool()
		return pool, addCA(pool, c.CA)
	}
	b, err := os.ReadFile(filepath.Join(c.Home, "tls", "ca.pem"))
	if err != nil {
		return nil, nil //nolint:nilerr // no home of our own: the system's roots
	}
	pool := systemRoots()
	pool.AppendCertsFromPEM(b)
	return pool, nil
}

// RootsOfOthers are the authorities that the certificate of a server other than URL may come from:
// the system's, that of Home, and those of files as BERTH_CA names them; empty names are left out.
func (c Config) RootsOfOthers(files ...string) (*x509.CertPool, error) {
	pool := systemRoots()
	if b, err := os.ReadFile(filepath.Join(c.Home, "tls", "ca.pem")); err == nil {
		pool.AppendCertsFromPEM(b)
	}
	for _, file := range files {
		if file == "" {
			continue
		}
		if err := addCA(pool, file); err != nil {
			return nil, err
		}
	}
	return pool, nil
}

func systemRoots() *x509.CertPool {
	pool, err := x509.SystemCertPool()
	if err != nil {
		return x509.NewCertPool()
	}
	return pool
}

// addCA adds the authorities in a file that BERTH_CA names.
func addCA(pool *x509.CertPool, file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return berth.Errorf(berth.Invalid, "BERTH_CA: %w", err)
	}
	if !pool.AppendCertsFromPEM(b) {
		return berth.Errorf(berth.Invalid, "BERTH_CA: %s holds no certificate in PEM form", file)
	}
	return nil
}

func override(w, by berth.Workspace) berth.Workspace {
	if by.Subscription != "" {
		w.Subscription = by.Subscription
	}
	if by.Group != "" {
		w.Group = by.Group
	}
	if by.Name != "" {
		w.Name = by.Name
	}
	return w
}

// dialError reports whether no connection was made, so that the request cannot have arrived.
func dialError(err error) bool {
	var op *net.OpError
	return (errors.As(err, &op) && op.Op == "dial") || errors.Is(err, fs.ErrNotExist)
}
