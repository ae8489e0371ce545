//go:build !windows

package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/devbox"
	"github.com/berthml/berth/internal/envs"
)

// app is an application of the user's: a container with a port.
type app struct {
	spec devbox.App
	host bool // it shares the machine's network, because the engine has no other

	mu   sync.Mutex
	run  *envs.Running
	addr string // of its port
	why  string // it does not run; empty when it does
	open int    // connections
	last time.Time
}

// startApp begins to start an application. That it cannot be is its own fault, not the instance's.
func (a *agent) startApp(ctx context.Context, spec devbox.App) *app {
	x := &app{spec: spec, why: "it is starting"}
	go func() {
		if err := a.runApp(ctx, x); err != nil && ctx.Err() == nil {
			x.set("", err.Error())
			a.warn(fmt.Sprintf("application %s is not running: %v", spec.Name, err))
		}
		a.show()
	}()
	return x
}

// runApp starts the container, waits until it answers, and starts it again when it ends.
func (a *agent) runApp(ctx context.Context, x *app) error {
	e := a.c.Environments
	dir := e.Dir
	if dir == "" {
		dir = filepath.Join(a.dir, "..", "..", "envs")
	}
	cache, err := envs.Open(dir, envs.Options{MaxBytes: e.Bytes, Log: a.log, DockerHost: e.Engine})
	if err != nil {
		return err
	}
	env, err := cache.Prepare(ctx, berth.LaunchEnv{Name: x.spec.Name, Image: x.spec.Image}, func(s string) { a.log.Info(s, "app", x.spec.Name) }, func(s string) { a.warn(s) })
	if berth.CodeOf(err) == berth.Unsupported || err == nil && env.Container == nil {
		return berth.Errorf(berth.Unsupported, "its image %s needs a container engine, but none responds; install Docker or Podman on the server's machine, then restart the instance", x.spec.Image)
	}
	if err != nil {
		return err
	}
	defer env.Release()
	log, err := os.OpenFile(filepath.Join(a.dir, "log", "app-"+x.spec.Name+".log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	var out io.Writer = log
	if err != nil {
		out = io.Discard
	} else {
		defer log.Close()
	}
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		began := time.Now()
		err := a.serveApp(ctx, x, env.Container, out)
		if ctx.Err() != nil {
			return nil
		}
		x.set("", "it ended and is being restarted: "+err.Error())
		a.show()
		if time.Since(began) > time.Minute {
			wait = time.Second
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
	}
}

// serveApp runs the container to its end.
func (a *agent) serveApp(ctx context.Context, x *app, c *envs.Container, log io.Writer) error {
	spec := envs.ContainerSpec{
		Name: "berth-" + a.c.Node + "-" + strings.ToLower(x.spec.Name), Network: "bridge", Log: log, GPUs: a.c.GPUs, CPUs: a.c.CPUs, Memory: a.c.Memory,
		Labels: map[string]string{envs.Label + ".node": a.c.Node}, Image: true,
	}
	if x.host {
		spec.Network = "host"
	}
	for k, v := range x.spec.Env {
		spec.Env = append(spec.Env, k+"="+v)
	}
	for _, b := range x.spec.Binds {
		host, err := a.bindSource(b.Source)
		if err != nil {
			return err
		}
		spec.Mounts = append(spec.Mounts, envs.Mount{Host: host, Path: b.Target, ReadOnly: b.ReadOnly})
	}
	run, err := c.Start(ctx, spec)
	if err != nil {
		return err
	}
	defer func() { _ = run.Remove(context.WithoutCancel(ctx)) }()
	x.mu.Lock()
	x.run = run
	x.mu.Unlock()
	ip := "127.0.0.1"
	if !x.host {
		if ip, err = run.Address(ctx); berth.CodeOf(err) == berth.Unsupported {
			x.host = true
			a.warn(fmt.Sprintf("application %s shares the machine's network, because the container engine has no other: its port %d is open to everybody on it", x.spec.Name, x.spec.Port))
		}
		if err != nil {
			return err
		}
	}
	x.set(net.JoinHostPort(ip, strconv.Itoa(x.spec.Port)), "")
	a.show()
	code, _, err := run.Wait(ctx)
	if err != nil {
		return err
	}
	return fmt.Errorf("it ended with exit code %d", code)
}

// bindSource is the directory of the instance that an application asks for. Azure's paths of the
// home are the home's.
func (a *agent) bindSource(source string) (string, error) {
	for _, home := range []string{"/home/azureuser", "~"} {
		if rest, ok := strings.CutPrefix(source, home); ok && (rest == "" || rest[0] == '/') {
			source = rest
			break
		}
	}
	path := filepath.Join(a.home(), filepath.Clean("/"+source))
	return path, os.MkdirAll(path, 0o700)
}

func (x *app) set(addr, why string) {
	x.mu.Lock()
	x.addr, x.why = addr, why
	x.mu.Unlock()
}

func (x *app) problem() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.why
}

// dial connects to the application; an open connection counts as use.
func (x *app) dial(ctx context.Context) (net.Conn, func(), error) {
	x.mu.Lock()
	addr, why := x.addr, x.why
	x.mu.Unlock()
	if why != "" {
		return nil, nil, fmt.Errorf("application %s is not running: %s", x.spec.Name, why)
	}
	d := net.Dialer{Timeout: 10 * time.Second}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, fmt.Errorf("application %s does not answer: %w", x.spec.Name, err)
	}
	x.mu.Lock()
	x.open++
	x.mu.Unlock()
	return c, func() {
		x.mu.Lock()
		x.open--
		x.last = time.Now()
		x.mu.Unlock()
	}, nil
}

func (x *app) signal() devbox.Signal {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := devbox.Signal{Name: "apps", Last: x.last, Why: "application " + x.spec.Name + " was used"}
	if x.open > 0 {
		s.Busy, s.Why = true, fmt.Sprintf("application %s has %d open connections", x.spec.Name, x.open)
	}
	return s
}

// end stops the application.
func (x *app) end() {
	x.mu.Lock()
	run := x.run
	x.mu.Unlock()
	if run != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = run.Remove(ctx)
	}
}
