// Package world is the server under test and lean clients of it: connections that are kept, and the
// event stream.
package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/cluster"
)

// Server is a running server in a home of its own.
type Server struct {
	Bin, Home string
	WS        string // path of the workspace
	group     *measure.Group
	cmd       *exec.Cmd
	ended     chan struct{}
	address   string // HOST:PORT of HTTPS
	socket    string
	token     string
	ca        string
}

// Start runs a server in home, which may hold the files of an earlier one, and waits until it
// answers.
func Start(ctx context.Context, group *measure.Group, bin, home string) (*Server, error) {
	s := &Server{Bin: bin, Home: home}
	return s, s.start(ctx, group, bin, "serve", "--home", home, "--listen", "127.0.0.1:0")
}

// start runs a program that serves the home.
func (s *Server) start(ctx context.Context, group *measure.Group, program string, args ...string) error {
	home := s.Home
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(home, "bench.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.group, s.ended = group.Sub("server-"+filepath.Base(home)), make(chan struct{})
	_ = os.Remove(filepath.Join(home, "run", "server.json"))
	s.cmd = s.group.Command(context.WithoutCancel(ctx), program, args...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	go func() { _ = s.cmd.Wait(); close(s.ended) }()
	for end := time.Now().Add(60 * time.Second); ; {
		if err = s.connect(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			s.Stop()
			return ctx.Err()
		case <-s.ended:
			return fmt.Errorf("the server ended: %s", tail(log.Name()))
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(end) {
			s.Stop()
			return fmt.Errorf("the server does not answer: %w: %s", err, tail(log.Name()))
		}
	}
}

// connect reads what the server says of itself and asks it something.
func (s *Server) connect(ctx context.Context) error {
	b, err := os.ReadFile(filepath.Join(s.Home, "run", "server.json"))
	if err != nil {
		return err
	}
	var v struct {
		URL, Socket, CABundle string
		Workspace             struct{ Subscription, Group, Name string }
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	token, err := os.ReadFile(filepath.Join(s.Home, "admin.token"))
	if err != nil {
		return err
	}
	s.address, s.socket, s.ca, s.token = strings.TrimPrefix(v.URL, "https://"), v.Socket, v.CABundle, strings.TrimSpace(string(token))
	s.WS = "/subscriptions/" + v.Workspace.Subscription + "/resourceGroups/" + v.Workspace.Group +
		"/providers/Microsoft.MachineLearningServices/workspaces/" + v.Workspace.Name
	c, err := s.Dial(ctx, false)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Get(s.WS)
	return err
}

// Processes are the server's, and the runner host's.
func (s *Server) Processes() (server, host []int) {
	dir := filepath.Join(s.Home, "host")
	server = []int{s.cmd.Process.Pid}
	host = measure.Find(func(args []string) bool {
		i := slices.Index(args, "--dir")
		return len(args) > 1 && args[1] == "_host" && i > 0 && i+1 < len(args) && args[i+1] == dir
	})
	return server, host
}

// Own is the CPU time of our own processes; users' commands are not in it.
func (s *Server) Own() measure.Times {
	server, host := s.Processes()
	return measure.CPUs(append(server, host...))
}

// Usage is the CPU time of everything the server started, users' commands included, where that is
// known.
func (s *Server) Usage() (time.Duration, bool) { return s.group.Usage() }

// CLI is the command line of this server's home.
func (s *Server) CLI(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.Bin, args...)
	cmd.Dir = os.TempDir()
	cmd.Env = append(os.Environ(), "BERTH_HOME="+s.Home)
	return cmd
}

// Stop ends the server, its runner host and its nodes.
func (s *Server) Stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(20 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
	// The host outlives a server, and a part of it that ends is started again: look until none is
	// left.
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		_, host := s.Processes()
		for _, p := range host {
			_ = syscall.Kill(p, syscall.SIGKILL)
		}
		if len(host) == 0 {
			break
		}
	}
	if s.Bin == "" { // its nodes are somebody else's
		s.group.Close()
		return
	}
	if err := s.giveBack(); err != nil {
		fmt.Fprintln(os.Stderr, "bench: nodes are left:", err)
	}
	s.group.Close()
}

// giveBack removes the nodes that are left of clusters: they outlive a server too.
func (s *Server) giveBack() error {
	d, err := cluster.Open(driver.Config{Name: "clusters", Dir: filepath.Join(s.Home, "nodes"), Host: []string{s.Bin, "_host"}})
	if err != nil {
		return err
	}
	t := driver.NewTarget("clusters", d, nil)
	defer t.Close()
	info, err := t.Probe(context.Background())
	if err != nil {
		return err
	}
	for _, n := range info.Nodes {
		err = errors.Join(err, t.RemoveNode(context.Background(), n.Name))
	}
	return err
}

func tail(path string) string {
	b, _ := os.ReadFile(path)
	return string(b[max(0, len(b)-1000):])
}
