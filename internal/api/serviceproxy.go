package api

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

// Tasks is how the front door reaches tasks that run.
type Tasks struct {
	// Dial connects to a port of a task.
	Dial func(ctx context.Context, t *berth.Task, port int) (net.Conn, error)
	// Shell finds what serves ssh on a connection, with sessions that run beside a task.
	Shell func(ctx context.Context, t *berth.Task) (serve func(context.Context, net.Conn) error, err error)
	// Turn gives the runner that was started for a task its next one.
	Turn func(ctx context.Context, t *berth.Task, ask berth.Turn) (berth.TurnAnswer, error)
}

// service serves everything below berth.ServiceRoot: the services of jobs, for who submitted them.
func (s *instanceService) service(w http.ResponseWriter, r *http.Request) {
	prefix := func(ws berth.Workspace, job string) string { return berth.ServicePath(ws, job, "") }
	s.enter(w, r, berth.ServiceRoot, prefix, func(c instanceCall, job string, e entry) error {
		return c.toService(job, e.app, e.rest, e.bearer)
	})
}

// toService passes a request on to a service of a job.
func (c instanceCall) toService(name, service, rest, bearer string) error {
	d, t, err := c.runningTask(name)
	if err != nil {
		return err
	}
	kind, err := usable(d, t, service)
	if err != nil {
		return err
	}
	port := t.Services[service].Port
	base := berth.ServicePath(c.ws, d.Name, service)
	secret := c.s.Authority.Keys.ServiceSecret(base)
	return c.pass(passage{
		what: "service " + service + " of job " + d.Name, base: base, rest: rest, whole: kind == berth.ServiceJupyterLab, bearer: bearer,
		dial: func(ctx context.Context) (net.Conn, error) { return c.s.Tasks.Dial(ctx, t, port) },
		show: func(r *http.Request) {
			if kind == berth.ServiceVSCode {
				r.AddCookie(&http.Cookie{Name: codeCookie, Value: secret})
				return
			}
			r.Header.Set("Authorization", "token "+secret)
		},
	})
}

// codeCookie is the cookie of code-server, whose value is the hash of its password.
const codeCookie = "code-server-session"

// usable is the type of a service that runs, and can be shown by a browser.
func usable(d *store.Doc, t *berth.Task, name string) (kind string, err error) {
	var v struct{ Properties berth.CommandJob }
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return "", err
	}
	if kind = v.Properties.Services[name].Kind(); kind == "" {
		return "", berth.Errorf(berth.NotFound, "job %s has no service %q; `berth job show-services -n %s` lists them", d.Name, name, d.Name)
	}
	is := t.Services[name]
	switch {
	case kind == berth.ServiceSSH:
		return "", berth.Errorf(berth.Invalid, "service %s is a shell: use `berth ssh %s`", name, d.Name)
	case is.Status == berth.ServiceFailed:
		return "", berth.Errorf(berth.Conflict, "service %s of job %s does not run: %s", name, d.Name, is.Error)
	case is.Status != berth.ServiceRunning:
		return "", berth.Errorf(berth.Conflict, "service %s of job %s is starting; try again in a moment", name, d.Name)
	}
	return kind, nil
}

// startPatience is how long somebody who wants into a job waits for its task that starts: its first
// output may be seen before its report that it runs.
const startPatience = 5 * time.Second

// runningTask is the first task of a job that runs, for who submitted it.
func (c instanceCall) runningTask(name string) (*store.Doc, *berth.Task, error) {
	d, _, err := c.s.jobs.job(c.call, name)
	if err != nil {
		return nil, nil, err
	}
	if !c.who.CanWrite() || c.who.User != d.CreatedBy {
		return nil, nil, berth.Errorf(berth.Denied, "job %s belongs to %s, and only they get into it", d.Name, d.CreatedBy)
	}
	ctx, cancel := context.WithTimeout(c.ctx(), startPatience)
	defer cancel()
	for {
		t, rev, err := c.firstTask(d)
		if err != nil {
			return nil, nil, err
		}
		if t != nil && t.State == berth.TaskRunning && c.s.Tasks.Dial != nil {
			return d, t, nil
		}
		starts := t != nil && t.State.Before(berth.TaskRunning) && t.State != berth.TaskWaiting
		if starts {
			_, err = c.s.DB.WatchSubject(ctx, rev, d.Workspace, "jobs/"+d.Name).Next()
		}
		if !starts || err != nil {
			return nil, nil, berth.Errorf(berth.Conflict, "job %s is %s: its services can be opened while it is running", d.Name, d.Status)
		}
	}
}

// firstTask is the first task of the last attempt of a job, nil for none.
func (c instanceCall) firstTask(d *store.Doc) (t *berth.Task, rev berth.Rev, err error) {
	err = c.s.DB.View(c.ctx(), func(tx *store.Tx) error {
		if rev, err = tx.Rev(); err != nil {
			return err
		}
		tasks, err := tx.TasksOf(d.Workspace, d.Name)
		for _, x := range tasks {
			if x.Rank == 0 && (t == nil || x.Attempt > t.Attempt) {
				t = x
			}
		}
		return err
	})
	return t, rev, err
}

// openService gives the caller a short address that opens a service of a job in a browser: once,
// and within a minute.
func openService(c *call, _ *resource, name, _ string) error {
	var ask struct {
		Service string `json:"service"`
		HTTPS   bool   `json:"https"`
	}
	if err := c.into(&ask); err != nil {
		return err
	}
	d, t, err := instanceCall{c}.runningTask(name)
	if err != nil {
		return err
	}
	if _, err := usable(d, t, ask.Service); err != nil {
		return err
	}
	prefix := berth.ServicePath(c.ws, d.Name, "")
	return c.sendLink(prefix, strings.TrimPrefix(berth.ServicePath(c.ws, d.Name, ask.Service), prefix)+"/", ask.HTTPS)
}

// shell joins the connection with shells in a job.
func (c instanceCall) shell(name string) error {
	if !strings.EqualFold(c.r.Header.Get("Upgrade"), sshProtocol) {
		return berth.Errorf(berth.Invalid, "use `berth ssh %s`", name)
	}
	_, t, err := c.runningTask(name)
	if err != nil {
		return err
	}
	ctx, cancel := c.holdFor(auth.Bearer(c.r.Header.Get("Authorization")))
	defer cancel()
	serve, err := c.s.Tasks.Shell(ctx, t)
	if err != nil {
		return err
	}
	near, err := c.hijack(sshProtocol)
	if err != nil {
		return err
	}
	defer near.Close()
	if err := serve(ctx, near); err != nil {
		c.s.Log.Info("a shell in a job has ended", "job", t.Job, "err", err)
	}
	return nil
}
