package peer

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/berthml/berth/bench/measure"
)

// A daemon is a process of a peer, in the foreground.
type daemon struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// daemons are the processes of one peer, with their logs in one folder. Their CPU is counted by
// group, which may be nil.
type daemons struct {
	logs  string
	group *measure.Group
	all   []*daemon
}

// start starts a program. It goes on when ctx ends, until stop.
func (d *daemons) start(ctx context.Context, name string, args ...string) (*daemon, error) {
	log, err := os.OpenFile(d.log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	x := &daemon{name: name, cmd: d.group.Command(context.WithoutCancel(ctx), name, args...), done: make(chan struct{})}
	x.cmd.Stdout, x.cmd.Stderr = log, log
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := x.cmd.Start(); err != nil {
		return nil, err
	}
	d.all = append(d.all, x)
	go func() { _ = x.cmd.Wait(); close(x.done) }()
	return x, nil
}

func (d *daemons) log(name string) string { return filepath.Join(d.logs, filepath.Base(name)+".log") }

// check is an error with the end of its log when a daemon has ended.
func (d *daemons) check() error {
	for _, x := range d.all {
		select {
		case <-x.done:
			log, _ := os.ReadFile(d.log(x.name))
			return fmt.Errorf("%s ended: %s", filepath.Base(x.name), log[max(0, len(log)-300):])
		default:
		}
	}
	return nil
}

// wait asks again and again until ok, a daemon ends, or a minute is over.
func (d *daemons) wait(ctx context.Context, peer string, ok func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	for {
		try, end := context.WithTimeout(ctx, 5*time.Second)
		done := ok(try)
		end()
		if done {
			return nil
		}
		if err := d.check(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready within a minute", peer)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stop asks a daemon to end, makes it end ten seconds later, and forgets it.
func (d *daemons) stop(x *daemon) {
	end(time.After(10*time.Second), x)
	d.all = slices.DeleteFunc(d.all, func(y *daemon) bool { return x == y })
}

// stopAll ends all of them, the youngest first.
func (d *daemons) stopAll() {
	slices.Reverse(d.all)
	end(time.After(10*time.Second), d.all...)
	d.all = nil
	d.group.Close()
}

// end asks daemons to end, and kills those that have not when it is late.
func end(late <-chan time.Time, all ...*daemon) {
	for _, x := range all {
		_ = x.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, x := range all {
		select {
		case <-x.done:
			continue
		case <-late:
		}
		for _, y := range all {
			_ = y.cmd.Process.Kill()
		}
		<-x.done
	}
}
