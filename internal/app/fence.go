package app

import (
	"context"
	"net"
	"net/http"
	"net/netip"

	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/socket"
)

// Tasks run with the server's own account, so the permissions of the socket do not keep them out.
// Who is on the other end does.

type taskConn struct{}

// ownerOf makes whoever connects to the socket the owner, unless it is a process of a task.
func (a *App) ownerOf(owner auth.Principal) func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, c net.Conn) context.Context {
		pid, err := socket.Peer(c)
		if err != nil || runner.OfTask(pid, a.cfg.Home) {
			a.log.Warn("a connection to the socket was refused", "pid", pid, "err", err)
			return context.WithValue(ctx, taskConn{}, true)
		}
		return auth.With(ctx, owner)
	}
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
	unmap := func(p netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(p.Addr().Unmap(), p.Port()) }
	return runner.TaskConnected(unmap(local), unmap(remote), a.cfg.Home)
}
