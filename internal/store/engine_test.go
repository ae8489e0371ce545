package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berthml/berth/internal/store"
)

func TestMain(m *testing.M) {
	if job := os.Getenv("STORE_TEST_CHILD"); job != "" {
		child(job)
		return
	}
	code := m.Run()
	if shared.server != nil {
		shared.server.stop()
	}
	os.Exit(code)
}

// eachEngine runs a test on a fresh database of every engine. url opens it again.
func eachEngine(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, "sqlite:"+filepath.Join(t.TempDir(), "berth.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, sharedPostgres(t).schema(t))
	})
}

// open opens a database for the length of a test, without waits for the disk.
func open(t testing.TB, url string) *store.DB {
	t.Helper()
	db, err := store.Open(context.Background(), url, store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// shared is the PostgreSQL server of all tests; each has a schema of its own.
var shared struct {
	once   sync.Once
	server *pgServer
	err    error
}

func sharedPostgres(t testing.TB) *pgServer {
	t.Helper()
	shared.once.Do(func() {
		shared.server, shared.err = startPostgres("-F", "-c", "full_page_writes=off")
	})
	needPostgres(t, shared.err)
	return shared.server
}

var errNoPostgres = errors.New("PostgreSQL is not installed")

// needPostgres skips or fails a test when the server could not be started.
func needPostgres(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, errNoPostgres) && !strings.Contains(os.Getenv("BERTH_REQUIRE_ENGINES"), "postgres") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A pgServer is a PostgreSQL server in the foreground, in a directory of its own.
type pgServer struct {
	dir, postgres string
	port          int
	args          []string
	cred          *syscall.Credential
	cmd           *exec.Cmd
	ended         chan struct{}
	log           *os.File
	schemas       atomic.Int64
}

func startPostgres(args ...string) (*pgServer, error) {
	initdb, err := pgTool("initdb")
	if err != nil {
		return nil, err
	}
	postgres, err := pgTool("postgres")
	if err != nil {
		return nil, err
	}
	// Not t.TempDir: the server's user has to be able to search every directory above.
	dir, err := os.MkdirTemp("/tmp", "berth-pg-")
	if err != nil {
		return nil, err
	}
	s := &pgServer{dir: dir, postgres: postgres, args: args}
	data := filepath.Join(dir, "data")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(data, 0o700)); err != nil {
		return nil, err
	}
	if os.Getuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNoPostgres, err)
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	l.Close()
	if err := s.start(); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func pgTool(name string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		return "", fmt.Errorf("%w: no %s", errNoPostgres, name)
	}
	return found[len(found)-1], nil
}

// as makes a command run as the server's user, in a group of its own.
func (s *pgServer) as(cmd *exec.Cmd) {
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.cred}
}

// start runs the server and waits until it answers. One that was killed leaves processes behind for a moment, which
// keep a new one from starting: then it is tried again.
func (s *pgServer) start() error {
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

func (s *pgServer) tryStart(limit context.Context) error {
	data := filepath.Join(s.dir, "data")
	args := append([]string{"-D", data, "-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-k", data, "-c", "max_connections=300"}, s.args...)
	s.cmd = exec.Command(s.postgres, args...)
	s.as(s.cmd)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	s.ended = ended
	go func() {
		s.cmd.Wait()
		close(ended)
	}()
	for {
		c, err := pgx.Connect(limit, s.url())
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

// kill ends the server and its processes at once.
func (s *pgServer) kill() {
	syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	<-s.ended
	os.Remove(filepath.Join(s.dir, "data", "postmaster.pid"))
}

func (s *pgServer) stop() {
	if s.ended != nil {
		s.kill()
	}
	os.RemoveAll(s.dir)
}

func (s *pgServer) url() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres", s.port)
}

// schema makes an empty schema and returns the URL of it.
func (s *pgServer) schema(t testing.TB) string {
	t.Helper()
	ctx := context.Background()
	c, err := pgx.Connect(ctx, s.url())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	name := fmt.Sprintf("test%d", s.schemas.Add(1))
	if _, err := c.Exec(ctx, "CREATE SCHEMA "+name); err != nil {
		t.Fatal(err)
	}
	return s.url() + "?search_path=" + name
}

// tail is the end of a log.
func tail(text []byte) []byte {
	return bytes.TrimSpace(text[max(0, len(text)-2000):])
}
