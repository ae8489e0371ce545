// Package envs turns the environment a task names into something a command can run in: a virtual
// environment built from its package lists and kept by content, a container of its image, or the
// node as it is.
//
// A cache directory is shared by every process of the node. One environment is one directory named
// by the hash of the request; it is complete when its marker is there, and a lock file per hash
// says who builds and who uses it, so builders wait for each other, a crash leaves nothing that is
// taken for complete, and eviction spares what is in use.
package envs

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// DefaultMaxBytes is how much a cache may hold when Options does not say.
const DefaultMaxBytes = 40 << 30

// Options adjust a Cache. The zero value is good.
type Options struct {
	// MaxBytes is how much the cached environments and downloaded packages may take; the least
	// recently used go first, the ones in use never. 0 means DefaultMaxBytes, a negative number no
	// limit.
	MaxBytes int64
	Log      *slog.Logger
	// UV is the path of the uv program; empty means the one on PATH, or else one that is fetched
	// once into the cache.
	UV string
	// DockerHost is the address of the container engine, for example unix:///run/docker.sock. Empty
	// means DOCKER_HOST, or else the usual sockets of Docker and Podman; "none" means that there is
	// no engine.
	DockerHost string
	// StrictPython refuses an interpreter of another minor version than the one asked for, instead
	// of warning.
	StrictPython bool
	// NoPythonDownload keeps uv from fetching interpreters that the node does not have.
	NoPythonDownload bool
	// KeepAnswers keeps what the machine's Pythons say of themselves in files, for processes that
	// come later: those that run one task each would have to ask every time.
	KeepAnswers bool
}

// A Cache makes environments usable on this node and keeps them. It is safe for concurrent use, and
// several processes may open the same directory.
type Cache struct {
	dir string
	o   Options
	log *slog.Logger

	engine engineProbe

	uvMu   sync.Mutex
	uvPath string

	pyMu     sync.Mutex
	pyFailed map[string]bool // versions whose download was tried in vain

	bases bases
}

// Open opens the cache in dir, makes it when it is not there, and removes what crashed builds left.
func Open(dir string, o Options) (*Cache, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Cache{dir: dir, o: o, log: o.Log, pyFailed: map[string]bool{}}
	for _, d := range []string{c.path("envs"), c.path("locks"), c.path("logs"), c.path("images"), c.path("tmp"), c.path("trash")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("opening environment cache: %w", err)
		}
	}
	c.sweep()
	return c, nil
}

func (c *Cache) path(elem ...string) string {
	return filepath.Join(append([]string{c.dir}, elem...)...)
}

// Env is an environment ready for use. Release it when the command has ended.
type Env struct {
	// Dir is the environment's directory; empty when there is none: the node as it is, or a
	// container.
	Dir string
	// Vars are variables to set for the command. PATH is not among them: see PathPrefix.
	Vars map[string]string
	// PathPrefix are directories to put before PATH.
	PathPrefix []string
	// Container is set when the command has to run inside an image.
	Container *Container
	Hash      string // identifies the content; empty for the node as it is
	Cached    bool   // it was there already
	Took      time.Duration
	// Python is the version of the interpreter of a virtual environment.
	Python string

	settling sync.WaitGroup // writing to disk in the background
	mu       sync.Mutex
	hold     *os.File
}

// Hold is an open file that keeps the environment from being evicted, or nil. A child that inherits
// it (os/exec's ExtraFiles) keeps the environment even when this process dies. Release closes this
// process's copy.
func (e *Env) Hold() *os.File {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hold
}

// Release lets eviction take the environment. Further calls do nothing.
func (e *Env) Release() {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hold == nil {
		return
	}
	e.settling.Wait()
	touch(e.Dir)
	e.hold.Close()
	e.hold = nil
}

// Prepare makes e usable on this node. progress gets short lines for people, warn gets what the
// user has to see: a base image that was not used, a package that was left out. Either may be nil.
// Errors carry a code: Invalid when the environment cannot be had as it is written, Unsupported
// when this node cannot do it, Unavailable when another attempt may succeed.
func (c *Cache) Prepare(ctx context.Context, e berth.LaunchEnv, progress, warn func(string)) (*Env, error) {
	if progress == nil {
		progress = func(string) {}
	}
	if warn == nil {
		warn = func(string) {}
	}
	start := time.Now()
	env, err := c.prepare(ctx, e, progress, warn)
	if err != nil {
		return nil, err
	}
	env.Took = time.Since(start)
	return env, nil
}

func (c *Cache) prepare(ctx context.Context, e berth.LaunchEnv, progress, warn func(string)) (*Env, error) {
	packages := strings.TrimSpace(e.Conda) != "" || strings.TrimSpace(e.Pip) != ""
	if e.Image == "" && e.Build == "" {
		switch {
		case packages:
			return c.packages(ctx, e, progress, warn)
		case strings.EqualFold(e.Name, Python):
			return c.venv(ctx, request{Kind: kindVenv}, progress, warn)
		}
		if cur, ok := Curated(e.Name); ok {
			return c.packages(ctx, cur, progress, warn)
		}
		return &Env{}, nil
	}

	eng, why := c.engine.find(ctx, c.o.DockerHost)
	if eng != nil {
		return c.container(ctx, eng, e, progress, warn)
	}
	base := "its image " + e.Image
	if e.Image == "" {
		base = "its Docker build context"
	}
	switch {
	case packages:
		warn(fmt.Sprintf("%s was not used: %s; the environment was built from its package list alone", base, why))
		return c.packages(ctx, e, progress, warn)
	case e.Host:
		warn(fmt.Sprintf("%s was not used: %s; the command runs on the node as it is", base, why))
		return &Env{}, nil
	}
	if known, ok := knownImage(e.Image); ok && e.Build == "" {
		warn(fmt.Sprintf("%s was not used: %s; the Python packages of that image are known, and the command runs with them on the node", base, why))
		return c.packages(ctx, known, progress, warn)
	}
	return nil, berth.Errorf(berth.Unsupported, "environment %s needs a container for %s, and %s: install Docker or Podman on the node, "+
		"give the environment a conda_file, or let the command run on the node as it is with --environment host (of berth run and berth job create)", name(e), base, why)
}

// Python is the name of the environment that is a bare interpreter of its own, without packages.
const Python = "python"

// packages prepares the environment of e's package lists.
func (c *Cache) packages(ctx context.Context, e berth.LaunchEnv, progress, warn func(string)) (*Env, error) {
	r, err := parse(e)
	if err != nil {
		return nil, err
	}
	if len(r.Foreign) > 0 {
		tool := condaTool()
		if tool == "" {
			return nil, r.refusal(name(e))
		}
		r = r.solved(e, tool)
	}
	for _, w := range r.Warnings {
		warn(w)
	}
	return c.venv(ctx, r, progress, warn)
}

func name(e berth.LaunchEnv) string {
	if e.Name == "" || strings.HasPrefix(e.Name, "CliV2AnonymousEnvironment") {
		return "of the job"
	}
	return e.Name
}
