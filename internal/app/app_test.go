package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth/internal/app"
	"github.com/berthml/berth/internal/config"
	"github.com/berthml/berth/internal/driver/local"
	"github.com/berthml/berth/internal/driver/ssh"
)

// The test binary is also the runner host: the driver starts it again with this argument.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "_host" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := local.HostMain(ctx, os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "_ssh" {
		if err := ssh.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

type server struct {
	t    *testing.T
	app  *app.App
	http *http.Client
	ws   string
	home string
	stop func()
	log  *syncBuffer
}

// syncBuffer is what a server has logged.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func start(t *testing.T, home string) *server {
	t.Helper()
	return startAs(t, config.Default(home))
}

// startAs starts a server as a configuration says.
func startAs(t *testing.T, cfg config.Config, before ...func(*app.App)) *server {
	t.Helper()
	level := slog.LevelWarn
	if testing.Verbose() {
		level = slog.LevelDebug
	}
	said := &syncBuffer{}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), said), &slog.HandlerOptions{Level: level}))
	a, err := app.Open(t.Context(), cfg, []string{os.Args[0], "_host"}, log)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range before {
		f(a)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	sock := filepath.Join(cfg.RunDir(), "api.sock")
	s := &server{t: t, app: a, log: said, home: cfg.Home, ws: cfg.DefaultWorkspace().ID(), http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", sock)
		},
	}}}
	s.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		if err := a.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		s.stop = func() {}
	}
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *server) do(method, path string, body any) (int, map[string]any) {
	s.t.Helper()
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			s.t.Fatal(err)
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://berth"+path, r)
	if err != nil {
		s.t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.http.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]any{}
	if len(b) > 0 {
		if err := json.Unmarshal(b, &out); err != nil {
			out["raw"] = string(b)
		}
	}
	return resp.StatusCode, out
}

func (s *server) submit(name, command string) {
	s.t.Helper()
	s.submitTo("local", name, command)
}

func (s *server) submitTo(compute, name, command string) {
	s.t.Helper()
	code, m := s.do("PUT", s.ws+"/jobs/"+name, map[string]any{"properties": map[string]any{"jobType": "Command", "command": command, "computeId": s.ws + "/computes/" + compute}})
	if code != http.StatusCreated {
		s.t.Fatalf("submit: %d %v", code, m)
	}
}

// wait follows the log, which ends when the job has ended.
func (s *server) wait(name string) (log string, status any) {
	s.t.Helper()
	_, m := s.do("GET", s.ws+"/jobs/"+name+"/logs?follow=true", nil)
	log, _ = m["raw"].(string)
	_, j := s.do("GET", s.ws+"/jobs/"+name, nil)
	return log, j["properties"].(map[string]any)["status"]
}

func shortHome(t *testing.T) string {
	t.Helper()
	home, err := os.MkdirTemp("", "berth")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := local.StopIdle(context.Background(), filepath.Join(home, "host")); err != nil {
			t.Errorf("the runner host stays: %v", err)
		}
		os.RemoveAll(home)
	})
	return home
}

func TestJobEndToEnd(t *testing.T) {
	s := start(t, shortHome(t))
	s.submit("hello", "echo one; echo two >&2; exit 0")
	log, status := s.wait("hello")
	if log != "one\ntwo\n" || status != "Completed" {
		t.Errorf("log %q, status %v", log, status)
	}
	s.submit("fails", "echo oh; exit 7")
	log, status = s.wait("fails")
	_, j := s.do("GET", s.ws+"/jobs/fails", nil)
	b, _ := json.Marshal(j["properties"].(map[string]any)["berth"])
	if log != "oh\n" || status != "Failed" || !bytes.Contains(b, []byte(`"code":7`)) {
		t.Errorf("log %q, status %v, %s", log, status, b)
	}
}

func TestServerAwayWhileTaskRuns(t *testing.T) {
	home := shortHome(t)
	s := start(t, home)
	gate := filepath.Join(t.TempDir(), "gate")
	s.submit("long", "echo begun; while [ ! -e "+gate+" ]; do sleep 0.02; done; echo over; exit 3")
	for deadline := time.Now().Add(time.Minute); ; {
		_, j := s.do("GET", s.ws+"/jobs/long", nil)
		if j["properties"].(map[string]any)["status"] == "Running" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("never ran: %v", j)
		}
	}
	s.stop()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s = start(t, home)
	log, status := s.wait("long")
	if log != "begun\nover\n" || status != "Failed" {
		t.Errorf("log %q, status %v", log, status)
	}
}
