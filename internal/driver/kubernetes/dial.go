package kubernetes

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// directTime is how long a pod may take to answer at its own address, and routeAge how long it is
// believed that pods cannot be reached there.
const (
	directTime = time.Second
	routeAge   = time.Minute
)

// routes is how ports of pods are reached.
type routes struct {
	mu   sync.Mutex
	pods map[driver.Handle]*pod // as they were last seen
	not  time.Time              // when a pod was not reached at its address
}

// Dial is [driver.Dialer.Dial]: at the pod's own address where this machine reaches it, otherwise
// through the API server, which reaches every port of it.
func (d *Driver) Dial(ctx context.Context, h driver.Handle, port int) (net.Conn, error) {
	c, _, _, err := d.api()
	if err != nil {
		return nil, err
	}
	p, err := d.podAt(ctx, c, h)
	if err != nil {
		return nil, err
	}
	if conn := d.direct(ctx, p, port); conn != nil {
		return conn, nil
	}
	conn, err := c.forward(ctx, p.Metadata.Name, port)
	if has(err, http.StatusNotFound) {
		d.routes.forget(h)
	}
	return conn, err
}

// podAt is the pod of a task.
func (d *Driver) podAt(ctx context.Context, c *client, h driver.Handle) (*pod, error) {
	d.routes.mu.Lock()
	p := d.routes.pods[h]
	d.routes.mu.Unlock()
	if p != nil {
		return p, nil
	}
	name, index, err := nameOf(h)
	if err != nil {
		return nil, err
	}
	all, err := list[pod](ctx, c, c.in("", "pods", ""), "batch.kubernetes.io/job-name="+name, "status.phase=Running")
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].index() == index && all[i].Metadata.DeletionTimestamp == nil {
			d.routes.mu.Lock()
			d.routes.pods[h] = &all[i]
			d.routes.mu.Unlock()
			return &all[i], nil
		}
	}
	return nil, berth.Errorf(berth.Unavailable, "the pod of the task does not run")
}

func (r *routes) forget(h driver.Handle) {
	r.mu.Lock()
	delete(r.pods, h)
	r.mu.Unlock()
}

// direct connects to a pod at its own address; it is nil where that is not possible.
func (d *Driver) direct(ctx context.Context, p *pod, port int) net.Conn {
	r := &d.routes
	r.mu.Lock()
	away := p.Status.PodIP == "" || time.Since(r.not) < routeAge
	r.mu.Unlock()
	if away {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, directTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(p.Status.PodIP, strconv.Itoa(port)))
	if err != nil {
		r.mu.Lock()
		r.not = time.Now()
		r.mu.Unlock()
		return nil
	}
	return conn
}
