package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/driver/cluster"
	"github.com/berthml/berth/internal/driver/local"
)

// stopTime is how long a server and its idle runner host may take to end.
const stopTime = 30 * time.Second

func downCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the local server; running jobs continue",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.config()
			if err != nil {
				return err
			}
			if cfg.URL != "" {
				return berth.Errorf(berth.Conflict, "%s %s, which cannot be stopped from here; name a home with --home", s.whence(), cfg.URL)
			}
			return s.stop(cmd.Context(), cfg)
		},
	}
}

// stop ends the server of a home and returns when it has ended.
func (s *session) stop(ctx context.Context, cfg client.Config) error {
	conn, info, err := client.Dial(ctx, cfg.Home)
	if err != nil && client.NotRunning(err) {
		if other := otherServer(ctx, cfg.Home); other != "" {
			s.say("server %s of %s runs on: it was started with `berth serve --name %s`, and is stopped where it was started", other, cfg.Home, other)
			return nil
		}
		s.say("no server runs in %s", cfg.Home)
		return s.endIdle(ctx, cfg) // one that was killed left its runner hosts behind
	}
	if err != nil {
		return err
	}
	// The process on the other end of the socket is the server, whatever a file says.
	pid, err := peerPID(conn)
	conn.Close()                // nothing was written
	if err == nil && pid <= 1 { // a server in another pid namespace
		err = errors.New("it is not visible from here")
	}
	if err != nil {
		return berth.Errorf(berth.Internal, "find the server's process: %w", err)
	}
	running, replicas := s.countActive(ctx, cfg)
	switch err := terminate(pid); {
	case errors.Is(err, syscall.ESRCH):
		return s.stop(ctx, cfg) // it has ended meanwhile, and its socket with it
	case err != nil:
		return berth.Errorf(berth.Denied, "stop the server, process %d: %w", pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	unlock, err := lockFile(ctx, filepath.Join(cfg.Home, "run", serveLock))
	if err != nil {
		return berth.Errorf(berth.Unavailable, "the server, process %d, has not ended after %s; its log is %s", pid, stopTime, filepath.Join(cfg.Home, "run", serveLog))
	}
	unlock()
	s.say("stopped the server at %s", info.URL)
	if other := otherServer(ctx, cfg.Home); other != "" {
		s.say("server %s of the home runs on, with all jobs", other)
		return nil // it may need the runner hosts
	}
	if running > 0 {
		s.say("%d running or waiting %s: running commands continue, and `berth up` takes them over again", running, plural(running, "job"))
	}
	if replicas > 0 {
		s.say("%d %s of online endpoints: they run on, and answer requests again after `berth up`", replicas, plural(replicas, "replica"))
	}
	return restHosts(ctx, s, cfg.Home, running == 0 && replicas == 0)
}

// endIdle ends the runner hosts of a home without a server, unless one is just starting.
func (s *session) endIdle(ctx context.Context, cfg client.Config) error {
	if _, err := os.Stat(filepath.Join(cfg.Home, "run")); err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	unlock, err := lockFile(ctx, filepath.Join(cfg.Home, "run", serveLock))
	if err != nil {
		return berth.Errorf(berth.Unavailable, "a server is starting in %s: run `berth down` again", cfg.Home)
	}
	defer unlock()
	if other := otherServer(ctx, cfg.Home); other != "" {
		s.say("server %s of the home runs on", other)
		return nil
	}
	return restHosts(ctx, s, cfg.Home, false)
}

// otherServer is the name of a server that shares the home and runs, "" when there is none.
func otherServer(ctx context.Context, home string) string {
	paths, _ := filepath.Glob(filepath.Join(home, "run", "*", serveLock)) // the pattern is good
	now, cancel := context.WithCancel(ctx)
	cancel() // nobody is waited for
	for _, path := range paths {
		unlock, err := lockFile(now, path)
		if err != nil {
			return filepath.Base(filepath.Dir(path))
		}
		unlock()
	}
	return ""
}

// restHosts ends the runner hosts of a home that have nothing to run. The server is gone, so
// nothing new can come. Those with tasks stay.
func restHosts(ctx context.Context, s *session, home string, noJobs bool) error {
	kept, err := cluster.StopIdle(ctx, filepath.Join(home, "nodes"))
	if kept > 0 && noJobs {
		s.say("%d compute %s on, and can be reached again after `berth up`", kept, map[bool]string{true: "instance runs", false: "instances run"}[kept == 1])
	}
	return errors.Join(local.StopIdle(ctx, filepath.Join(home, "host")), err)
}

// countActive is the number of jobs that have not ended, -1 when it cannot be known, and that of
// replicas of online endpoints.
func (s *session) countActive(ctx context.Context, cfg client.Config) (running, replicas int) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	cfg.Start = nil
	c, err := client.Open(ctx, cfg)
	if err != nil {
		return -1, 0
	}
	defer c.Close()
	for _, err := range c.Jobs(ctx, client.JobQuery{View: "All", Status: berth.ActiveStatuses}) {
		if err != nil {
			return -1, 0
		}
		running++
	}
	deployments, err := endpointSamples(ctx, c, nil)
	if err != nil {
		return running, 0
	}
	for _, d := range deployments {
		replicas += len(d.Replicas)
	}
	return running, replicas
}
