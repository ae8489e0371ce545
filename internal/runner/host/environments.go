package host

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
)

// environments is the machine's cache of environments, opened when the first task needs it.
type environments struct {
	dir string // of the host
	log *slog.Logger

	mu    sync.Mutex
	cache *envs.Cache
}

func (e *environments) open() (*envs.Cache, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cache == nil {
		s, err := loadSettings(e.dir)
		if err != nil {
			return nil, err
		}
		dir := s.Environments
		if dir == "" {
			dir = filepath.Join(e.dir, "envs")
		}
		c, err := envs.Open(dir, envs.Options{Log: e.log, MaxBytes: s.EnvironmentBytes, DockerHost: s.Engine})
		if err != nil {
			return nil, err
		}
		e.cache = c
	}
	return e.cache, nil
}

// Prepare is [envs.Cache.Prepare].
func (e *environments) Prepare(ctx context.Context, l berth.LaunchEnv, progress, warn func(string)) (*envs.Env, error) {
	c, err := e.open()
	if err != nil {
		return nil, err
	}
	return c.Prepare(ctx, l, progress, warn)
}

// Machine is [envs.Cache.Machine].
func (e *environments) Machine(ctx context.Context, host []string, job map[string]string, dir string) *envs.Base {
	c, err := e.open()
	if err != nil {
		return nil
	}
	return c.Machine(ctx, host, job, dir)
}

// Adopt is [envs.Cache.Adopt].
func (e *environments) Adopt(ctx context.Context, label, value string, log io.Writer) (*envs.Running, error) {
	c, err := e.open()
	if err != nil {
		return nil, err
	}
	return c.Adopt(ctx, label, value, log)
}
