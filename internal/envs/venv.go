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
	"strings"
	"syscall"
	"time"
)

// markerName is the file that says an environment is complete. It is written last; its time is that
// of the last use.
const markerName = ".berth-env.json"

// A marker is what is known of a complete environment.
type marker struct {
	Python   string        `json:"python"`
	Bytes    int64         `json:"bytes"`
	Packages []string      `json:"packages,omitempty"` // as installed
	Warnings []string      `json:"warnings,omitempty"` // to be shown to every user of it
	Built    time.Time     `json:"built"`
	Took     time.Duration `json:"took"`
	// Site is the directory of installed packages, Stamp its time when the build ended: a job that
	// installs into a shared environment changes it.
	Site  string    `json:"site,omitempty"`
	Stamp time.Time `json:"stamp,omitzero"`
	// Boot names the run of the machine in which it was built; once Synced, everything is on disk
	// and that does not matter.
	Boot   string `json:"boot,omitempty"`
	Synced bool   `json:"synced,omitempty"`
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
	if !m.Synced {
		// While the job starts: it takes as long as the disk is busy.
		e.settling.Go(func() {
			if err := m.settle(dir); err != nil {
				c.log.Warn("environment not on disk yet", "hash", hash, "err", err)
			}
		})
	}
	if !cached {
		c.evict(ctx)
	}
	return e, nil
}

// acquire returns with lock shared and the environment complete. Builders of one hash take turns:
// whoever finds it complete after the wait uses it, and whoever finds it incomplete builds it.
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
					progress("a job changed this environment: building it again")
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
	if !m.Synced && m.Boot != bootID() {
		return m, errors.New("the machine went down before it was all on disk")
	}
	if m.Python != "" { // a conda file need not ask for one
		_, err = os.Stat(filepath.Join(dir, "bin", "python"))
	}
	return m, err
}

// bootID names the run of the machine, where that can be known.
func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// changed reports whether something was installed or removed after the build.
func (m *marker) changed() bool {
	if m.Site == "" {
		return false
	}
	info, err := os.Stat(m.Site)
	return err != nil || !info.ModTime().Equal(m.Stamp)
}

// complete writes the marker. It is good until the machine goes down; settle makes it good for
// ever.
func (m *marker) complete(dir string) error {
	if site := sitePackages(dir); site != "" {
		// The first import of a top-level module would make this directory, and that is not a
		// change.
		if err := os.Mkdir(filepath.Join(site, "__pycache__"), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		info, err := os.Stat(site)
		if err != nil {
			return err
		}
		m.Site, m.Stamp = site, info.ModTime()
	}
	m.Boot = bootID()
	m.Synced = m.Boot == "" // where it cannot be known, wait for the disk now
	if m.Synced {
		if err := syncAll(dir); err != nil {
			return err
		}
	}
	return m.write(dir)
}

// settle puts everything the marker vouches for on disk, and then the marker.
func (m *marker) settle(dir string) error {
	if err := syncAll(dir); err != nil {
		return err
	}
	m.Synced = true
	return m.write(dir)
}

// write replaces the marker, whole or not at all.
func (m *marker) write(dir string) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".marker-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(b)
	if m.Synced && err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), filepath.Join(dir, markerName)); err != nil || !m.Synced {
		return err
	}
	return syncDir(dir)
}

// sitePackages is where the packages of a virtual environment are.
func sitePackages(dir string) string {
	if sites, _ := filepath.Glob(filepath.Join(dir, "lib", "python3*", "site-packages")); len(sites) == 1 {
		return sites[0]
	}
	return ""
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
