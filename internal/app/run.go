package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/idle"
)

const (
	// stopTime is how long requests under way may take to end when the server stops, and cutTime
	// how long their handlers may take to notice that they were cut off after that.
	stopTime = 10 * time.Second
	cutTime  = 2 * time.Second
)

// Run serves until the context ends, then stops taking requests and lets those under way finish.
func (a *App) Run(until context.Context) error {
	group, ctx := errgroup.WithContext(until)
	served := make(chan struct{})
	group.Go(func() error {
		defer close(served)
		return a.serve(ctx)
	})
	a.drained = func() { // requests under way when the server stops use what the term has
		if ctx.Err() != nil {
			<-served
		}
	}
	group.Go(func() error { return a.keepRunning(ctx, a.api.Samples) })
	group.Go(func() error { return a.keepRunning(ctx, a.gateway.Run) })
	group.Go(func() error { // until the last request was answered
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		go func() {
			<-served
			cancel()
		}()
		return a.samples.Run(ctx)
	})
	group.Go(func() error {
		return a.db.Lead(ctx, func(ctx context.Context) error { return a.keepRunning(ctx, a.lead) })
	})
	for _, guard := range []func(context.Context) error{a.db.Guard, a.guardHome} {
		group.Go(func() error { return guard(ctx) })
	}
	err := group.Wait()
	if until.Err() != nil && errors.Is(err, context.Canceled) { // a loop was told to end in the middle of something
		return nil
	}
	return err
}

// keepRunning runs a loop until ctx ends. One that could not begin because the database is away
// begins again: its absence must not end the server, which says so at /healthz.
func (a *App) keepRunning(ctx context.Context, loop func(context.Context) error) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := loop(ctx)
		if err == nil || ctx.Err() != nil || berth.CodeOf(err) != berth.Unavailable {
			return err
		}
		a.log.Warn("a loop stopped because the database is unavailable; restarting it", "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// serve answers requests on both listeners until ctx ends and those under way have been answered.
func (a *App) serve(ctx context.Context) error {
	// Requests do not end with ctx: what was begun is finished.
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	errorLog := slog.NewLogLogger(a.log.Handler(), slog.LevelInfo)
	owner := auth.Principal{User: userName(), Role: auth.Admin, Token: "admin"}
	var unused unusedConns
	memory := idle.Watch()
	server := func(h http.Handler) *http.Server {
		return &http.Server{
			Handler: memory.Handler(h), ReadHeaderTimeout: 20 * time.Second, IdleTimeout: 3 * time.Minute, ErrorLog: errorLog,
			BaseContext: func(net.Listener) context.Context { return requests }, ConnState: unused.note, MaxHeaderBytes: maxHeader,
		}
	}
	remote, local := server(a.api), server(http.HandlerFunc(a.fence))
	local.ConnContext = a.ownerOf(owner)
	remote.TLSConfig = a.tls
	remote.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return withEnds(a.door.ConnContext(ctx, c), c)
	}
	servers := []*http.Server{remote, local}
	ended := make(chan error, 3)
	go func() { ended <- remote.ServeTLS(a.door.Listen(a.tcp), "", "") }()
	go func() { ended <- local.Serve(a.unix) }()
	if a.browser != nil {
		own := server(a.api.LoopbackHandler())
		servers = append(servers, own)
		go func() { ended <- own.Serve(a.browser) }()
	}
	err := a.writeInfo()
	if err == nil {
		a.log.Info("serving", "url", a.URL, "home", a.cfg.Home)
		if at, ok := a.tcp.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() {
			a.log.Warn(berth.TokenIsShell)
		}
		select {
		case <-ctx.Done():
		case err = <-ended:
		}
	}
	a.log.Info("stopping")
	if e := a.shutdown(context.WithoutCancel(ctx), &unused, cut, servers...); e != nil {
		a.log.Warn("requests interrupted", "err", e)
	}
	return err
}

// shutdown ends the servers: both listeners close, requests that come nevertheless are refused,
// streams end, and all others have stopTime to be answered before they are cut off.
func (a *App) shutdown(ctx context.Context, unused *unusedConns, cut func(), servers ...*http.Server) error {
	within, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	a.tcp.Close() // both, before anything is waited for
	a.unix.Close()
	if a.browser != nil {
		a.browser.Close()
	}
	a.gateway.Drain(within)
	var group errgroup.Group
	for _, s := range servers {
		group.Go(func() error {
			if err := s.Shutdown(within); !errors.Is(err, net.ErrClosed) {
				return err
			}
			return nil
		})
	}
	unused.close()
	err := errors.Join(a.api.Stop(within), group.Wait())
	if err == nil {
		return nil
	}
	cut()
	last, cancel := context.WithTimeout(ctx, cutTime)
	defer cancel()
	_ = a.api.Stop(last)
	for _, s := range servers {
		err = errors.Join(err, s.Close())
	}
	return err
}

// unusedConns are the connections on which no request has come yet. Package http would wait seconds
// for one when a server is shut down.
type unusedConns struct {
	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

// note follows the state of a connection.
func (u *unusedConns) note(c net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(u.conns, c)
	case u.closed:
		c.Close()
	default:
		if u.conns == nil {
			u.conns = map[net.Conn]struct{}{}
		}
		u.conns[c] = struct{}{}
	}
}

// close closes them, and those that come later.
func (u *unusedConns) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for c := range u.conns {
		c.Close()
	}
	clear(u.conns)
}
