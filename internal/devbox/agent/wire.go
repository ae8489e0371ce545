package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/devbox"
)

// The agent's socket carries several kinds of streams. A connection begins with a line that says
// which one it is; the agent answers "+" or "-" and why not, on a line too, and the rest is the
// stream's own.
const (
	hello   = "berth-agent/1 "
	control = "control" // HTTP, for devbox.Agent
	sshName = "ssh"
)

// runDir is where the sockets of an instance are. Their paths may have about a hundred bytes, so a
// deep directory has them elsewhere.
func runDir(dir string) string {
	if run := filepath.Join(dir, "run"); len(run) <= 80 {
		return run
	}
	return filepath.Join(devbox.Scratch(dir), "run")
}

func socketPath(dir string) string { return filepath.Join(runDir(dir), "agent.sock") }

// Dial opens a stream to the agent of the instance in dir: to an application by its name, or to
// "ssh".
func Dial(ctx context.Context, dir, to string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socketPath(dir))
	if err != nil {
		return nil, berth.Errorf(berth.Unavailable, "the instance does not answer: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if _, err := io.WriteString(c, hello+to+"\n"); err != nil {
		c.Close()
		return nil, berth.Errorf(berth.Unavailable, "the instance does not answer: %w", err)
	}
	answer, err := readLine(c)
	if err != nil {
		c.Close()
		return nil, berth.Errorf(berth.Unavailable, "the instance does not answer: %w", err)
	}
	if why, refused := strings.CutPrefix(answer, "-"); refused {
		c.Close()
		return nil, berth.Errorf(berth.Unavailable, "%s", why)
	}
	return c, nil
}

// readLine reads a line without reading past it.
func readLine(r io.Reader) (string, error) {
	var line []byte
	var b [1]byte
	for len(line) < 1024 {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
	return "", fmt.Errorf("a line of more than %d bytes", len(line))
}

// Client is a [devbox.Agent] over the socket of an instance.
type Client struct {
	http *http.Client
}

// NewClient reaches the agent of the instance in dir.
func NewClient(dir string) *Client {
	return &Client{&http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return Dial(ctx, dir, control) },
	}}}
}

func (c *Client) call(ctx context.Context, method, path string, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, nil)
	if err != nil {
		return err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return berth.Errorf(berth.Unavailable, "the instance's agent does not answer: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := bufio.NewReader(res.Body).ReadString('\n')
		return berth.Errorf(berth.Unavailable, "the instance's agent answered %s: %s", res.Status, strings.TrimSpace(text))
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(res.Body).Decode(out)
}

// Status is [devbox.Agent.Status].
func (c *Client) Status(ctx context.Context, after int) (s devbox.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, statusWait+10*time.Second)
	defer cancel()
	return s, c.call(ctx, http.MethodGet, "/status?after="+strconv.Itoa(after), &s)
}

// Signals is [devbox.Agent.Signals].
func (c *Client) Signals(ctx context.Context) (s []devbox.Signal, err error) {
	return s, c.call(ctx, http.MethodGet, "/signals", &s)
}

// Disk is [devbox.Agent.Disk].
func (c *Client) Disk(ctx context.Context) (n int64, err error) {
	return n, c.call(ctx, http.MethodGet, "/disk", &n)
}

// Stop is [devbox.Agent.Stop].
func (c *Client) Stop(ctx context.Context) error { return c.call(ctx, http.MethodPost, "/stop", nil) }
