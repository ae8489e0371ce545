package envs

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/docker"
)

// Label marks every container and image of ours.
const Label = "ml.berth"

// A Container is an image on this node's engine in which commands can be run.
type Container struct {
	// Image is what is run: the id of the image itself, or of the one made of it and the package
	// lists.
	Image string
	// Engine says what runs it, for people: "Docker 20.10.24", "Podman 4.3.1".
	Engine string

	eng *engine
}

// ContainerSpec is a command to run in a container.
type ContainerSpec struct {
	Name    string // of the container; one of ours with the same name is replaced
	Cmd     []string
	Env     []string // NAME=value, beside the image's own
	Workdir string
	Mounts  []Mount
	User    string // uid[:gid]; empty means the image's
	CPUs    float64
	Memory  int64  // bytes; 0 means no limit
	ShmSize int64  // bytes; 0 means the engine's default
	GPUs    []int  // indices on the node
	Network string // empty means "host"
	IPC     string // empty means the engine's default
	CapAdd  []string
	Ulimits []string // name=soft[:hard]
	// LogFile is a file of the node that gets standard output and standard error appended, straight
	// from the process: no byte passes through the engine, and output goes on when this process
	// dies. The container's user must be able to write it.
	LogFile string
	// Log gets standard output and standard error when LogFile is empty, as they were written; all
	// of it has arrived when Wait returns.
	Log    io.Writer
	Labels map[string]string
	// Image runs the image's own program, as it is.
	Image bool
}

// A Mount makes a file or folder of the node visible in a container.
type Mount struct {
	Host, Path string
	ReadOnly   bool
}

// Running is a container that was started. Its methods may be called by several goroutines.
type Running struct {
	ID string

	eng    *engine
	copied chan error // closed when there is no more output; nil when nobody copies it
	killed atomic.Bool
}

// logPath is where LogFile is seen inside.
const logPath = "/.berth-log"

// initScript is the container's first process. It stays there to wait for what is left when the
// container is asked to end: the end of the first process is the end of all the others, and a
// program that saves its state on SIGTERM is often not the shell's own child.
const initScript = `trap 't=1' TERM INT
if [ -e ` + logPath + ` ]; then "$@" >>` + logPath + ` 2>&1; else "$@" 2>&1; fi
c=$?
while [ "$t" ] && kill -0 -1 2>/dev/null; do sleep 0.1 2>/dev/null || sleep 1; done
exit $c`

// Start makes a container and starts it.
func (c *Container) Start(ctx context.Context, s ContainerSpec) (*Running, error) {
	create := func() (string, error) { return c.eng.cli.Create(ctx, s.Name, c.config(s), c.hostConfig(s)) }
	id, err := create()
	if docker.Status(err) == http.StatusConflict && c.eng.removeOurs(ctx, s.Name) {
		id, err = create()
	}
	if err != nil {
		return nil, engineError("making the container", err)
	}
	r := &Running{ID: id, eng: c.eng}
	if s.LogFile == "" && s.Log != nil {
		// Attached before the start, or the first output is lost.
		if err := r.attach(ctx, s.Log); err != nil {
			_ = r.Remove(context.WithoutCancel(ctx))
			return nil, engineError("reading the container's output", err)
		}
	}
	if err := c.eng.cli.Start(ctx, id); err != nil {
		_ = r.Remove(context.WithoutCancel(ctx))
		return nil, engineError("starting the container", err)
	}
	return r, nil
}

// Program is the image's own program with its arguments, and the folder it starts in.
func (c *Container) Program(ctx context.Context) (args []string, dir string, err error) {
	i, err := c.eng.cli.Image(ctx, c.Image)
	if err != nil {
		return nil, "", engineError("looking at the image", err)
	}
	args = append(args, i.Config.Entrypoint...)
	args = append(args, i.Config.Cmd...)
	if len(args) == 0 {
		return nil, "", berth.Errorf(berth.Invalid, "the image has no program of its own (ENTRYPOINT, CMD): name one in the property berth.command")
	}
	return args, i.Config.WorkingDir, nil
}

func (c *Container) config(s ContainerSpec) docker.Config {
	labels := map[string]string{Label: "task"}
	maps.Copy(labels, s.Labels)
	if s.Image {
		return docker.Config{Image: c.Image, Cmd: s.Cmd, Env: s.Env, User: s.User, Labels: labels, AttachStdout: true, AttachStderr: true}
	}
	return docker.Config{
		Image: c.Image, Entrypoint: []string{"/bin/sh", "-c", initScript, "berth"}, Cmd: s.Cmd,
		Env: s.Env, WorkingDir: s.Workdir, User: s.User, Labels: labels,
		AttachStdout: s.LogFile == "", AttachStderr: s.LogFile == "",
	}
}

func (c *Container) hostConfig(s ContainerSpec) docker.HostConfig {
	h := docker.HostConfig{NetworkMode: "host", ShmSize: s.ShmSize}
	if s.Network != "" {
		h.NetworkMode = s.Network
	}
	h.IpcMode, h.CapAdd = s.IPC, s.CapAdd
	for _, u := range s.Ulimits {
		if l, ok := ulimit(u); ok {
			h.Ulimits = append(h.Ulimits, l)
		}
	}
	h.NanoCPUs = int64(s.CPUs * 1e9)
	if s.Memory > 0 {
		h.Memory, h.MemorySwap = s.Memory, s.Memory // equal: no swap on top
	}
	mounts := s.Mounts
	if s.LogFile != "" {
		mounts = append(mounts[:len(mounts):len(mounts)], Mount{Host: s.LogFile, Path: logPath})
	}
	for _, m := range mounts {
		h.Mounts = append(h.Mounts, docker.Mount{Type: "bind", Source: m.Host, Target: m.Path, ReadOnly: m.ReadOnly})
	}
	if len(s.GPUs) > 0 {
		ids := make([]string, len(s.GPUs))
		for i, g := range s.GPUs {
			ids[i] = strconv.Itoa(g)
			if c.eng.podman { // by CDI; it does not know device requests
				h.Devices = append(h.Devices, docker.Device{PathOnHost: "nvidia.com/gpu=" + ids[i]})
			}
		}
		if !c.eng.podman {
			h.DeviceRequests = []docker.DeviceRequest{{Driver: "nvidia", DeviceIDs: ids, Capabilities: [][]string{{"gpu"}}}}
		}
	}
	return h
}

// attach copies the output to w until the container ends.
func (r *Running) attach(ctx context.Context, w io.Writer) error {
	res, err := r.eng.cli.Attach(context.WithoutCancel(ctx), r.ID)
	if err != nil {
		return err
	}
	r.copy(w, res)
	return nil
}

// copy writes a container's output to w until it ends.
func (r *Running) copy(w io.Writer, out io.ReadCloser) {
	r.copied = make(chan error, 1)
	go func() {
		defer close(r.copied)
		defer out.Close()
		if err := docker.Copy(w, out); err != nil {
			r.copied <- err
		}
	}()
}

// patience is how long an engine may be away, being restarted, before a container of it counts as
// lost.
const patience = 2 * time.Minute

// Wait waits for the end and returns the exit code, 128+N for signal N, and whether the kernel
// ended something in it for want of memory. A container that is gone is NotFound; an engine that
// stays away is Unavailable.
func (r *Running) Wait(ctx context.Context) (code int, oom bool, err error) {
	var pauseFor time.Duration
	var since time.Time
	for {
		code, err = r.eng.cli.Wait(ctx, r.ID)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return -1, false, context.Cause(ctx)
		}
		if docker.Status(err) == http.StatusNotFound {
			return -1, false, berth.Errorf(berth.NotFound, "the container was removed by somebody else")
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) > patience {
			return -1, false, engineError("waiting for the container", err)
		}
		if err := pause(ctx, &pauseFor); err != nil {
			return -1, false, err
		}
	}
	if r.copied != nil {
		select {
		case err = <-r.copied:
		case <-ctx.Done():
			return -1, false, context.Cause(ctx)
		}
	}
	oom = r.oomKilled(ctx, code)
	if err != nil {
		return code, oom, engineError("reading the container's output", err)
	}
	return code, oom, nil
}

// oomPatience is how long an engine may take to notice that a container which is over ended for
// lack of memory: it is told so by the kernel on another way than of the end itself.
const oomPatience = 2 * time.Second

// oomKilled says whether a container that ended with code was out of memory.
func (r *Running) oomKilled(ctx context.Context, code int) bool {
	for begin, pauseFor := time.Now(), time.Duration(0); ; {
		res, err := r.eng.cli.Inspect(ctx, r.ID)
		if err != nil {
			return false
		}
		limited := res.HostConfig.Memory > 0
		switch {
		case res.State.OOMKilled:
			return true
		case !limited || code != 128+int(syscall.SIGKILL) || r.killed.Load():
			return false
		case r.eng.podman: // it notices the first process only. 2026-11, Podman 4.3; can go when it reports the others.
			return true
		}
		if time.Since(begin) > oomPatience || pause(ctx, &pauseFor) != nil {
			return false
		}
	}
}

// Kill sends a signal, for example "SIGTERM", to every process of the container. One that has ended
// is not an error.
func (r *Running) Kill(ctx context.Context, signal string) error {
	r.killed.Store(true)
	err := r.eng.cli.Kill(ctx, r.ID, signal)
	if err == nil && signal != "SIGKILL" && signal != "KILL" {
		// That was for the first process, which knows now that it has to wait for the others; they
		// are reached from inside.
		_ = r.eng.cli.Exec(ctx, r.ID, "/bin/sh", "-c", `kill -s "${0#SIG}" -1`, signal)
	}
	if err == nil || gone(err) {
		return nil
	}
	if res, ierr := r.eng.cli.Inspect(ctx, r.ID); ierr == nil && !res.State.Running {
		return nil
	}
	return engineError("signalling the container", err)
}

// Exec starts a program in the container, with its environment, and does not wait for it.
func (r *Running) Exec(ctx context.Context, cmd ...string) error {
	if err := r.eng.cli.Exec(ctx, r.ID, cmd...); err != nil {
		return engineError("starting a program in the container", err)
	}
	return nil
}

// Address is where the ports of a container are that has a network of its own.
func (r *Running) Address(ctx context.Context) (string, error) {
	res, err := r.eng.cli.Inspect(ctx, r.ID)
	if err != nil {
		return "", engineError("looking at the container", err)
	}
	for _, n := range res.NetworkSettings.Networks {
		if a, err := netip.ParseAddr(n.IPAddress); err == nil {
			return a.String(), nil
		}
	}
	return "", berth.Errorf(berth.Unsupported, "the engine gives containers no address that can be reached from here")
}

// Remove ends the container if it runs and removes it. One that is not there is no error.
func (r *Running) Remove(ctx context.Context) error {
	if err := r.eng.cli.Remove(ctx, r.ID); err != nil && !gone(err) {
		return engineError("removing the container", err)
	}
	return nil
}

// gone says whether err is the answer for a container that has ended or is not there. A conflict is
// a removal under way.
func gone(err error) bool {
	s := docker.Status(err)
	return s == http.StatusNotFound || s == http.StatusConflict
}

// removeOurs removes the container of that name if it is one of ours.
func (e *engine) removeOurs(ctx context.Context, name string) bool {
	res, err := e.cli.Inspect(ctx, name)
	if err != nil || res.Config.Labels[Label] == "" {
		return false
	}
	return (&Running{ID: res.ID, eng: e}).Remove(ctx) == nil
}

// Adopt finds a container that a process before this one started, running or ended, by one of its
// labels. It returns nil when there is none. Where the container had no LogFile, log gets its
// output as the engine kept it, from the start; nil when it is not wanted.
func (c *Cache) Adopt(ctx context.Context, label, value string, log io.Writer) (*Running, error) {
	eng, why := c.engine.find(ctx, c.o.DockerHost)
	if eng == nil {
		return nil, berth.Errorf(berth.Unavailable, "%s", why)
	}
	list, err := eng.cli.List(ctx, label, value)
	if err != nil {
		return nil, engineError("listing containers", err)
	}
	if len(list) == 0 {
		return nil, nil
	}
	r := &Running{ID: list[0], eng: eng}
	if log == nil {
		return r, nil
	}
	out, err := eng.cli.Logs(context.WithoutCancel(ctx), r.ID)
	if err != nil {
		return nil, engineError("reading the container's output", err)
	}
	r.copy(log, out)
	return r, nil
}

// engineError is an error of the engine for people, with the code that fits.
func engineError(doing string, err error) error {
	code := berth.Internal
	switch docker.Status(err) {
	case http.StatusNotFound:
		code = berth.NotFound
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
		code = berth.Invalid
	case http.StatusServiceUnavailable:
		code = berth.Unavailable
	case 0:
		if _, ok := errors.AsType[*docker.ConnectionError](err); ok || os.IsTimeout(err) {
			code = berth.Unavailable
		}
	}
	e := berth.Errorf(code, "%s: %s", doing, mask(err.Error()))
	e.Err = err
	return e
}
