package envs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// markerName is the file that says an environment is complete. It is written last; its time is that of the last use.
const markerName = ".berth-env.json"

// A marker is what is known of a complete environment.
type marker struct {
	Python   string        `json:"python"`
	Bytes    int64         `json:"bytes"`
	Packages []string      `json:"packages,omitempty"` // as installed
	Warnings []string      `json:"warnings,omitempty"` // to be shown to every user of it
	Built    time.Time     `json:"built"`
	Took     time.Duration `json:"took"`
	// Site is the directory of installed packages, Stamp its time when the build ended: a job that installs into a shared
	// environment changes it.
	Site  string    `json:"site,omitempty"`
	Stamp time.Time `json:"stamp,omitzero"`
}

// venv attaches to the environment of r, building it when it is not there.
func (c *Cache) venv(ctx context.Context, r request, progress, warn func(string)) (*Env, error) {
	hash := r.key()
	lock, err := c.openLock(hash)
	if err != nil {
		return nil, err
	}
	m, cached, err := c.acquire(ctx, lock, hash, r, progress, warn)
	if err != nil {
		lock.Close()
		return nil, err
	}
	dir := c.path("envs", hash)
	touch(dir)
	for _, w := range m.Warnings {
		warn(w)
	}
	e := &Env{Dir: dir, PathPrefix: []string{filepath.Join(dir, "bin")}, Hash: hash, Cached: cached, Python: m.Python, hold: lock}
	e.Vars = map[string]string{"PYTHONNOUSERSITE": "1"}
	if r.Kind == kindConda {
		maps.Copy(e.Vars, map[string]string{"CONDA_PREFIX": dir, "CONDA_DEFAULT_ENV": dir})
	} else {
		e.Vars["VIRTUAL_ENV"] = dir
	}
	if !cached {
		c.evict(ctx)
	}
	return e, nil
}

// acquire returns with lock shared and the environment complete. Builders of one hash take turns: whoever finds it
// complete after the wait uses it, and whoever finds it incomplete builds it.
func (c *Cache) acquire(ctx context.Context, lock *os.File, hash string, r request, progress, warn func(string)) (m marker, cached bool, err error) {
	dir := c.path("envs", hash)
	var wait time.Duration
	told := false
	for {
		shared, err := tryLock(lock, syscall.LOCK_SH)
		if err != nil {
			return m, false, err
		}
		changed := false
		if shared {
			m, err = readMarker(dir)
			if err == nil && !m.changed() {
				return m, true, nil
			}
			changed = err == nil
			alone, err := tryLock(lock, syscall.LOCK_EX)
			if err != nil {
				return m, false, err
			}
			if alone {
				if changed {
					progress("a job changed this environment: building it anew")
				}
				m, err = c.build(ctx, lock, hash, r, progress)
				if err != nil {
					return m, false, err
				}
				if ok, err := tryLock(lock, syscall.LOCK_SH); err != nil {
					return m, false, err
				} else if ok {
					return m, false, nil
				}
				continue // somebody was quicker, and can only have found it complete
			}
			if changed {
				if ok, err := tryLock(lock, syscall.LOCK_SH); err == nil && ok {
					warn("a job that still runs changed this environment (pip install in a command?): it is used as it is now")
					return m, true, nil
				}
			}
			unlock(lock)
		}
		if !told && !changed && wait > 50*time.Millisecond {
			progress("waiting for another job that builds the same environment")
			told = true
		}
		if err := pause(ctx, &wait); err != nil {
			return m, false, fmt.Errorf("waiting for the environment: %w", err)
		}
	}
}

// readMarker reads the marker of a complete environment whose interpreter is still there.
func readMarker(dir string) (marker, error) {
	var m marker
	b, err := os.ReadFile(filepath.Join(dir, markerName))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, err
	}
	_, err = os.Stat(filepath.Join(dir, "bin", "python"))
	return m, err
}

// changed reports whether something was installed or removed after the build.
func (m *marker) changed() bool {
	if m.Site == "" {
		return false
	}
	info, err := os.Stat(m.Site)
	return err != nil || !info.ModTime().Equal(m.Stamp)
}

// complete writes the marker so that it survives a crash of the machine, after everything it vouches for.
func (m *marker) complete(dir string) error {
	if sites, _ := filepath.Glob(filepath.Join(dir, "lib", "python3*", "site-packages")); len(sites) == 1 {
		// The first import of a top-level module would make this directory, and that is no change.
		if err := os.Mkdir(filepath.Join(sites[0], "__pycache__"), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		info, err := os.Stat(sites[0])
		if err != nil {
			return err
		}
		m.Site, m.Stamp = sites[0], info.ModTime()
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := syncAll(dir); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".marker-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if _, err := tmp.Write(b); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Sync(); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), filepath.Join(dir, markerName)); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// touch notes a use.
func touch(dir string) {
	now := time.Now()
	_ = os.Chtimes(filepath.Join(dir, markerName), now, now)
}
