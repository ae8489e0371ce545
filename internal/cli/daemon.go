package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/config"
)

const (
	serveLog  = "serve.log"
	startLock = "start.lock"
	serveLock = "serve.lock" // held by the server itself
	startTime = 30 * time.Second
	maxLog    = 16 << 20
)

// start starts a server in home, detached from this process, and returns when it answers. Of
// several starters one starts it and the others wait. When announce is set the user is told.
func (s *session) start(ctx context.Context, home string, announce bool) error {
	if unit := config.Service(home); unit != "" && !alive(ctx, home) {
		return berth.Errorf(berth.Unavailable, "the server of %s is run by systemd and does not run now: start it with `systemctl start %s`", home, strings.TrimSuffix(unit, ".service"))
	}
	run := filepath.Join(home, "run")
	if err := os.MkdirAll(run, 0o700); err != nil {
		return berth.Errorf(berth.Invalid, "the home of the local server cannot be created (%w); set BERTH_HOME to a folder of yours", err)
	}
	unlock, err := lockFile(ctx, filepath.Join(run, startLock))
	if err != nil {
		return fmt.Errorf("wait for another start: %w", err)
	}
	defer unlock()
	if up, err := upOrFree(ctx, home); up || err != nil {
		return err
	}
	if announce {
		s.say("starting a local server in %s (`berth down` stops it)", home)
	}
	return launch(ctx, home)
}

// upOrFree waits until the server of home answers, or none holds the home: one that is stopping, or
// about to start, does.
func upOrFree(ctx context.Context, home string) (up bool, err error) {
	path := filepath.Join(home, "run", serveLock)
	for deadline := time.Now().Add(startTime); ; {
		if alive(ctx, home) {
			return true, nil
		}
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		unlock, err := lockFile(short, path)
		cancel()
		switch {
		case err == nil:
			unlock()
			return false, nil
		case ctx.Err() != nil:
			return false, ctx.Err()
		case !errors.Is(err, context.DeadlineExceeded):
			return false, err
		case time.Now().After(deadline):
			return false, berth.Errorf(berth.Unavailable, "a server holds %s and has not answered for %s; its log is %s", home, startTime, filepath.Join(home, "run", serveLog))
		}
	}
}

// alive reports whether a server of home takes connections.
func alive(ctx context.Context, home string) bool {
	conn, _, err := client.Dial(ctx, home)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// launch starts `berth serve` and waits until it answers or ends.
func launch(ctx context.Context, home string) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	path := filepath.Join(home, "run", serveLog)
	if st, err := os.Stat(path); err == nil && st.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return err
		}
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the server has its own descriptor
	begin, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, "serve", "--home", home) //nolint:noctx // it outlives us
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = home
	cmd.Env = serverEnv(os.Environ())
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return await(ctx, home, cmd.Process.Pid, ended, path, begin)
}

// await returns when the server with this pid answers.
func await(ctx context.Context, home string, pid int, ended <-chan error, log string, begin int64) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, info, err := client.Dial(ctx, home); err == nil {
			conn.Close() // nothing was written
			if info.PID == pid {
				return nil
			}
		}
		select {
		case err := <-ended:
			if alive(context.WithoutCancel(ctx), home) {
				return nil // somebody else's server was faster
			}
			if tail := strings.TrimPrefix(logTail(log, begin), "berth: "); tail != "" {
				return berth.Errorf(berth.Unavailable, "the local server did not start: %s", tail)
			}
			if err == nil {
				err = errors.New("it ended at once")
			}
			return berth.Errorf(berth.Unavailable, "the local server did not start (%w); its log is %s", err, log)
		case <-ctx.Done():
			if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			return berth.Errorf(berth.Unavailable, "the local server does not answer after %s; its log is %s", startTime, log)
		case <-tick.C:
		}
	}
}

// logTail is what the server wrote since begin, at most 4 KiB of it.
func logTail(path string, begin int64) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "its log is " + path
	}
	b = b[min(begin, int64(len(b))):]
	if len(b) > 4<<10 {
		b = b[len(b)-4<<10:]
	}
	return string(bytes.TrimSpace(b))
}

// serverEnv is the environment of a server: ours, without what points clients elsewhere.
func serverEnv(env []string) []string {
	out := make([]string, 0, len(env))
	for _, kv := range env {
		switch name, _, _ := bytes.Cut([]byte(kv), []byte("=")); string(name) {
		case "BERTH_URL", "BERTH_TOKEN", "BERTH_CA", "BERTH_HOME", "BERTH_SERVER":
		default:
			out = append(out, kv)
		}
	}
	return out
}
