package world

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Tool is a program of a Go module, PACKAGE@VERSION, built once into the user's cache.
func Tool(t *testing.T, module string) string {
	t.Helper()
	pkg, version, _ := strings.Cut(module, "@")
	dir := filepath.Join(cacheDir(), "tools", path.Base(pkg)+"@"+version)
	install(t, dir, func(into string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "go", "install", module)
		cmd.Dir = into
		cmd.Env = append(os.Environ(), "GOBIN="+into, "CGO_ENABLED=0", "GOFLAGS=")
		return cmd
	})
	return filepath.Join(dir, path.Base(pkg))
}

// Package is the directory of an npm package, NAME@VERSION, installed once into the user's cache.
func Package(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(cacheDir(), "tools", name)
	install(t, dir, func(into string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "npm", "install", "--no-audit", "--no-fund", "--prefix", into, name)
	})
	return dir
}

// install fills a directory, once for all tests that want it.
func install(t *testing.T, dir string, command func(into string) *exec.Cmd) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
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
		return
	}
	t.Logf("installing %s", filepath.Base(dir))
	if out, err := command(dir).CombinedOutput(); err != nil {
		t.Fatalf("installing %s: %v\n%s", filepath.Base(dir), err, out)
	}
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// FreeAddress is an address of this machine where nobody listens.
func FreeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Daemon is a program that serves at an address.
type Daemon struct {
	t       *testing.T
	address string
	make    func() *exec.Cmd
	cmd     *exec.Cmd
	ended   chan struct{}
	out     *output
}

// output is what a program wrote.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// Serve starts a program and waits until somebody answers at the address. It ends with the test.
func Serve(t *testing.T, address string, command func() *exec.Cmd) *Daemon {
	t.Helper()
	d := &Daemon{t: t, address: address, make: command}
	d.Start()
	t.Cleanup(d.Stop)
	return d
}

// Start starts the program, after Stop again.
func (d *Daemon) Start() {
	d.t.Helper()
	d.cmd, d.ended, d.out = d.make(), make(chan struct{}), new(output)
	d.cmd.Stdout, d.cmd.Stderr = d.out, d.out
	d.cmd.WaitDelay = 5 * time.Second
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	go func() {
		_ = d.cmd.Wait() // it is killed
		close(d.ended)
	}()
	limit := time.After(2 * time.Minute)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		c, err := new(net.Dialer).DialContext(ctx, "tcp", d.address)
		cancel()
		if err == nil {
			c.Close()
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-d.ended:
			d.t.Fatalf("%s ended:\n%s", d.cmd.Path, d.out)
		case <-limit:
			d.t.Fatalf("%s does not answer at %s:\n%s", d.cmd.Path, d.address, d.out)
		}
	}
}

// Stop kills the program.
func (d *Daemon) Stop() {
	_ = d.cmd.Process.Kill()
	<-d.ended
}
