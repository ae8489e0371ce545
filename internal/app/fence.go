package app

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/socket"
)

// Tasks run with the server's own account, so the permissions of the socket do not keep them out.
// Who is on the other end does.

type (
	taskConn  struct{}
	ownerConn struct{}
)

// ownerOf makes whoever connects to the socket the owner, unless it is a process of a task.
func (a *App) ownerOf(owner auth.Principal) func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, c net.Conn) context.Context {
		pid, err := socket.Peer(c)
		if err != nil || runner.OfTask(pid, a.cfg.Home) {
			a.log.Warn("a connection to the socket was refused", "pid", pid, "err", err)
			return context.WithValue(ctx, taskConn{}, true)
		}
		if !runner.OfHost(pid) {
			ctx = context.WithValue(ctx, ownerConn{}, true)
		}
		return auth.With(ctx, owner)
	}
}

// overSocket says whether a request came over the socket from the owner, and not from a runner in
// the owner's name, which sends what tasks choose.
func overSocket(r *http.Request) bool {
	owner, _ := r.Context().Value(ownerConn{}).(bool)
	return owner
}

// fence answers those who are not let in.
func (a *App) fence(w http.ResponseWriter, r *http.Request) {
	if r.Context().Value(taskConn{}) != nil {
		a.api.NotForTasks(w, r)
		return
	}
	a.api.ServeHTTP(w, r)
}

// fromTask says whether a request over TCP comes from a process of a task on this machine.
func (a *App) fromTask(r *http.Request) bool {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	local, err := netip.ParseAddrPort(at.String())
	if err != nil {
		return false
	}
	return runner.TaskConnected(unmap(local), unmap(remote), a.cfg.Home)
}

func unmap(p netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(p.Addr().Unmap(), p.Port()) }

// connEnds are the ends of a connection over TCP. Which processes have the other one is found out
// once for each node it is asked about.
type connEnds struct {
	local, remote netip.AddrPort

	mu   sync.Mutex
	from map[string]bool // by node
}

type connKey struct{}

// relays are the connections to this server that it opened itself, for machines elsewhere: what
// comes over them is not of this machine.
type relays struct{ open sync.Map } // by the address of the end that was opened

// add notes a connection until it is closed.
func (r *relays) add(c net.Conn) net.Conn {
	at, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return c
	}
	r.open.Store(unmap(at), true)
	return &relay{Conn: c, closed: sync.OnceFunc(func() { r.open.Delete(unmap(at)) })}
}

// has says whether the other end of a connection is one of them.
func (r *relays) has(remote netip.AddrPort) bool {
	_, ok := r.open.Load(remote)
	return ok
}

type relay struct {
	net.Conn
	closed func()
}

func (r *relay) Close() error {
	defer r.closed()
	return r.Conn.Close()
}

// CloseWrite ends what is sent, where the connection can do that alone.
func (r *relay) CloseWrite() error {
	if c, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// withEnds notes the ends of a connection in the context of its requests.
func withEnds(ctx context.Context, c net.Conn) context.Context {
	local, err := netip.ParseAddrPort(c.LocalAddr().String())
	remote, rerr := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil || rerr != nil {
		return ctx
	}
	return context.WithValue(ctx, connKey{}, &connEnds{local: unmap(local), remote: unmap(remote), from: map[string]bool{}})
}

// fromNode says why a request is not one of the programs of an instance's node. A process of this
// machine that is in no job may pass one on, as a proxy or another server of this home does.
func (a *App) fromNode(ctx context.Context, node string) error {
	e, ok := ctx.Value(connKey{}).(*connEnds)
	if !ok {
		return berth.Errorf(berth.Denied, "the token of an instance is for programs on it, at the server's https address")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	good, known := e.from[node]
	if !known {
		good = !a.relayed.has(e.remote) && runner.NodeConnected(e.local, e.remote, a.cfg.Home, filepath.Join(a.cfg.Home, "nodes", node))
		e.from[node] = good
	}
	if !good {
		return berth.Errorf(berth.Denied, "the token of an instance is for programs on it, whose connections come to this machine directly; elsewhere use a token created with `berth token create`")
	}
	return nil
}
