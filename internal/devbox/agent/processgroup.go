//go:build !windows

package agent

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// processGroup is every process on the instance that is not a job: those the agent started, theirs,
// and what was left behind by any of them, which becomes the agent's own child.
type processGroup struct {
	env []string

	mu   sync.Mutex
	own  map[int]bool // children that somebody waits for
	shut bool
}

func newProcessGroup(env []string) *processGroup {
	adoptOrphans()
	return &processGroup{env: env, own: map[int]bool{}}
}

var errEnding = errors.New("the instance is ending")

// start starts a command. Who calls it calls wait.
func (f *processGroup) start(cmd *exec.Cmd) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shut {
		return errEnding
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	f.own[cmd.Process.Pid] = true
	return nil
}

// wait is cmd.Wait.
func (f *processGroup) wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	f.mu.Lock()
	delete(f.own, cmd.Process.Pid)
	f.mu.Unlock()
	return err
}

// reap takes the exit status of orphans now and then, so that they do not stay as zombies.
func (f *processGroup) reap(ctx context.Context) {
	t := time.NewTicker(5 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		for _, p := range processes() {
			if p.parent != os.Getpid() || !p.zombie {
				continue
			}
			f.mu.Lock()
			if !f.own[p.pid] {
				var ws syscall.WaitStatus
				_, _ = syscall.Wait4(p.pid, &ws, syscall.WNOHANG, nil)
			}
			f.mu.Unlock()
		}
	}
}

// process is a process as the system lists it.
type process struct {
	pid, parent int
	zombie      bool
	cpu         time.Duration // its own, and that of its children that are gone
}

// members are the descendants of the agent.
func (f *processGroup) members() []process {
	all := processes()
	children := map[int][]process{}
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
	}
	var out []process
	for todo := children[os.Getpid()]; len(todo) > 0; {
		p := todo[0]
		todo = append(todo[1:], children[p.pid]...)
		out = append(out, p)
	}
	return out
}

// end asks everybody to end, and after grace makes them. Nothing can be started any more.
func (f *processGroup) end(grace time.Duration) {
	f.mu.Lock()
	f.shut = true
	f.mu.Unlock()
	sig := syscall.SIGTERM
	for deadline := time.Now().Add(grace); ; {
		left := 0
		for _, p := range f.members() {
			if !p.zombie {
				left++
				_ = syscall.Kill(p.pid, sig)
			}
		}
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			if sig == syscall.SIGKILL && time.Now().After(deadline.Add(grace)) {
				return // not ours to kill
			}
			sig = syscall.SIGKILL
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// killGroup ends a command and what it started, as far as that stayed with it.
func killGroup(cmd *exec.Cmd, sig syscall.Signal) {
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, sig)
	}
}
