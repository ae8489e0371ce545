package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/metrics"
	"github.com/berthml/berth/internal/store"
)

// member is what this server is among those of its database. They share the home, and because the
// tasks of a home are processes of one machine, the machine.
func (a *App) member() (store.Member, error) {
	home, err := filepath.Abs(a.cfg.Home)
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	if err != nil {
		return store.Member{}, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown machine"
	}
	id, _ := os.ReadFile("/etc/machine-id") // where there is none the name has to do
	m := store.Member{Name: a.cfg.Name, Home: fmt.Sprintf("%s on %s %s", home, host, strings.TrimSpace(string(id)))}
	if m.Name == "" {
		m.Name = firstName
	}
	m.Who = fmt.Sprintf("the server of %s on %s, process %d", a.cfg.Home, host, os.Getpid())
	return m, nil
}

// firstName is what the server without a name is called.
const firstName = "main"

// loadCerts reads the certificate authority of the home, or makes it; one server at a time.
func (a *App) loadCerts(ctx context.Context) error {
	path := filepath.Join(a.cfg.Home, "run", "certs.lock")
	for {
		unlock, err := lock(path)
		if err == nil {
			defer unlock() //nolint:errcheck // the kernel frees it
			break
		}
		if berth.CodeOf(err) != berth.Conflict {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	hosts := a.hosts()
	if z := a.endpointZone(); z.Name != "" {
		hosts = append(hosts, "*."+z.Host())
	}
	var err error
	if a.certs, err = auth.LoadCerts(filepath.Join(a.cfg.Home, "tls"), hosts, time.Now()); err != nil {
		return err
	}
	a.tls, err = a.tlsConfig()
	return err
}

// nearLook is how often the link to the leader's socket is looked at.
const nearLook = 2 * time.Second

// nearSocket is where the tasks of this machine reach the server that leads: a link to its socket,
// beside the first server's.
func (a *App) nearSocket() string {
	path, err := socketPath(filepath.Join(a.cfg.Home, "run"))
	if err != nil {
		return a.socket
	}
	return filepath.Join(filepath.Dir(path), "lead.sock")
}

// pointHere has the link lead to this server's socket.
func (a *App) pointHere() {
	near := a.nearSocket()
	if to, err := os.Readlink(near); err == nil && to == a.socket {
		return
	}
	temp := fmt.Sprintf("%s.%d", near, os.Getpid())
	_ = os.Remove(temp) // of one that was killed
	err := os.Symlink(a.socket, temp)
	if err == nil {
		err = os.Rename(temp, near)
	}
	if err != nil {
		a.log.Error("tasks on this machine cannot find the server", "err", err)
	}
}

// keepPointing has the link lead here until ctx ends, also when a server that led before and was
// late has set it.
func (a *App) keepPointing(ctx context.Context) error {
	tick := time.NewTicker(nearLook)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if a.db.Leads() { // one that is cut off from the database does not know that another leads
				a.pointHere()
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// termMetrics writes whether this server leads, and what it counts then.
func (a *App) termMetrics(w *metrics.Writer) {
	t, _ := a.terms.get()
	leads := 0.0
	if t != nil && a.db.Leads() {
		leads = 1
	}
	w.One("berth_leads", metrics.Gauge, "1 on the server that is the leader, otherwise 0.", leads)
	if t != nil {
		t.control.Metrics(w)
		t.tracking.Metrics(w)
	}
}
