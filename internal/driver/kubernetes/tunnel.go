package kubernetes

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver/dialout"
)

// A tunnel is for pods that cannot reach the server's address. The driver brings the program into
// the pod by a command that the API server runs there, and starts it once more beside the task
// (TunnelMain): it listens on the pod's own loopback address, and what connects there is passed on
// to the server over the standard input and output of that command. A tunnel that is cut is opened
// again; the runner waits meanwhile, as for a server that is away.

// Ways to the server, for initScript.
const (
	wayAuto   = "auto"   // itself if it can
	wayTunnel = "tunnel" // through the driver
	wayDirect = "direct" // itself
)

// Files in a pod by which the init container and the driver speak.
const (
	wantedFile = "tunnel-wanted"
	hereFile   = "program-here"
)

// tunnelAddress is where a task reaches the server through a tunnel: no other pod sees it.
const tunnelAddress = "127.0.0.1:41437"

// tunnelAnnotation marks Jobs whose pods use a tunnel, for a server that begins again.
const tunnelAnnotation = "berth/tunnel"

// slowInit is how long an init container may run before it is asked whether it reaches the server.
const slowInit = 3 * time.Second

// tunnels are those that the driver keeps.
type tunnels struct {
	mu      sync.Mutex
	needed  string                        // why pods of this cluster need them; empty while none did
	reached map[string]bool               // images from which a pod has reached the server by itself
	doubted time.Time                     // when a pod last did not, although one before it had
	kept    map[string]context.CancelFunc // by pod, that are looked after
	seen    map[string]time.Time          // by pod, since when its init container runs
	told    chan struct{}                 // fires when needed is new
	group   sync.WaitGroup
}

// way is how pods are to reach the server, before one has tried.
func (s site) way() string {
	switch s.Tunnel {
	case "always":
		return wayTunnel
	case "never":
		return wayDirect
	}
	return wayAuto
}

// way is how the next pod is to reach the server: as one before it had to.
func (d *Driver) way(s site) site {
	switch {
	case d.c.Dial == nil:
		s.Tunnel = "never"
	case s.way() == wayAuto && d.tunnels.why() != "":
		s.Tunnel = "always"
	}
	return s
}

func (t *tunnels) why() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.needed
}

// need notes why pods need tunnels. It says whether that is new.
func (t *tunnels) need(why string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.needed != "" {
		return false
	}
	t.needed = why
	select {
	case t.told <- struct{}{}:
	default:
	}
	return true
}

// keepTunnels looks after the pods that may need a tunnel.
func (d *Driver) keepTunnels(c *client, s site, jobs []job, pods map[string]map[int]*pod) {
	if s.way() == wayDirect || d.c.Dial == nil {
		return
	}
	t := &d.tunnels
	t.mu.Lock()
	defer t.mu.Unlock()
	there := map[string]bool{}
	for i := range jobs {
		j := &jobs[i]
		there[j.Metadata.Name] = true
		for _, p := range pods[j.Metadata.Name] {
			uid := p.Metadata.UID
			if p.over() {
				continue
			}
			there[uid] = true
			if t.wants(j, p) {
				d.beginTunnel(c, j.Metadata.Name, p)
			}
		}
	}
	for uid, cancel := range t.kept {
		if !there[uid] {
			cancel()
			delete(t.kept, uid)
		}
	}
	for uid := range t.seen {
		if !there[uid] {
			delete(t.seen, uid)
		}
	}
}

// beginTunnel looks after a pod, unless somebody does. The mutex of the tunnels is held.
func (d *Driver) beginTunnel(c *client, job string, p *pod) {
	t := &d.tunnels
	if t.kept[p.Metadata.UID] != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.kept[p.Metadata.UID] = cancel
	t.group.Go(func() { d.keepTunnel(ctx, c, job, p.Metadata.Name) })
}

// podTime is how long the pods of a new Job are waited for; later ones are seen by Observe.
const podTime = 20 * time.Second

// expectTunnels looks after the n pods of a new Job that will need tunnels, as soon as they are
// there.
func (d *Driver) expectTunnels(c *client, job string, n int) {
	t := &d.tunnels
	t.mu.Lock()
	defer t.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), podTime)
	t.kept[job] = cancel
	t.group.Go(func() {
		defer cancel()
		for found := 0; found < n; {
			pods, err := list[pod](ctx, c, c.in("", "pods", ""), "batch.kubernetes.io/job-name="+job, "")
			t.mu.Lock()
			if found = len(pods); err == nil && ctx.Err() == nil {
				for i := range pods {
					d.beginTunnel(c, job, &pods[i])
				}
			}
			t.mu.Unlock()
			select {
			case <-ctx.Done():
				return
			case <-time.After(300 * time.Millisecond):
			}
		}
	})
}

// wants says whether a pod may need a tunnel. The mutex is held.
func (t *tunnels) wants(j *job, p *pod) bool {
	if j.Metadata.Annotations[tunnelAnnotation] != "" {
		return true
	}
	if running(p.Status.InitContainerStatuses, initName) == nil {
		return false
	}
	since, known := t.seen[p.Metadata.UID]
	if !known {
		since = time.Now()
		t.seen[p.Metadata.UID] = since
	}
	return time.Since(since) >= slowInit
}

// end lets go of all tunnels.
func (t *tunnels) end() {
	t.mu.Lock()
	for uid, cancel := range t.kept {
		cancel()
		delete(t.kept, uid)
	}
	t.mu.Unlock()
	t.group.Wait()
}

// running finds a container that runs.
func running(all []containerStatus, name string) *containerStatus {
	for i := range all {
		if all[i].Name == name && all[i].State.Running != nil {
			return &all[i]
		}
	}
	return nil
}

// keepTunnel gives a pod what it needs to reach the server, until the pod has ended.
func (d *Driver) keepTunnel(ctx context.Context, c *client, job, name string) {
	pause := 300 * time.Millisecond
	for ctx.Err() == nil {
		used, err := d.tunnelStep(ctx, c, job, name)
		switch {
		case ctx.Err() != nil || errors.Is(err, errOver):
			return
		case berth.CodeOf(err) == berth.Denied:
			d.endWithoutTunnel(ctx, c, job, err)
			return
		case err != nil:
			d.log.Warn("a tunnel to a pod is not open; trying again", "pod", name, "err", err)
		}
		if pause = min(2*pause, 5*time.Second); used {
			pause = 300 * time.Millisecond
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// errOver says that a pod needs no tunnel any more.
var errOver = errors.New("the pod is over")

// tunnelStep does the next thing for a pod. used says that a tunnel stood, or the program was
// brought.
func (d *Driver) tunnelStep(ctx context.Context, c *client, job, name string) (used bool, err error) {
	all, err := list[pod](ctx, c, c.in("", "pods", ""), "", "metadata.name="+name)
	if err != nil {
		return false, err
	}
	if len(all) == 0 || all[0].over() {
		return false, errOver
	}
	p := &all[0]
	switch {
	case running(p.Status.InitContainerStatuses, initName) != nil:
		err := d.bringProgram(ctx, c, job, name)
		if e, ok := errors.AsType[*exitError](err); ok && e.code == 1 {
			return true, nil // it has not asked for it yet
		}
		return err == nil, err
	case running(p.Status.ContainerStatuses, mainName) != nil:
		return true, d.openTunnel(ctx, c, name)
	}
	return true, nil // between the two
}

// bringProgram sends the program to an init container that asks for it.
func (d *Driver) bringProgram(ctx context.Context, c *client, job, name string) error {
	err := c.exec(ctx, name, initName, []string{"/bin/sh", "-c", "cd " + workDir + " && [ -e " + wantedFile + " ] && [ ! -e " + hereFile + " ]"}, nil, io.Discard)
	if err != nil {
		return err
	}
	if d.tunnels.need("its pods cannot reach the server at its address (advertise in berth.yaml): they are connected to it through the API server of the cluster") {
		d.log.Info("pods reach the server through the API server of their cluster", "compute", d.c.Name)
	}
	patch := object{"metadata": object{"annotations": object{tunnelAnnotation: "yes"}}}
	if err := c.do(ctx, http.MethodPatch, c.in(batch, "jobs", job), nil, patch, nil); err != nil {
		return gone(err)
	}
	f, err := openProgram()
	if err != nil {
		return berth.Errorf(berth.Unavailable, "the server's program cannot be read: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	// The input of a command cannot be ended, so it is told how much there is.
	script := fmt.Sprintf("cd %s && umask 000 && head -c %d >program && : >%s", workDir, info.Size(), hereFile)
	return c.exec(ctx, name, initName, []string{"/bin/sh", "-c", script}, f, io.Discard)
}

// openProgram opens this program, which may have been replaced on disk.
func openProgram() (*os.File, error) {
	if f, err := os.Open("/proc/self/exe"); err == nil {
		return f, nil
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return os.Open(exe)
}

// openTunnel keeps a tunnel until it is cut.
func (d *Driver) openTunnel(ctx context.Context, c *client, name string) error {
	conn, err := c.attend(ctx, name, mainName, []string{workDir + "/program", "_tunnel", "--listen", tunnelAddress})
	if err != nil {
		return err
	}
	defer conn.Close()
	return dialout.Relay(ctx, conn, d.c.Dial, d.log)
}

// endWithoutTunnel ends a Job whose pod cannot reach the server, because the account may not help
// it.
func (d *Driver) endWithoutTunnel(ctx context.Context, c *client, name string, err error) {
	why := "its pod cannot reach the server at its address (advertise in berth.yaml), and cannot be connected to it through the API server: " + err.Error() +
		"; `berth compute attach --print-rbac` prints what the account needs"
	if err := c.end(ctx, name, stopped{Cause: "staging", Why: why}, time.Second); err != nil && ctx.Err() == nil {
		d.log.Warn("a Job whose pod cannot reach the server was not ended", "job", name, "err", err)
	}
}

// TunnelMain is the hidden command `_tunnel --listen ADDRESS`. It returns the exit code of the
// process.
func TunnelMain(args []string) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	flags := flag.NewFlagSet("_tunnel", flag.ContinueOnError)
	at := flags.String("listen", "", "address for the connections of the task")
	if err := flags.Parse(args); err != nil || *at == "" {
		return 2
	}
	ctx := context.Background()
	l, err := listen(ctx, *at)
	if err != nil {
		log.Error("no tunnel", "err", err)
		return 1
	}
	err = dialout.ServeRelay(ctx, l, stdio{}, log)
	log.Info("the tunnel was cut", "err", err)
	return 0
}

// listen listens at an address that the last tunnel may still have: it ends when it has heard
// nothing for a while.
func listen(ctx context.Context, at string) (l net.Listener, err error) {
	for range 120 {
		if l, err = new(net.ListenConfig).Listen(ctx, "tcp", at); err == nil {
			return l, nil
		}
		time.Sleep(500 * time.Millisecond)
	}
	return nil, err
}

// stdio is the standard input and output of this process as a connection.
type stdio struct{}

func (stdio) Read(b []byte) (int, error)  { return os.Stdin.Read(b) }
func (stdio) Write(b []byte) (int, error) { return os.Stdout.Write(b) }
func (stdio) Close() error                { return errors.Join(os.Stdin.Close(), os.Stdout.Close()) }
