package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/driver/dialout"
)

const (
	agentLog  = "agent.log"
	agentLock = "lock" // held by the agent, with its pid
	joinKept  = "join.json"
)

// agentDir is the folder of this machine's agent, unless one was given.
func (s *session) agentDir(given string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	cfg, err := s.config()
	if err != nil {
		return "", err
	}
	return filepath.Abs(filepath.Join(cfg.Home, "agent"))
}

// thisMachine attaches the machine that this command runs on: create makes the compute, and an
// agent that goes on by itself connects it.
func (s *session) thisMachine(ctx context.Context, name string, create func() error) error {
	if name == "" {
		return usagef("--this-machine: give the machine a name with -n")
	}
	dir, err := s.agentDir("")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	c, err := s.open(ctx)
	if err != nil {
		return err
	}
	if agentPID(ctx, dir) != 0 {
		j := joined(dir)
		if there, err := connected(ctx, c, name); err != nil && berth.CodeOf(err) != berth.NotFound {
			return err
		} else if there && j.Compute == name {
			s.say("this machine takes jobs as %s already", name)
			return nil
		}
		return berth.Errorf(berth.Conflict, "this machine is attached as %s of %s, and its agent runs; `berth agent stop` stops it", j.Compute, j.Server)
	}
	if s.format.name == "" {
		s.format.name = "none" // what could be printed now is that it is not connected
	}
	if err := create(); err != nil {
		return err
	}
	_, file, err := join(ctx, c, name)
	if berth.CodeOf(err) == berth.Conflict && joined(dir).Compute == name {
		file, err = os.ReadFile(filepath.Join(dir, joinKept)) // it has jobs that go on here
	}
	if err != nil {
		return err
	}
	if err := launchAgent(ctx, c, name, dir, file); err != nil {
		return err
	}
	s.say("this machine takes jobs as %s: berth run --on %s -- …", name, name)
	s.hint("`berth agent stop` ends that, and after a restart of the machine `berth agent run` takes it up again; jobs that run go on")
	return nil
}

// joined is what the agent in dir joined with last; it may be empty.
func joined(dir string) (j dialout.Join) {
	b, err := os.ReadFile(filepath.Join(dir, joinKept))
	if err != nil || json.Unmarshal(b, &j) != nil {
		return dialout.Join{}
	}
	return j
}

// connected says whether the server has a connection of the compute.
func connected(ctx context.Context, c *client.Client, name string) (bool, error) {
	d, err := c.Get(ctx, "computes", name)
	if err != nil {
		return false, err
	}
	found, _ := d.Properties()["berth"].(map[string]any)
	yes, _ := found["connected"].(bool)
	return yes, nil
}

// join asks the server for what a machine joins as compute name with, and its form in a file.
func join(ctx context.Context, c *client.Client, name string) (j dialout.Join, file []byte, err error) {
	if err := c.Post(ctx, nil, &j, "computes", name, "join"); err != nil {
		return j, nil, err
	}
	file, err = json.MarshalIndent(j, "", "  ")
	return j, append(file, '\n'), err
}

// launchAgent starts the agent in dir, detached from this process, with what it joins with, and
// returns when the server says that it is connected.
func launchAgent(ctx context.Context, c *client.Client, name, dir string, file []byte) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	path := filepath.Join(dir, agentLog)
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the agent has its own descriptor
	begin, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, "agent", "run", "--dir", dir, "--join", "-") //nolint:noctx // it outlives us
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.Env = log, log, dir, serverEnv(os.Environ())
	cmd.Stdin = bytes.NewReader(file)
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(startTime); ; {
		if there, err := connected(ctx, c, name); err != nil || there {
			return err
		}
		select {
		case err := <-ended:
			if err == nil {
				err = errors.New("it ended at once")
			}
			return berth.Errorf(berth.Unavailable, "the agent did not start: %w\n%s", err, logTail(path, begin))
		case <-deadline:
			return berth.Errorf(berth.Unavailable, "the agent is not connected after %s; it goes on trying, and its log is %s:\n%s", startTime, path, logTail(path, begin))
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// agentPID is the process of the agent that runs in dir, or 0.
func agentPID(ctx context.Context, dir string) int {
	path := filepath.Join(dir, agentLock)
	if _, err := os.Stat(path); err != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if unlock, err := lockFile(ctx, path); err == nil {
		unlock()
		return 0
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(string(b))
	if err != nil || pid <= 1 {
		return 0
	}
	return pid
}

func agentStop(s *session) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "stop", Short: "Stop this machine's agent; running jobs continue", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := s.agentDir(dir)
			if err != nil {
				return err
			}
			pid := agentPID(cmd.Context(), dir)
			if pid == 0 {
				s.say("no agent runs in %s", dir)
				return nil
			}
			if err := terminate(pid); err != nil {
				return fmt.Errorf("stop the agent, process %d: %w", pid, err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), startTime)
			defer cancel()
			unlock, err := lockFile(ctx, filepath.Join(dir, agentLock))
			if err != nil {
				return berth.Errorf(berth.Unavailable, "the agent, process %d, was asked to stop and still runs", pid)
			}
			unlock()
			s.say("the agent of %s was stopped", joined(dir).Compute)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the agent's folder (default HOME/agent)")
	return cmd
}
