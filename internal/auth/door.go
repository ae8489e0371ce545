package auth

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
)

// How many connections that have not shown a token yet a door keeps open. An ordinary client shows
// one with its first or second request; hundreds of followers on this machine, or of people behind
// one address, do so within milliseconds of each other.
const (
	strangersLocal = 2048 // from this machine
	strangersEach  = 256  // from any other address
	strangersAll   = 4096
)

// Door keeps connections few enough for the server, and those of strangers fewer. When there are
// too many, the one that has been silent about itself for longest is closed. Where all have shown a
// token, it is the one that has not been used for longest of the user who has most.
type Door struct {
	mu    sync.Mutex
	each  map[netip.Addr]*visitors
	all   visitors
	users map[string]*visitors // those who have shown who they are, the least recently used first
	limit func(netip.Addr) int
	most  int // strangers
	open  int // connections of all kinds
	room  int // for how many of them there is room; 0 is no end
}

// visitors is a list of connections, the oldest first.
type visitors struct {
	first, last *visitor
	n           int
}

// visitor is a connection. It is in the two lists of strangers until it is known, and then in that
// of its user.
type visitor struct {
	net.Conn
	door *Door
	from netip.Addr
	// Guarded by door.mu, as the links are. One that is closed is known.
	known, closed bool
	user          string // once it is known
	links         [2]struct{ before, after *visitor }
}

// NewDoor returns a door with the usual limits for strangers, and with room for so many connections
// in all; 0 is no end.
func NewDoor(room int) *Door {
	return &Door{each: map[netip.Addr]*visitors{}, users: map[string]*visitors{}, most: strangersAll, room: room, limit: func(a netip.Addr) int {
		if a.IsLoopback() {
			return strangersLocal
		}
		return strangersEach
	}}
}

// Listen is l through the door.
func (d *Door) Listen(l net.Listener) net.Listener { return doorListener{l, d} }

type doorListener struct {
	net.Listener
	door *Door
}

func (l doorListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.door.enter(c), nil
}

func (d *Door) enter(c net.Conn) net.Conn {
	v := &visitor{Conn: c, door: d, from: household(c.RemoteAddr())}
	var leave []*visitor
	d.mu.Lock()
	own := d.each[v.from]
	if own == nil {
		own = &visitors{}
		d.each[v.from] = own
	}
	own.add(v, 0)
	d.all.add(v, 1)
	d.open++
	if own.n > d.limit(v.from) {
		leave = append(leave, d.dismiss(own.first))
	}
	if d.all.n > d.most {
		leave = append(leave, d.dismiss(d.all.first))
	}
	if d.room > 0 && d.open > d.room {
		leave = append(leave, d.dismiss(d.leastMissed()))
	}
	d.mu.Unlock()
	for _, l := range leave {
		l.Conn.Close()
	}
	return v
}

// household is what counts as one address: a host, or a network of IPv6 such as everybody gets.
func household(a net.Addr) netip.Addr {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := t.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is6() && !ip.IsLoopback() {
		if p, err := ip.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return ip
}

// leastMissed is the connection that makes room for the newest: a stranger's, or one of the user
// who has most. The mutex is held.
func (d *Door) leastMissed() *visitor {
	if d.all.n > 1 {
		return d.all.first
	}
	least, most := d.all.last, 1 // the newest itself, where everybody has one
	for _, of := range d.users {
		if of.n > most {
			least, most = of.first, of.n
		}
	}
	return least
}

// forget takes a connection out of the lists. The mutex is held.
func (d *Door) forget(v *visitor) {
	if v.known {
		if of := d.users[v.user]; of != nil && !v.closed {
			of.remove(v, 0)
			if of.n == 0 {
				delete(d.users, v.user)
			}
		}
		return
	}
	v.known = true
	own := d.each[v.from]
	own.remove(v, 0)
	d.all.remove(v, 1)
	if own.n == 0 {
		delete(d.each, v.from)
	}
}

// dismiss is forget for a connection that is to be closed, and returns it. The mutex is held.
func (d *Door) dismiss(v *visitor) *visitor {
	d.forget(v)
	if !v.closed {
		v.closed = true
		d.open--
	}
	return v
}

// Close is that of [net.Conn].
func (v *visitor) Close() error {
	v.door.mu.Lock()
	v.door.dismiss(v)
	v.door.mu.Unlock()
	return v.Conn.Close()
}

func (s *visitors) add(v *visitor, list int) {
	v.links[list].before = s.last
	if s.last != nil {
		s.last.links[list].after = v
	} else {
		s.first = v
	}
	s.last = v
	s.n++
}

func (s *visitors) remove(v *visitor, list int) {
	l := &v.links[list]
	if l.before != nil {
		l.before.links[list].after = l.after
	} else {
		s.first = l.after
	}
	if l.after != nil {
		l.after.links[list].before = l.before
	} else {
		s.last = l.before
	}
	l.before, l.after = nil, nil
	s.n--
}

type visitorKey struct{}

// ConnContext is that of an [net/http.Server] behind the door: Known finds the connection by it.
func (d *Door) ConnContext(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if v, ok := c.(*visitor); ok {
		return context.WithValue(ctx, visitorKey{}, v)
	}
	return ctx
}

// Known says that a request of this context has shown that this user sends it.
func Known(ctx context.Context, user string) {
	if v, ok := ctx.Value(visitorKey{}).(*visitor); ok {
		v.door.know(v, user)
	}
}

// know puts a connection last in the list of a user.
func (d *Door) know(v *visitor, user string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v.closed {
		return
	}
	d.forget(v)
	v.user = user
	if d.users[user] == nil {
		d.users[user] = &visitors{}
	}
	d.users[user].add(v, 0)
}
