// Package peer runs what Berth is compared with: Slurm, HyperQueue, xargs, and the bare machine.
// What is missing is installed where that is possible; a peer that cannot be run is an error that
// says why.
package peer

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

//go:embed source/stamp.c
var stampC []byte

// BuildStamp makes the program that says when its first instruction ran, in dir.
func BuildStamp(ctx context.Context, dir string) (path, how string, err error) {
	path = filepath.Join(dir, "stamp")
	if cc, err := exec.LookPath("cc"); err == nil {
		source := filepath.Join(dir, "stamp.c")
		if err := os.WriteFile(source, stampC, 0o600); err != nil {
			return "", "", err
		}
		for _, static := range []string{"-static", "-O2"} {
			if exec.CommandContext(ctx, cc, "-O2", static, "-o", path, source).Run() == nil {
				return path, "C", nil
			}
		}
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/berthml/berth/bench/peer/stamp")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("build stamp: %w: %s", err, out)
	}
	return path, "Go", nil
}

// Pipe is a named pipe that stamps are read from, so that nobody has to poll for them.
type Pipe struct {
	Path string
	f    *os.File
	r    *bufio.Reader
}

// NewPipe makes a named pipe.
func NewPipe(path string) (*Pipe, error) {
	if err := syscall.Mkfifo(path, 0o666); err != nil {
		return nil, err
	}
	// Open for writing too: then it never ends, and a writer never waits.
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return &Pipe{Path: path, f: f, r: bufio.NewReader(f)}, nil
}

// Wait returns the next stamp.
func (p *Pipe) Wait(limit time.Duration) (time.Time, error) {
	if err := p.f.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return time.Time{}, err
	}
	line, err := p.r.ReadString('\n')
	if err != nil {
		return time.Time{}, fmt.Errorf("no first instruction within %s: %w", limit, err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	return time.Unix(0, n), err
}

// Close removes the pipe.
func (p *Pipe) Close() {
	p.f.Close()
	_ = os.Remove(p.Path)
}

// Ms is a duration in milliseconds.
func Ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
