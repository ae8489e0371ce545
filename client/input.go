package client

import (
	"context"
	"io"
	"net/http"

	"github.com/berthml/berth"
)

// Input opens the standard input of a job that asks for one: frames of [berth.InputFrame] are
// written to it, and [berth.InputReady] can be read once the job's command takes them. It ends with
// the job; closing it ends the job.
func (c *Client) Input(ctx context.Context, job string) (io.ReadWriteCloser, error) {
	return c.upgrade(ctx, c.path("jobs", job, "input"), berth.InputProtocol)
}

// upgrade makes a request that becomes a connection of another protocol.
func (c *Client) upgrade(ctx context.Context, path, protocol string) (io.ReadWriteCloser, error) {
	req, err := c.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", protocol)
	res, err := c.do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		defer res.Body.Close()
		return nil, failure(res)
	}
	rwc, ok := res.Body.(io.ReadWriteCloser)
	if !ok {
		res.Body.Close()
		return nil, berth.Errorf(berth.Internal, "the connection to %s cannot be turned into a tunnel", c.where())
	}
	return rwc, nil
}
