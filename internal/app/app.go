// Package app is the composition root: it builds the parts of a server in order, and stops them in
// reverse. The program is a value that tests start too.
package app

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/api"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/backup"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/blob/front"
	"github.com/berthml/berth/internal/config"
	"github.com/berthml/berth/internal/control"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/all"
	"github.com/berthml/berth/internal/driver/cluster"
	"github.com/berthml/berth/internal/driver/local"
	"github.com/berthml/berth/internal/envs"
	"github.com/berthml/berth/internal/filewatch"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/metrics"
	"github.com/berthml/berth/internal/sched"
	"github.com/berthml/berth/internal/serve/collect"
	"github.com/berthml/berth/internal/serve/gateway"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

// App is a server that was opened. Run serves it.
type App struct {
	cfg     config.Config
	log     *slog.Logger
	closers []func() error

	home fs.FileInfo // as it was opened

	URL   string // https://HOST:PORT as clients use it
	Token string // the administrator's

	tcp, unix net.Listener
	relayed   relays
	door      *auth.Door // of tcp
	socket    string
	browser   net.Listener // of the owner's browser; nil where the server is not only theirs
	loopback  string       // its origin
	certs     *auth.Certs
	tls       *tls.Config
	keys      *auth.Keys
	signer    *front.Signer
	at        locate.Locator
	drained   func()   // returns when a server that stops has answered all requests; at once while it does not stop
	host      []string // the command line of the runner host
	drivers   func(name string) (driver.Type, bool)
	program   program
	api       *api.Server
	gateway   *gateway.Gateway
	samples   *collect.Collector
	handles   sync.Map // of driver.Handle by berth.TaskID: those of tasks that were reached
	blobs     *blob.Store
	db        *store.DB
	machine   sched.Machine
	terms     terms
}

// maxHeader bounds a request's header: addresses with signatures and tokens take a few kilobytes.
const maxHeader = 64 << 10

// nodeMemory is what a node takes of the machine's memory before anything runs on it, generously:
// its host's processes.
const nodeMemory = 16 << 20

// Account and suffix make up the address of the storage: BASE/st.blob.berth/CONTAINER/BLOB.
const (
	account = "st"
	suffix  = "berth/"
)

// ErrStopped is the error of a server that was told to stop while it was opened.
var ErrStopped = berth.Errorf(berth.Unavailable, "the server was asked to stop before it had started")

// Open makes everything a server needs, in the home it is told. host is the command line of the
// runner host. Servers that share a home have different names, and a database that allows it. When
// ctx ends meanwhile it is ErrStopped.
func Open(ctx context.Context, cfg config.Config, host []string, log *slog.Logger) (_ *App, err error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	a := &App{cfg: cfg, log: log, host: host, drivers: all.Lookup}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
		if err != nil && ctx.Err() != nil {
			log.Info("stopped while starting", "err", err)
			err = ErrStopped
		}
	}()
	run := cfg.RunDir()
	if err := a.openHome(run); err != nil {
		return nil, err
	}
	if a.keys, err = auth.LoadKeys(cfg.Home); err != nil {
		return nil, err
	}
	member, err := a.member()
	if err != nil {
		return nil, err
	}
	if a.db, err = store.Open(ctx, cfg.DatabaseURL(), store.Options{Log: log, Server: member}); err != nil {
		return nil, err
	}
	a.closers = append(a.closers, a.db.Close)
	if err := a.listen(ctx, run); err != nil {
		return nil, err
	}
	if err := a.checkZone(); err != nil {
		return nil, err
	}
	if err := a.loadCerts(ctx); err != nil {
		return nil, err
	}
	if err := a.listenLoopback(ctx, run); err != nil {
		return nil, err
	}
	if err := a.openBlobs(); err != nil {
		return nil, err
	}
	a.measure(ctx)
	a.signer = front.NewSigner(a.keys.SAS)
	a.at = locate.Locator{BaseURL: a.URL, Account: account, Suffix: suffix, Zone: cfg.BlobZone, Allow: locate.Allow(cfg.Allow)}
	return a, a.openAPI(ctx)
}

// openHome makes the home where there is none, and keeps other servers out of it.
func (a *App) openHome(run string) error {
	if err := os.MkdirAll(run, 0o700); err != nil {
		return fmt.Errorf("create the home: %w", err)
	}
	if err := os.Chmod(a.cfg.Home, 0o700); err != nil {
		return fmt.Errorf("make the home private: %w", err)
	}
	unlock, err := lock(filepath.Join(run, "serve.lock"))
	if err != nil {
		return err
	}
	a.closers = append(a.closers, unlock)
	if err := backup.CheckHome(a.cfg.Home); err != nil {
		return err
	}
	if a.home, err = os.Stat(a.cfg.Home); err != nil {
		return err
	}
	return a.settleIn(filepath.Join(a.cfg.Home, "run"))
}

// measure finds out what this machine has.
func (a *App) measure(ctx context.Context) {
	a.machine = sched.Machine{CPUs: runtime.NumCPU(), Memory: local.TotalMemory(), Strict: a.cfg.StrictSizes}
	a.machine.Unlimited = cluster.Unlimited()
	a.machine.Most = int(a.machine.Memory / nodeMemory)
	gpus, err := cluster.GPUs(ctx)
	if err != nil {
		a.log.Warn("GPUs not counted", "err", err)
	}
	a.machine.GPUs = len(gpus)
}

// openAPI makes the front door, with all that it needs for itself, and the workspace that is always
// there.
func (a *App) openAPI(ctx context.Context) (err error) {
	cfg := a.cfg
	authority := auth.NewAuthority(a.keys, a.db, a.audiences()...)
	authority.Instances = a.instanceCheck()
	owner := userName()
	if a.Token, err = authority.AdminToken(ctx, cfg.Home, owner); err != nil {
		return err
	}
	watcher, err := filewatch.New()
	if err != nil {
		return err
	}
	a.closers = append(a.closers, watcher.Close)
	leader, owners := &forwarder{a: a}, &locate.Owners{DB: a.db}
	a.openGateway(authority)
	a.closers = append(a.closers, func() error { leader.close(); return nil })
	a.api = api.New(api.Options{
		DB: a.db, Blobs: a.blobs, Authority: authority, Signer: a.signer, Watcher: watcher, Log: a.log, Locator: a.at,
		Front: front.New(a.blobs, a.signer, front.Options{
			Account: account, Suffix: strings.Trim(suffix, "/"), Zone: cfg.BlobZone, Bearer: bearer(authority), Signed: signed(authority, a.db), Log: a.log,
			Writer: owners.Writer, Full: a.storageFull(owners), Near: overSocket,
		}),
		Location: cfg.Location, CABundle: a.certs.Bundle, CA: string(a.certs.CA), Default: cfg.DefaultWorkspace(),
		Curated: envs.Curated, CuratedNames: envs.CuratedNames, NearestCurated: envs.NearestCurated, QuotaDefault: cfg.QuotaDefault, WorkspaceStorage: cfg.WorkspaceStorage, Slots: cfg.Slots, Local: cfg.Local(), ImagesOnHost: cfg.ImagesOnHost, Machine: a.machine,
		Instances: a.reach(), Tasks: a.reachTasks(), Attached: leaderGate{leader}, FromTask: a.fromTask, Program: a.program.find,
		Followers: followers(descriptors()), Loopback: a.loopback,
		Points:   func(id string) ([]fs.FileInfo, error) { return track.PointFiles(a.trackingDir(), id) },
		Tracking: leaderTracking{leader}, PassOn: leader.passOn, Endpoints: a.gateway, EndpointZone: a.endpointZone(), Serving: a.gateway.Stats, ReplicaUsage: a.gateway.Usage,
		Metrics: []func(*metrics.Writer){a.db.Metrics, a.termMetrics, a.gateway.Metrics},
	})
	return a.api.EnsureWorkspace(ctx, cfg.DefaultWorkspace(), owner)
}

// openLoops makes the loops of a term.
func (a *App) openLoops(t *term) error {
	managed, err := t.targets.Shared(strings.ToLower(berth.TypeCluster))
	if err != nil {
		return err
	}
	ca := string(a.certs.CA)
	near := a.socket
	if t.number != 0 {
		near = a.nearSocket()
	}
	t.control = control.New(control.Options{
		DB: a.db, Blobs: a.blobs, Keys: a.keys, Signer: a.signer, Locator: a.at, Log: a.log, Curated: envs.Curated, ImagesOnHost: a.cfg.ImagesOnHost,
		Targets: t.targets, Near: berth.Home{URL: "unix://" + near, CA: ca}, Far: berth.Home{URL: a.URL, CA: ca},
		Machine: a.machine, Local: a.cfg.Local(), QuotaDefault: a.cfg.QuotaDefault, Location: a.cfg.Location, Keep: filepath.Join(a.cfg.Home, "keep"),
		KeepDays: a.cfg.Keep(), KeepMeters: a.cfg.KeepMeters, KeepEvents: a.cfg.KeepEvents, Replica: a.replica, CheckJob: track.CheckJob,
	})
	t.serving = a.openServing()
	t.devbox = a.openInstances(managed, a.environments(), a.host)
	return nil
}

// signBlob is an address at which somebody reads or writes one blob. Tracking has decided that they
// may. Whose the folder of a job is, is asked again when the address is used.
func signBlob(at locate.Locator, signer *front.Signer) func(track.Address) string {
	return func(a track.Address) string {
		g := front.Grant{Container: a.Container, Prefix: a.Name, One: true, Perm: a.Perm, Expiry: a.Until, User: a.Who.User, Holder: a.Who.Holder, Of: a.Of}
		if a.Owner {
			g.Perm += "o"
		}
		return at.URL(a.Container, a.Name) + "?" + signer.Sign(g)
	}
}

// bearer lets our own tokens open the blob endpoint, for reading by readers and for everything by
// users.
func bearer(authority *auth.Authority) func(*http.Request) (string, bool, error) {
	return func(r *http.Request) (string, bool, error) {
		p, err := authority.CheckStorage(r.Context(), auth.Bearer(r.Header.Get("Authorization")), time.Now())
		if err != nil {
			return "", false, err
		}
		if p.Task != "" || (!p.CanWrite() && r.Method != http.MethodGet && r.Method != http.MethodHead) {
			return "", false, berth.Errorf(berth.Denied, "this token has no access to storage")
		}
		return p.User, p.Role == auth.Admin, nil
	}
}

// signed lets a signature open the blob endpoint as long as who it was made for is somebody still,
// and what the blob belongs to is there.
func signed(authority *auth.Authority, db *store.DB) func(*http.Request, front.Grant) error {
	return func(r *http.Request, g front.Grant) error {
		err := authority.CheckHolder(r.Context(), g.Holder, time.Now())
		if err == nil && g.Of != "" {
			err = db.View(r.Context(), func(tx *store.Tx) error { return track.CheckOf(tx, g.Of) })
		}
		if err != nil {
			if berth.CodeOf(err) != berth.Unauthenticated {
				return err
			}
			return &berth.Error{Code: berth.Unauthenticated, Wire: "AuthenticationFailed", Msg: "the signature is no longer valid: " + err.Error(), Err: err}
		}
		auth.Known(r.Context(), g.User)
		return nil
	}
}

// storageFull refuses to write to the containers of a workspace that is full, and to those of none,
// where nothing is counted or cleaned. What running jobs write is taken.
func (a *App) storageFull(owners *locate.Owners) func(ctx context.Context, container string, g *front.Grant, more int64) error {
	return func(ctx context.Context, container string, g *front.Grant, more int64) error {
		workspace, err := owners.Workspace(ctx, container)
		switch {
		case err != nil:
			return err
		case workspace == "":
			return &berth.Error{Code: berth.NotFound, Wire: "ContainerNotFound", Msg: "no workspace has a container " + container + "; `berth datastore show workspaceblobstore` names the one of a workspace"}
		case g != nil && auth.IsTaskHolder(g.Holder):
			return nil
		}
		return a.api.StorageFull(ctx, workspace, more)
	}
}

// listen opens the front doors: the address of the configuration, and a socket for this machine's
// user. A port that was chosen once is kept, because clients' documents name it.
func (a *App) listen(ctx context.Context, run string) error {
	var lc net.ListenConfig
	host, port, err := net.SplitHostPort(a.cfg.Listen)
	if err != nil {
		return err
	}
	addr := a.cfg.Listen
	if old := readInfo(run); port == "0" && old.URL != "" {
		if _, p, err := net.SplitHostPort(strings.TrimPrefix(old.URL, "https://")); err == nil {
			addr = net.JoinHostPort(host, p)
		}
	}
	a.tcp, err = lc.Listen(ctx, "tcp", addr)
	if err != nil && addr != a.cfg.Listen {
		a.log.Warn("the port of the last start is taken; choosing another", "addr", addr, "err", err)
		a.tcp, err = lc.Listen(ctx, "tcp", a.cfg.Listen)
	}
	if err != nil {
		return berth.Errorf(berth.Unavailable, "cannot listen on %s: %w", a.cfg.Listen, err)
	}
	a.closers = append(a.closers, ignoreClosed(a.tcp.Close))
	a.door = auth.NewDoor(visitors(descriptors()))
	a.URL = a.cfg.Advertise
	if a.URL == "" {
		_, p, err := net.SplitHostPort(a.tcp.Addr().String())
		if err != nil {
			return err
		}
		if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
			if host, err = os.Hostname(); err != nil {
				return err
			}
		}
		a.URL = "https://" + net.JoinHostPort(host, p)
	}
	a.URL = strings.TrimSuffix(a.URL, "/")
	if a.socket, err = socketPath(run); err != nil {
		return err
	}
	if err := os.Remove(a.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if a.unix, err = lc.Listen(ctx, "unix", a.socket); err != nil {
		return berth.Errorf(berth.Unavailable, "cannot listen on %s: %w", a.socket, err)
	}
	a.closers = append(a.closers, ignoreClosed(a.unix.Close))
	if err := os.Chmod(a.socket, 0o600); err != nil {
		return err
	}
	return a.db.Announce(ctx, a.URL, reachable(a.tcp), a.socket)
}

func ignoreClosed(f func() error) func() error {
	return func() error {
		if err := f(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}
}

// audiences are the addresses of this server that clients may ask tokens for.
func (a *App) audiences() []string {
	out := []string{a.URL}
	if _, port, err := net.SplitHostPort(strings.TrimPrefix(a.URL, "https://")); err == nil {
		for _, h := range a.hosts() {
			out = append(out, "https://"+net.JoinHostPort(h, port))
		}
	}
	return out
}

// hosts are the names that certificates are for, besides those of endpoints.
func (a *App) hosts() []string {
	hs := []string{"127.0.0.1", "::1", "localhost"}
	if h, err := os.Hostname(); err == nil {
		hs = append(hs, h)
	}
	for _, u := range []string{a.URL, "https://" + a.cfg.Listen} {
		if h, _, err := net.SplitHostPort(strings.TrimPrefix(u, "https://")); err == nil {
			hs = append(hs, h)
		} else {
			hs = append(hs, strings.TrimPrefix(u, "https://"))
		}
	}
	if z := a.cfg.BlobZone; z != "" {
		if h, _, err := net.SplitHostPort(z); err == nil {
			z = h
		}
		hs = append(hs, "*.blob."+z)
	}
	return hs
}

func userName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "local"
}

// Close frees what Open took, in reverse.
func (a *App) Close() error {
	var err error
	for i := len(a.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, a.closers[i]())
	}
	a.closers = nil
	return err
}

// Info is what a server tells the clients of its own machine, in HOME/run/server.json.
type Info struct {
	URL       string          `json:"url"`
	Socket    string          `json:"socket"`
	PID       int             `json:"pid"`
	Version   string          `json:"version"`
	CABundle  string          `json:"caBundle"`
	Workspace berth.Workspace `json:"workspace"`
	Location  string          `json:"location"`
}

const infoFile = "server.json"

func readInfo(run string) Info {
	var i Info
	b, err := os.ReadFile(filepath.Join(run, infoFile))
	if err != nil || json.Unmarshal(b, &i) != nil {
		return Info{}
	}
	return i
}

func (a *App) writeInfo() error {
	b, err := json.Marshal(Info{
		URL: a.URL, Socket: a.socket, PID: os.Getpid(), Version: berth.Version, CABundle: a.certs.Bundle,
		Workspace: a.cfg.DefaultWorkspace(), Location: a.cfg.Location,
	})
	if err != nil {
		return err
	}
	path := filepath.Join(a.cfg.RunDir(), infoFile)
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
