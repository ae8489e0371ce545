// Package pgtest runs a PostgreSQL server of its own for a test, which may kill it.
package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

var errAbsent = errors.New("PostgreSQL is not installed")

// Need skips or fails a test when the server could not be started.
func Need(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, errAbsent) && !strings.Contains(os.Getenv("BERTH_REQUIRE_ENGINES"), "postgres") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Server is a PostgreSQL server in the foreground, in a directory of its own.
type Server struct {
	dir, postgres string
	args          []string
	cred          *syscall.Credential
	cmd           *exec.Cmd
	ended         chan struct{}
	log           *os.File
	schemas       atomic.Int64
}

// Start makes a database and runs a server for it, with more arguments for it.
func Start(args ...string) (*Server, error) {
	initdb, err := tool("initdb")
	if err != nil {
		return nil, err
	}
	postgres, err := tool("postgres")
	if err != nil {
		return nil, err
	}
	// Not t.TempDir: the server's user has to be able to search every directory above.
	dir, err := os.MkdirTemp("/tmp", "berth-pg-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, postgres: postgres, args: args}
	data := filepath.Join(dir, "data")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(data, 0o700)); err != nil {
		return nil, err
	}
	if os.Getuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errAbsent, err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		s.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(data, uid, gid); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, initdb, "-D", data, "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale", "C.UTF-8")
	s.as(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	if s.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return nil, err
	}
	if err := s.Start(); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func tool(name string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		return "", fmt.Errorf("%w: no %s", errAbsent, name)
	}
	return found[len(found)-1], nil
}

// as makes a command run as the server's user, in a group of its own.
func (s *Server) as(cmd *exec.Cmd) {
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.cred}
}

// Start runs the server and waits until it answers. One that was killed leaves processes behind for
// a moment, which keep a new one from starting: then it is tried again.
func (s *Server) Start() error {
	limit, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		err := s.tryStart(limit)
		text, _ := os.ReadFile(s.log.Name())
		switch {
		case err == nil:
			return nil
		case limit.Err() != nil || !bytes.Contains(tail(text), []byte("still in use")):
			return fmt.Errorf("%w: %s", err, tail(text))
		}
	}
}

func (s *Server) tryStart(limit context.Context) error {
	data := filepath.Join(s.dir, "data")
	args := append([]string{"-D", data, "-h", "", "-p", "5432", "-k", data, "-c", "max_connections=300"}, s.args...)
	s.cmd = exec.Command(s.postgres, args...) //nolint:noctx // it outlives its start
	s.as(s.cmd)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	s.ended = ended
	go func() {
		_ = s.cmd.Wait() // how it ended is in its log
		close(ended)
	}()
	for {
		c, err := pgx.Connect(limit, s.URL())
		if err == nil {
			return c.Close(limit)
		}
		select {
		case <-ended:
			return errors.New("postgres ended")
		case <-limit.Done():
			return fmt.Errorf("postgres does not answer: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Kill ends the server and its processes at once, as when a machine fails, and returns when none of
// them is left. Those that serve a connection are in sessions of their own, which no signal to the
// server's group reaches.
func (s *Server) Kill() {
	postmaster := s.cmd.Process.Pid
	_ = syscall.Kill(postmaster, syscall.SIGSTOP) // it starts no more of them; it may be gone
	left := children(postmaster)
	for _, pid := range append(left, postmaster) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-s.ended
	for _, pid := range left {
		for !ended(pid) {
			time.Sleep(time.Millisecond)
		}
	}
	for _, lock := range []string{"postmaster.pid", ".s.PGSQL.5432.lock"} { // its number may be somebody else's by now
		os.Remove(filepath.Join(s.dir, "data", lock))
	}
}

// children are the processes that a process started.
func children(parent int) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	var out []int
	for _, f := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if _, p := status(pid); err == nil && p == parent {
			out = append(out, pid)
		}
	}
	return out
}

// ended says whether a process has ended, be it that nobody has asked how.
func ended(pid int) bool {
	state, _ := status(pid)
	return state == "" || state == "Z" || state == "X"
}

// status is the state of a process, empty if there is none, and its parent.
func status(pid int) (state string, parent int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(string(b), ") ")
	if err != nil || !ok {
		return "", 0
	}
	f := strings.Fields(rest)
	parent, _ = strconv.Atoi(f[1])
	return f[0], parent
}

// Stop ends it and removes all it had.
func (s *Server) Stop() {
	if s.ended != nil {
		s.Kill()
	}
	os.RemoveAll(s.dir)
}

// URL is where it is: a socket in its directory. A port could be somebody else's each time the
// server is started again.
func (s *Server) URL() string {
	return "postgres://postgres@/postgres?host=" + url.QueryEscape(filepath.Join(s.dir, "data")) + "&port=5432"
}

// Schema makes an empty schema and returns the URL of it.
func (s *Server) Schema(t testing.TB) string {
	t.Helper()
	ctx := context.Background()
	c, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	name := fmt.Sprintf("test%d", s.schemas.Add(1))
	if _, err := c.Exec(ctx, "CREATE SCHEMA "+name); err != nil {
		t.Fatal(err)
	}
	return s.URL() + "&search_path=" + name
}

// tail is the end of a log.
func tail(text []byte) []byte {
	return bytes.TrimSpace(text[max(0, len(text)-2000):])
}
