//go:build unix

package ssh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/dialout"
	"github.com/berthml/berth/internal/driver/local"
	"github.com/berthml/berth/internal/socket"
)

// idleTime is how long an agent without a connection and without tasks stays.
const idleTime = 10 * time.Minute

// Files in an agent's folder.
func socketFile(dir string) string { return filepath.Join(dir, "agent.sock") }
func lockFile(dir string) string   { return filepath.Join(dir, "lock") }
func portFile(dir string) string   { return filepath.Join(dir, "port") }
func logFile(dir string) string    { return filepath.Join(dir, "agent.log") }

// Main is the hidden command that runs on the machine: `_ssh bridge|agent --dir DIR`.
func Main(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 3 || args[1] != "--dir" {
		return berth.Errorf(berth.Invalid, "usage: _ssh bridge|agent --dir DIR")
	}
	switch dir := args[2]; args[0] {
	case "bridge":
		return bridge(ctx, dir, in, out)
	case "agent":
		return runAgent(ctx, dir, idleTime)
	}
	return berth.Errorf(berth.Invalid, "usage: _ssh bridge|agent --dir DIR")
}

// bridge connects its input and output to the agent in dir, which it starts unless there is one of
// the same build.
func bridge(ctx context.Context, dir string, in io.Reader, out io.Writer) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	c, err := reach(ctx, dir, exe)
	if err != nil {
		return err
	}
	defer c.Close()
	// What the server sends ends with the connection, and this process with it.
	go func() {
		_, _ = io.Copy(c, in)
		c.Close() // the server is gone
	}()
	_, err = io.Copy(out, c)
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// reach connects to the agent in dir, and starts one where there is none of this build.
func reach(ctx context.Context, dir, exe string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	if err := endOther(ctx, dir, exe); err != nil {
		return nil, err
	}
	var ended <-chan error // of the agent that was started here
	for {
		c, err := new(net.Dialer).DialContext(ctx, "unix", socketFile(dir))
		if err == nil {
			return c, nil
		}
		if ended == nil {
			if ended, err = startAgent(dir, exe); err != nil {
				return nil, err
			}
		}
		select {
		case err := <-ended:
			if err != nil {
				return nil, berth.Errorf(berth.Unavailable, "the agent did not start: %v: %s", err, endOf(logFile(dir)))
			}
			ended = nil // there was another one, which may be ending
		case <-ctx.Done():
			return nil, berth.Errorf(berth.Unavailable, "the agent did not start: %v: %s", err, endOf(logFile(dir)))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// holder is what the agent that holds the lock of a folder writes into it.
type holder struct {
	PID     int    `json:"pid"`
	Program string `json:"program"`
}

// endOther ends an agent of another build, whose tasks go on. It returns once it is gone.
func endOther(ctx context.Context, dir, exe string) error {
	for told := false; ; {
		f, err := os.OpenFile(lockFile(dir), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		free := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
		var h holder
		err = json.NewDecoder(f).Decode(&h)
		f.Close() // and the lock with it
		if free || err == nil && h.Program == exe {
			return nil
		}
		if err == nil && !told && h.PID > 1 {
			_ = syscall.Kill(h.PID, syscall.SIGTERM)
			told = true
		}
		select {
		case <-ctx.Done():
			return berth.Errorf(berth.Unavailable, "an agent of another version does not stop (process %d)", h.PID)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// startAgent starts an agent that outlives this process. The channel has how it ended, nil when
// there was one already.
func startAgent(dir, exe string) (<-chan error, error) {
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if info, err := os.Stat(logFile(dir)); err == nil && info.Size() > 1<<20 {
		flags |= os.O_TRUNC
	}
	log, err := os.OpenFile(logFile(dir), flags, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(exe, "_ssh", "agent", "--dir", dir) //nolint:noctx // it outlives this process
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return ended, nil
}

// endOf is the end of a file in one line.
func endOf(path string) string {
	b, _ := os.ReadFile(path)
	return dialout.Clean(string(b[max(0, len(b)-300):]), 300)
}

// runAgent is the agent's process. It ends when it was told to, or when nobody has needed it for a
// while.
func runAgent(ctx context.Context, dir string, idle time.Duration) error {
	signal.Ignore(syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	lock, err := take(dir, exe)
	if lock == nil {
		return err
	}
	defer lock.Close()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	relay, err := listenAgain(ctx, portFile(dir))
	if err != nil {
		return err
	}
	a := &dialout.Agent{Log: log, Join: dialout.Join{Server: "https://" + relay.Addr().String()}}
	if a.ID, err = machineID(filepath.Join(dir, "id")); err != nil {
		return err
	}
	if a.Host, err = os.Hostname(); err != nil {
		a.Host = "a machine without a name"
	}
	hostDir := filepath.Join(dir, "host")
	a.Driver, err = local.Open(driver.Config{
		Name: "local", Dir: hostDir, Host: []string{exe, "_host"}, Slots: max(2, runtime.NumCPU()), Log: log,
		Environments: driver.Environments{Engine: os.Getenv("DOCKER_HOST")},
	})
	if err != nil {
		return err
	}
	defer a.Driver.(io.Closer).Close()
	a.Relay(ctx, relay)
	l, err := socket.Listen(socketFile(dir))
	if err != nil {
		return err
	}
	s := &sessions{agent: a, log: log, dir: dir}
	err = s.serve(ctx, l, idle)
	return errors.Join(err, local.StopIdle(context.WithoutCancel(ctx), hostDir))
}

// take takes the lock of an agent's folder. It is nil, without an error, where another agent has
// it.
func take(dir, exe string) (*os.File, error) {
	f, err := os.OpenFile(lockFile(dir), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, nil //nolint:nilerr // another agent is there, which is fine
	}
	b, err := json.Marshal(holder{PID: os.Getpid(), Program: exe})
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// machineID is an id that stays as long as the folder does.
func machineID(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err == nil && len(b) > 0 {
		return string(b), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	id := berth.NewGUID()
	if err := os.WriteFile(path+".new", []byte(id), 0o600); err != nil {
		return "", err
	}
	return id, os.Rename(path+".new", path)
}

// listenAgain listens at the port that an earlier agent had, because tasks know it; else at one
// that is not given to outgoing connections.
func listenAgain(ctx context.Context, path string) (net.Listener, error) {
	var lc net.ListenConfig
	if b, err := os.ReadFile(path); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && n > 0 && n < 65536 {
			for range 50 {
				l, err := lc.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", n))
				if err == nil || ctx.Err() != nil {
					return l, err
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
	}
	var last error
	for range 200 {
		port := 20000 + rand.IntN(12000)
		l, err := lc.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			last = err
			continue
		}
		if err := os.WriteFile(path, []byte(strconv.Itoa(port)), 0o600); err != nil {
			l.Close()
			return nil, err
		}
		return l, nil
	}
	return nil, last
}

// sessions are the connections of an agent, of which the newest counts.
type sessions struct {
	agent *dialout.Agent
	log   *slog.Logger
	dir   string

	mu   sync.Mutex
	end  context.CancelFunc // of the newest; nil when there is none
	last time.Time          // when there was one
}

// serve takes connections until ctx ends, or until there was none and no task for a while.
func (s *sessions) serve(ctx context.Context, l net.Listener, idle time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { l.Close() })
	s.last = time.Now()
	go func() {
		for tick := time.NewTicker(min(idle/4, 15*time.Second)); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				if s.unused(ctx, idle) {
					s.log.Info("the agent is no longer needed")
					cancel()
				}
			}
		}
	}()
	var open sync.WaitGroup
	defer open.Wait()
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		open.Go(func() { s.one(ctx, c) })
	}
}

// one serves a connection, and ends the one before it.
func (s *sessions) one(ctx context.Context, c net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	if s.end != nil {
		s.end()
	}
	s.end = cancel
	s.last = time.Time{}
	s.mu.Unlock()
	b, err := json.Marshal(hello{ID: s.agent.ID, Host: s.agent.Host, Version: berth.Version})
	if err == nil {
		_, err = fmt.Fprintf(c, "%s%s\n", helloMark, b)
	}
	if err == nil {
		s.log.Info("connected")
		err = s.agent.Serve(ctx, c)
	}
	c.Close()
	s.log.Info("disconnected", "err", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() == nil { // no newer one has come
		s.end, s.last = nil, time.Now()
	}
}

// unused says whether nobody was connected for so long and there are no tasks, or the folder is
// gone.
func (s *sessions) unused(ctx context.Context, idle time.Duration) bool {
	if _, err := os.Stat(lockFile(s.dir)); errors.Is(err, os.ErrNotExist) {
		return true
	}
	s.mu.Lock()
	quiet := s.end == nil && time.Since(s.last) > idle
	s.mu.Unlock()
	if !quiet {
		return false
	}
	all, err := s.agent.Driver.Observe(ctx)
	return err == nil && len(all) == 0
}
