package app

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
)

const (
	// pathsFile, in run, has the paths that this home had since its oldest runner host was started,
	// one a line.
	pathsFile = "paths"
	// homeLook is how often a server looks whether its home is where it was.
	homeLook = 2 * time.Second
)

// settleIn makes a home work at a path that is new to it. Runner hosts that were started at another
// one, and the tasks they were given there, know no other: as long as there are any, a link leads
// from there to here.
func (a *App) settleIn(run string) error {
	home, err := filepath.Abs(a.cfg.Home)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(run, pathsFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	paths := []string{home}
	busy := tied(home)
	known := strings.Split(string(b), "\n")
	for _, old := range known {
		switch {
		case !filepath.IsAbs(old) || old == home:
		case !busy:
			unlink(old, home)
		default:
			if err := link(old, home, known); err != nil {
				return err
			}
			a.log.Warn("the home was moved while commands were running; until they end, its old path is a link to the new one", "from", old, "to", home)
			paths = append(paths, old)
		}
	}
	slices.Sort(paths)
	if text := strings.Join(paths, "\n") + "\n"; !bytes.Equal(b, []byte(text)) {
		return os.WriteFile(filepath.Join(run, pathsFile), []byte(text), 0o600)
	}
	return nil
}

// tied says whether something of the home knows the path it was started at: a runner host, which
// holds the lock of its directory, or a task.
func tied(home string) bool {
	for _, at := range []string{"host", "nodes/*", "nodes/*/*"} {
		locks, _ := filepath.Glob(filepath.Join(home, at, "lock")) // the patterns are good
		tasks, _ := filepath.Glob(filepath.Join(home, at, "tasks", "*"))
		if len(tasks) > 0 || slices.ContainsFunc(locks, held) {
			return true
		}
	}
	return false
}

// link makes a link at old that leads to home, in place of one to another of the paths that are
// known.
func link(old, home string, known []string) error {
	to, _ := os.Readlink(old)
	switch info, err := os.Lstat(old); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case leadsTo(old, home):
		return nil
	case to != "" && slices.Contains(known, to):
		if err := os.Remove(old); err != nil {
			return err
		}
	case info.IsDir() && !exists(filepath.Join(old, "run")):
		// No home, of which that is the first thing a server makes, but what somebody who did not
		// know of the move yet has made there.
		if err := os.Rename(old, old+".stray-"+time.Now().UTC().Format("20060102T150405.000")); err != nil {
			return err
		}
	default:
		return berth.Errorf(berth.Conflict, "this home was moved from %s while commands were running that still use that path, and %s now exists again; move that away, or wait until the commands have ended", old, old)
	}
	if err := os.Symlink(home, old); err != nil {
		return berth.Errorf(berth.Conflict, "this home was moved from %s while commands were running that still use that path, and no link can be created there (%w); move the home back, or wait until the commands have ended", old, err)
	}
	return nil
}

// unlink removes the link at old if it leads to home.
func unlink(old, home string) {
	if info, err := os.Lstat(old); err == nil && info.Mode()&fs.ModeSymlink != 0 && leadsTo(old, home) {
		_ = os.Remove(old) // it does no harm
	}
}

func leadsTo(path, home string) bool {
	a, err := os.Stat(path)
	if err != nil {
		return false
	}
	b, err := os.Stat(home)
	return err == nil && os.SameFile(a, b)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// guardHome ends the server when its home is not where it was any more: everything it would do by
// path would happen elsewhere.
func (a *App) guardHome(ctx context.Context) error {
	tick := time.NewTicker(homeLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if now, err := os.Stat(a.cfg.Home); errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, a.home) {
			return berth.Errorf(berth.Unavailable, "the home %s was moved or removed while the server ran, so it stops; start it where the home is now, with `berth up --home DIR`", a.cfg.Home)
		}
	}
}
