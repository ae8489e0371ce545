package envs

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth/internal/docker"
)

// An engine is a Docker or Podman that answers on this node.
type engine struct {
	cli    *docker.Client
	host   string
	name   string // for people
	podman bool
}

// An engineProbe finds the engine and remembers the answer for a while: engines come and go, but
// not between two tasks.
type engineProbe struct {
	mu  sync.Mutex
	at  time.Time
	eng *engine
	why string
}

// Where nothing listens that is known at once. What listens may have much to do, Podman starts
// programs to say its version, and a job whose engine is given up runs without its image or not at
// all.
const (
	probeEvery   = 30 * time.Second
	probeTimeout = 30 * time.Second
)

// find is the engine at host, or why there is none. An empty host means DOCKER_HOST or the usual
// sockets.
func (p *engineProbe) find(ctx context.Context, host string) (*engine, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at.IsZero() && time.Since(p.at) < probeEvery {
		return p.eng, p.why
	}
	eng, why := findEngine(ctx, host)
	if ctx.Err() == nil {
		if p.eng != nil {
			p.eng.cli.Close()
		}
		p.at, p.eng, p.why = time.Now(), eng, why
	}
	return eng, why
}

func findEngine(ctx context.Context, host string) (*engine, string) {
	if host == "none" {
		return nil, "containers are switched off on this node"
	}
	if host == "" {
		host = os.Getenv("DOCKER_HOST")
	}
	if host != "" {
		eng, err := connect(ctx, host)
		if err != nil {
			return nil, fmt.Sprintf("the container engine at %s does not answer (%s)", mask(host), short(err))
		}
		return eng, ""
	}
	why := "this node has no container engine (neither Docker nor Podman answers)"
	for _, s := range sockets() {
		if _, err := os.Stat(s); err != nil {
			continue
		}
		eng, err := connect(ctx, "unix://"+s)
		if err == nil {
			return eng, ""
		}
		why = fmt.Sprintf("the container engine at %s does not answer (%s)", s, short(err))
	}
	return nil, why
}

// sockets are where Docker and Podman listen, of the machine and of the user.
func sockets() []string {
	out := []string{"/var/run/docker.sock"}
	run := os.Getenv("XDG_RUNTIME_DIR")
	if run != "" {
		out = append(out, filepath.Join(run, "docker.sock"))
	}
	out = append(out, "/run/podman/podman.sock")
	if run != "" {
		out = append(out, filepath.Join(run, "podman", "podman.sock"))
	}
	return out
}

// connect asks the engine at host who it is. The API version is the newest that both sides know.
func connect(ctx context.Context, host string) (*engine, error) {
	var encrypted *tls.Config
	if host == os.Getenv("DOCKER_HOST") {
		var err error
		if encrypted, err = docker.EnvironmentTLS(); err != nil {
			return nil, err
		}
	}
	cli, err := docker.New(host, encrypted)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := cli.Ping(ctx); err != nil {
		cli.Close()
		return nil, err
	}
	v, err := cli.Version(ctx)
	if err != nil {
		cli.Close()
		return nil, err
	}
	eng := &engine{cli: cli, host: host, name: "Docker " + v.Version}
	for _, c := range v.Components {
		if strings.Contains(c.Name, "Podman") {
			eng.podman, eng.name = true, "Podman "+c.Version
		}
	}
	return eng, nil
}

// short is the first line of an error, for the middle of a sentence.
func short(err error) string {
	s, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(mask(s), ".")
}
