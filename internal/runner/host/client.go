package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/berthml/berth"
)

// Client talks to a host. Errors of a host that is not there are Unavailable.
type Client struct {
	hc *http.Client
}

// NewClient makes a client of the host of dir.
func NewClient(dir string) *Client {
	path := socketPath(dir)
	return NewClientFunc(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	})
}

// NewClientFunc makes a client that reaches its host through dial, for hosts on other machines.
func NewClientFunc(dial func(context.Context) (net.Conn, error)) *Client {
	return &Client{hc: &http.Client{Transport: &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     time.Minute,
	}}}
}

// Close lets idle connections go.
func (c *Client) Close() { c.hc.CloseIdleConnections() }

// Start starts a task unless the host knows it.
func (c *Client) Start(ctx context.Context, l *berth.Launch) error {
	return c.call(ctx, "POST", "/start", l, nil)
}

// Tasks lists every task of the host.
func (c *Client) Tasks(ctx context.Context) ([]Status, error) {
	var all []Status
	err := c.call(ctx, "GET", "/tasks", nil, &all)
	return all, err
}

// Stop asks a task to end.
func (c *Client) Stop(ctx context.Context, id berth.TaskID, grace time.Duration) error {
	return c.call(ctx, "POST", "/stop", stopRequest{Task: id, Grace: grace}, nil)
}

// Remove forgets a task that is over.
func (c *Client) Remove(ctx context.Context, id berth.TaskID) error {
	return c.call(ctx, "POST", "/remove", removeRequest{Task: id}, nil)
}

// Info asks the host who it is.
func (c *Client) Info(ctx context.Context) (Info, error) {
	var i Info
	err := c.call(ctx, "GET", "/info", nil, &i)
	return i, err
}

// Quit ends the host. Its tasks run on.
func (c *Client) Quit(ctx context.Context) error { return c.call(ctx, "POST", "/quit", nil, nil) }

// Restart makes the host execute its program anew. Its tasks run on and are taken up again.
func (c *Client) Restart(ctx context.Context) error { return c.call(ctx, "POST", "/restart", nil, nil) }

// ErrGone is in the chain of errors that mean: no host listens.
var ErrGone = errors.New("no runner host")

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://host"+path, body)
	if err != nil {
		return err
	}
	res, err := c.hc.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return berth.Errorf(berth.Unavailable, "runner host: %w", context.Cause(ctx))
		}
		return gone(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return gone(err)
	}
	if res.StatusCode != http.StatusOK {
		var f failure
		if json.Unmarshal(b, &f) != nil || f.Code == "" {
			return berth.Errorf(berth.Internal, "runner host answered %s", res.Status)
		}
		return f.err()
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

func gone(err error) error {
	return &berth.Error{Code: berth.Unavailable, Msg: ErrGone.Error() + ": " + err.Error(), Err: errors.Join(ErrGone, err)}
}
