//go:build unix

package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/dialout"
	"github.com/berthml/berth/internal/driver/local"
)

// runAgent runs an agent in its folder until ctx ends or the server refuses it.
func runAgent(ctx context.Context, a *dialout.Agent, o agentOptions) error {
	if o.slots < 1 {
		return usagef("--slots %d: at least 1 job must be allowed to run", o.slots)
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(o.dir, agentLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return berth.Errorf(berth.Conflict, "another agent runs in %s; give this one a folder of its own with --dir", o.dir)
	}
	if err := errors.Join(lock.Truncate(0), note(lock)); err != nil {
		return err
	}
	if err := o.identity(a); err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	a.Driver, err = local.Open(driver.Config{
		Name: a.Join.Compute, Dir: filepath.Join(o.dir, "host"), Home: o.home, Host: []string{exe, "_host"}, Slots: o.slots, Log: a.Log,
		Environments: driver.Environments{Engine: os.Getenv("DOCKER_HOST")},
	})
	if err != nil {
		return err
	}
	defer a.Driver.(io.Closer).Close()
	return errors.Join(a.Run(ctx), rest(context.WithoutCancel(ctx), a, filepath.Join(o.dir, "host")))
}

// note writes this process into the file of its lock, for who wants to stop it.
func note(lock *os.File) error {
	_, err := lock.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	return err
}

// rest ends the runner host of an agent that ends, unless it has tasks: those go on, and the next
// agent takes them up.
func rest(ctx context.Context, a *dialout.Agent, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	all, err := a.Driver.Observe(ctx)
	if err != nil {
		return err
	}
	if len(all) > 0 {
		a.Log.Info("jobs go on, and the next agent in this folder takes them up", "jobs", len(all))
		return nil
	}
	return local.StopIdle(ctx, dir)
}
