package envs

import (
	"context"
	"io"

	"github.com/berthml/berth"
)

// A Container is an image on this node's engine in which commands can be run.
type Container struct {
	// Image is the reference or id that is run: of the image itself, or of the one made of it and the package lists.
	Image string
	// Engine says what runs it, for people: "Docker 20.10.24", "Podman 4.3.1".
	Engine string

	eng *engine
}

// ContainerSpec is a command to run in a container.
type ContainerSpec struct {
	Name    string // of the container, unique on the engine
	Cmd     []string
	Env     []string // NAME=value, beside the image's own
	Workdir string
	Mounts  []Mount
	User    string // uid[:gid]; empty means the image's
	CPUs    float64
	Memory  int64  // bytes
	ShmSize int64  // bytes; 0 means the engine's default
	GPUs    []int  // indices on the node
	Network string // empty means "host"
	// Log gets standard output and standard error, byte by byte as they were written; all of it has arrived when Wait
	// returns.
	Log    io.Writer
	Labels map[string]string
}

// A Mount makes a file or folder of the node visible in a container.
type Mount struct {
	Host, Path string
	ReadOnly   bool
}

// Running is a container that was started. Its methods may be called by several goroutines.
type Running struct {
	ID string

	eng  *engine
	logs chan error
}

// Start makes a container and starts it. A container of the same name that is left from before is removed.
func (c *Container) Start(ctx context.Context, s ContainerSpec) (*Running, error) {
	return nil, berth.Errorf(berth.Unsupported, "containers are not there yet")
}

// Wait waits for the end and returns the exit code, and whether the kernel ended it for want of memory.
func (r *Running) Wait(ctx context.Context) (code int, oom bool, err error) {
	return -1, false, berth.Errorf(berth.Unsupported, "containers are not there yet")
}

// Kill sends a signal, for example "SIGTERM", to the container's first process. A container that has ended is no error.
func (r *Running) Kill(ctx context.Context, signal string) error { return nil }

// Remove ends the container if it runs and removes it. One that is not there is no error.
func (r *Running) Remove(ctx context.Context) error { return nil }

// Adopt finds a container that a crashed process started, by a label. It returns nil when there is none. log gets the whole
// output again from offset since on; nil when it is not wanted.
func (c *Cache) Adopt(ctx context.Context, label, value string, log io.Writer) (*Running, error) {
	return nil, nil
}

func (c *Cache) container(ctx context.Context, eng *engine, e berth.LaunchEnv, progress, warn func(string)) (*Env, error) {
	return nil, nil
}
