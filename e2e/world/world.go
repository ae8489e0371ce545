// Package world is what end-to-end stories share: the built program, a home of their own, Python
// environments with real clients.
package world

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Binary is the program under test: BERTH_BIN, or a fresh build.
func Binary(t *testing.T) string {
	t.Helper()
	if b := os.Getenv("BERTH_BIN"); b != "" {
		return b
	}
	b := filepath.Join(t.TempDir(), "berth")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", b, "github.com/berthml/berth/cmd/berth")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return b
}

// Home is a server's home that is gone, with its server, when the test ends.
func Home(t *testing.T) string {
	t.Helper()
	home, err := os.MkdirTemp("", "be")
	if err != nil {
		t.Fatal(err)
	}
	return home
}

// Server is a running server and how to reach it.
type Server struct {
	Bin, Home             string
	Env                   map[string]string
	URL                   string
	Token                 string
	CABundle              string
	Sub, Group, Workspace string
}

// Start brings a server up in a new home.
func Start(t *testing.T) *Server {
	t.Helper()
	return StartIn(t, Home(t))
}

// StartIn brings a server up in a home.
func StartIn(t *testing.T, home string) *Server {
	t.Helper()
	s := &Server{Bin: Binary(t), Home: home}
	t.Cleanup(func() {
		if out, err := s.Command("down").CombinedOutput(); err != nil {
			t.Logf("down: %v\n%s", err, out)
		}
		if t.Failed() {
			t.Logf("home kept: %s", s.Home)
			return
		}
		os.RemoveAll(s.Home)
	})
	if out, err := s.Command("up").CombinedOutput(); err != nil {
		t.Fatalf("up: %v\n%s", err, out)
	}
	out, err := s.Command("azure-env", "-o", "json").Output()
	if err != nil {
		t.Fatalf("azure-env: %v", err)
	}
	var v struct {
		Env      map[string]string `json:"env"`
		Metadata string            `json:"metadata_url"`
		CABundle string            `json:"ca_bundle"`
		Token    string            `json:"token"`
		Sub      string            `json:"subscription_id"`
		Group    string            `json:"resource_group"`
		Name     string            `json:"workspace_name"`
	}
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatalf("azure-env: %v in %s", err, out)
	}
	s.Env, s.CABundle, s.Token = v.Env, v.CABundle, v.Token
	s.Sub, s.Group, s.Workspace = v.Sub, v.Group, v.Name
	s.URL, _, _ = strings.Cut(v.Metadata, "/metadata/")
	return s
}

// Command is the program with arguments, pointed at the server's home.
func (s *Server) Command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), s.Bin, args...)
	cmd.Env = append(os.Environ(), "BERTH_HOME="+s.Home, "BERTH_ENV_CACHE="+filepath.Join(cacheDir(), "envs"))
	return cmd
}

// Environ is the environment an Azure client needs.
func (s *Server) Environ() []string {
	env := os.Environ()
	for k, v := range s.Env {
		env = append(env, k+"="+v)
	}
	return append(env, "AZURE_SUBSCRIPTION_ID="+s.Sub, "AZURE_RESOURCE_GROUP="+s.Group, "AZUREML_WORKSPACE_NAME="+s.Workspace)
}

func cacheDir() string {
	dir := os.Getenv("XDG_CACHE_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return filepath.Join(os.TempDir(), "berth-e2e")
		}
		dir = filepath.Join(home, ".cache")
	}
	return filepath.Join(dir, "berth-e2e")
}

// Python is the interpreter of a virtual environment with exactly these packages, built once into
// the user's cache.
func Python(t *testing.T, packages ...string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(strings.Join(packages, "\n")))
	dir := filepath.Join(cacheDir(), "venv-"+hex.EncodeToString(sum[:6]))
	python := filepath.Join(dir, "bin", "python")
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	// One builder at a time: tests of several packages run side by side.
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ready := filepath.Join(dir, "ready")
	if _, err := os.Stat(ready); err == nil {
		return python
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	t.Logf("installing %s", strings.Join(packages, " "))
	for _, args := range [][]string{
		{"python3", "-m", "venv", dir},
		append([]string{python, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"}, packages...),
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", fmt.Sprint(args), err, out)
		}
	}
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return python
}

// Gone reports whether a process has ended, be it that nobody has taken note of its end yet.
func Gone(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}
