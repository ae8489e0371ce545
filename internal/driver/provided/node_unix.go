//go:build unix

package provided

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/dialout"
	"github.com/berthml/berth/internal/driver/local"
	"github.com/berthml/berth/internal/runner/alone"
	"github.com/berthml/berth/internal/runner/cache"
	"github.com/berthml/berth/internal/runner/host"
)

// JoinFile is the file in a node's directory that it connects with. It is removed when it has been
// read.
const JoinFile = "join.json"

const (
	// alone is how long a node stays that the server cannot be reached from.
	aloneTime = 30 * time.Minute
	// endTime is how long the tasks on a node have to end that is taken away.
	endTime = 3 * time.Second
)

// Main is the hidden command `_node --dir DIR`, which is a node: it connects to the server and runs
// tasks until the server gives it back, or it is told to end by SIGTERM, SIGUSR1 or SIGUSR2.
// Nothing is left of it then.
func Main(ctx context.Context, args []string) error {
	if len(args) != 2 || args[0] != "--dir" {
		return berth.Errorf(berth.Invalid, "usage: _node --dir DIR")
	}
	dir := args[1]
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	err := serve(ctx, dir, log)
	return errors.Join(err, cache.RemoveAll(dir))
}

// serve is the node until it ends.
func serve(ctx context.Context, dir string, log *slog.Logger) error {
	j, err := readJoin(filepath.Join(dir, JoinFile))
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	hostDir := filepath.Join(dir, "host")
	c := driver.Config{
		Name: j.Node, Dir: hostDir, Host: []string{exe, "_host"}, Slots: j.Slots, Log: log,
		Environments: driver.Environments{Engine: os.Getenv("DOCKER_HOST")},
	}
	if kept, err := alone.NodeDir(); err == nil { // what later nodes on this machine need too
		c.Environments.Dir, c.Cache.Dir = filepath.Join(kept, "envs"), filepath.Join(kept, "cache")
	}
	d, err := local.Open(c)
	if err != nil {
		return err
	}
	defer d.(io.Closer).Close()
	a := &dialout.Agent{Join: j.Join, Driver: d, ID: j.Node, Log: log, LastPause: 2 * time.Second}
	if a.Host, err = os.Hostname(); err != nil {
		a.Host = j.Node
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lonely := time.AfterFunc(aloneTime, cancel)
	defer lonely.Stop()
	a.Connected = func() { lonely.Stop() }
	a.Ended = func() { lonely.Reset(aloneTime) }
	err = a.Run(ctx)
	return errors.Join(err, end(context.WithoutCancel(ctx), d, hostDir))
}

func readJoin(path string) (j join, err error) {
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.Remove(path) // it has a secret in it
	}
	if err == nil {
		err = json.Unmarshal(b, &j)
	}
	return j, err
}

// end ends what runs on the node: its tasks are evicted, for somebody takes the node away.
func end(ctx context.Context, d driver.Driver, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for asked := map[driver.Handle]bool{}; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		all, err := d.Observe(ctx)
		if err != nil {
			break // the host does not answer: there is no time to start another
		}
		left := 0
		for _, o := range all {
			if o.State == berth.TaskDone {
				continue
			}
			left++
			if !asked[o.Handle] {
				asked[o.Handle] = true
				_ = d.Stop(ctx, o.Handle, driver.Stop{Grace: endTime, Cause: "evicted", Why: "its node was taken away"})
			}
		}
		if left == 0 {
			break
		}
	}
	return host.Shutdown(ctx, dir)
}
