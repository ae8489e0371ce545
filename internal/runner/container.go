package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
	"github.com/berthml/berth/internal/runner/data"
)

// containerLabel marks a task's container.
const containerLabel = "ml.berth.task"

// chooseShell runs its argument with bash where the image has one, and with sh where not.
const chooseShell = `if command -v bash >/dev/null 2>&1; then exec bash -c "$0"; else exec sh -c "$0"; fi`

// box is a command that runs in a container.
type box struct {
	t      *task
	r      *envs.Running
	code   int
	oom    bool
	err    error
	killed bool

	patient patient
	sampler sampler
	inside  insight
	silent  bool // it was said that the engine does not tell what it uses
}

// startContainer starts the command in the image of its environment. The task's directory has the
// same name inside, so that every path means the same on both sides.
func (t *task) startContainer(ctx context.Context, s *Spec) (running, error) {
	c := envs.ContainerSpec{
		Name:    t.unique(),
		Cmd:     []string{"/bin/sh", "-c", chooseShell, s.Command},
		Env:     s.Env,
		Workdir: s.Dir,
		Mounts:  []envs.Mount{{Host: t.o.Dir, Path: t.o.Dir}},
		User:    strconv.Itoa(os.Getuid()) + ":" + strconv.Itoa(os.Getgid()),
		CPUs:    t.l.CPUs,
		Memory:  t.l.Memory,
		GPUs:    t.l.GPUs,
		LogFile: t.logPath(),
		Labels:  map[string]string{containerLabel: t.unique()},
	}
	if left := c.Apply(t.l.DockerArgs); len(left) > 0 {
		t.warn("docker_args without effect here: " + strings.Join(left, " "))
	}
	if t.l.ShmSize != "" {
		n, err := parseSize(t.l.ShmSize)
		if err != nil {
			return nil, fmt.Errorf("shm_size: %w", err)
		}
		c.ShmSize = n
	}
	for name, in := range t.l.Inputs {
		if p, ok := data.LocalPath(in.URL); ok && t.paths[name] == p {
			from, err := t.mountable(p, in.Below)
			if err != nil {
				return nil, fmt.Errorf("input %s: %w", name, err)
			}
			c.Mounts = append(c.Mounts, envs.Mount{Host: from, Path: p, ReadOnly: !strings.EqualFold(in.Mode, "ReadWriteMount")})
		}
	}
	for _, x := range t.trees {
		if x.to != "" && !x.write {
			c.Mounts = append(c.Mounts, envs.Mount{Host: x.use.Dir, Path: x.to, ReadOnly: true})
		}
	}
	if t.l.Keep != "" {
		c.Mounts = append(c.Mounts, envs.Mount{Host: t.l.Keep, Path: t.l.Keep})
	}
	if t.grouped() {
		if err := t.boxGroup(&c, s); err != nil {
			return nil, err
		}
	}
	if slices.Contains(s.Env, imageProgram+"=1") {
		if err := addProgram(ctx, s.env.Container, &c); err != nil {
			return nil, err
		}
	}
	r, err := s.env.Container.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	return &box{t: t, r: r}, nil
}

// imageProgram is set for a replica that is the image's own server: the process that stands before
// it finds the program in imageCommand.
const (
	imageProgram = "BERTH_IMAGE_PROGRAM"
	imageCommand = "BERTH_COMMAND"
)

// addProgram gives a replica the image's own program.
func addProgram(ctx context.Context, image *envs.Container, c *envs.ContainerSpec) error {
	args, dir, err := image.Program(ctx)
	if err != nil {
		return err
	}
	var line strings.Builder
	if dir != "" {
		line.WriteString("cd " + quote(dir) + " && ")
	}
	line.WriteString("exec")
	for _, a := range args {
		line.WriteString(" " + quote(a))
	}
	c.Env = append(slices.Clone(c.Env), imageCommand+"="+line.String())
	return nil
}

// quote is a word for a shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// mountable is the real path of what is mounted, which must not lie outside of the folder below:
// the engine follows links.
func (t *task) mountable(path, below string) (string, error) {
	if below == "" {
		return path, nil
	}
	root, err := filepath.EvalSymlinks(below)
	if err != nil {
		return "", err
	}
	from, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	if rel, err := filepath.Rel(root, from); err != nil || !filepath.IsLocal(rel) {
		return "", berth.Errorf(berth.Denied, "a link leads out of %s, and is not mounted", below)
	}
	return from, nil
}

// findContainer finds the container an earlier runner started; false when the task is not one for a
// container.
func (t *task) findContainer(ctx context.Context) (running, *berth.Exit, bool) {
	if t.o.Envs == nil {
		return nil, nil, false
	}
	r, err := t.o.Envs.Adopt(ctx, containerLabel, t.unique(), nil)
	switch {
	case err != nil && t.o.Last.Box == "":
		return nil, nil, false
	case err != nil:
		return nil, lost("its container cannot be watched any more: " + err.Error()), true
	case r == nil && t.o.Last.Box == "":
		return nil, nil, false
	case r == nil:
		return nil, lost("its container was removed by somebody else"), true
	}
	return &box{t: t, r: r}, nil, true
}

func (b *box) mark() Mark { return Mark{Step: StepStarted, Box: b.r.ID} }

func (b *box) wait(ctx context.Context, w *waker) (bool, error) {
	return b.patient.wait(w, func() error {
		b.code, b.oom, b.err = b.r.Wait(ctx)
		return ctx.Err()
	})
}

func (b *box) ended(ctx context.Context) (WaitStatus, bool) {
	if b.err != nil && b.code < 0 {
		b.t.o.Log.Warn("waiting for a container", "task", b.t.l.Task, "err", b.err)
		return WaitStatus{}, false
	}
	s := WaitStatus{Code: b.code, OOM: b.oom}
	if b.code > 128 && b.code <= 128+64 && (b.killed || b.oom) {
		s.Signal = b.code - 128
	}
	return s, true
}

func (b *box) ask() { b.signal("SIGTERM") }

func (b *box) kill() {
	b.killed = true
	b.signal("SIGKILL")
}

func (b *box) signal(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := b.r.Kill(ctx, name); err != nil {
		b.t.o.Log.Warn("signalling a container", "task", b.t.l.Task, "err", err)
	}
}

// engineAnswer is how long an engine may take to say what a container uses: meanwhile nobody looks
// after the task.
const engineAnswer = 5 * time.Second

// sample reads the container's processes where this machine shows them, like those of any other
// command, and asks the engine where not: its containers may be in another machine or another world
// of processes.
func (b *box) sample(now time.Time) (berth.Usage, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), engineAnswer)
	defer cancel()
	u, ok := b.look(ctx, now)
	if !ok {
		u, ok = b.inquire(ctx, now)
	}
	if ok {
		u = b.sampler.note(u, b.t.times.Started)
	}
	return u, addGPUs(&u, b.t.l.GPUs) || ok
}

// inquire asks the engine what the container uses.
func (b *box) inquire(ctx context.Context, now time.Time) (berth.Usage, bool) {
	s, err := b.r.Stats(ctx)
	if err != nil {
		if !b.silent {
			b.silent = true
			b.t.o.Log.Warn("a container is not measured", "task", b.t.l.Task, "err", err)
		}
		return berth.Usage{At: now}, false
	}
	return berth.Usage{
		At: now, CPUSeconds: s.CPU.Seconds(), MemoryBytes: s.Memory,
		ReadBytes: s.Read, WriteBytes: s.Written, NetRxBytes: s.NetRx, NetTxBytes: s.NetTx,
	}, true
}

// close removes the container of a command that ended; one that is abandoned stays for the next
// runner.
func (b *box) close(over bool) {
	if !over {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := b.r.Remove(ctx); err != nil {
		b.t.o.Log.Warn("removing a container", "task", b.t.l.Task, "err", err)
	}
}

// parseSize reads a size as Docker writes it: 512m, 2g.
func parseSize(s string) (int64, error) {
	num, shift := strings.ToLower(strings.TrimSpace(s)), 0
	num = strings.TrimSuffix(num, "b")
	for suffix, n := range map[string]int{"k": 10, "m": 20, "g": 30, "t": 40} {
		if rest, ok := strings.CutSuffix(num, suffix); ok {
			num, shift = rest, n
			break
		}
	}
	f, err := strconv.ParseFloat(num, 64)
	if err != nil || f <= 0 {
		return 0, berth.Errorf(berth.Invalid, "%q is not a size: write 512m or 2g", s)
	}
	return int64(f * float64(int64(1)<<shift)), nil
}
