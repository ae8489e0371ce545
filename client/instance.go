package client

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/berthml/berth"
)

// Instance is what a client needs to know to use a compute instance.
type Instance struct {
	Name  string
	State string
	User  string
	// Reason says why it is in State.
	Reason string
	// Operation is the last one, and how it went: InProgress, Succeeded, or a failure.
	Operation, Status string
	Errors            []string
	Warnings          []string
	Awake             string
	AwakeAt, StopsAt  time.Time
	HostKey           string
	Apps              []App
	DiskUsed          int64
	DiskSize          int64

	sshEndpoint string
}

// App is an application of an instance.
type App struct{ Title, URL string }

// AsInstance reads an instance's document; ok is false for any other compute.
func AsInstance(d Document) (i Instance, ok bool) {
	p := d.Properties()
	inner, _ := p["properties"].(map[string]any)
	own, _ := p["berth"].(map[string]any)
	if inner == nil || own == nil || own["sshEndpoint"] == nil {
		return i, false
	}
	i = Instance{
		Name: d.Name(), State: str(inner["state"]), User: str(own["user"]), Reason: str(own["reason"]), Awake: str(own["awake"]),
		HostKey: str(own["hostKey"]), sshEndpoint: str(own["sshEndpoint"]), AwakeAt: moment(own["awakeAt"]), StopsAt: moment(own["stopsAt"]),
	}
	if op, ok := inner["lastOperation"].(map[string]any); ok {
		i.Operation, i.Status = str(op["operationName"]), str(op["operationStatus"])
	}
	for _, w := range list1(own["warnings"]) {
		i.Warnings = append(i.Warnings, str(w))
	}
	for _, e := range list1(inner["errors"]) {
		if m, ok := e.(map[string]any); ok {
			if m, ok = m["error"].(map[string]any); ok {
				i.Errors = append(i.Errors, str(m["message"]))
			}
		}
	}
	for _, a := range list1(inner["applications"]) {
		if m, ok := a.(map[string]any); ok {
			i.Apps = append(i.Apps, App{Title: str(m["displayName"]), URL: str(m["endpointUri"])})
		}
	}
	if disk, ok := own["disk"].(map[string]any); ok {
		i.DiskUsed, i.DiskSize = number(disk["used"]), number(disk["size"])
	}
	return i, true
}

func str(v any) string { s, _ := v.(string); return s }

func list1(v any) []any { l, _ := v.([]any); return l }

func number(v any) int64 {
	if n, ok := v.(interface{ Int64() (int64, error) }); ok {
		i, _ := n.Int64()
		return i
	}
	return 0
}

func moment(v any) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, str(v)) // zero where there is none
	return t
}

// Instance reads a compute instance.
func (c *Client) Instance(ctx context.Context, name string) (Instance, error) {
	d, err := c.Get(ctx, "computes", name)
	if err != nil {
		return Instance{}, err
	}
	i, ok := AsInstance(d)
	if !ok {
		return i, berth.Errorf(berth.Invalid, "compute %s is not a compute instance", d.Name())
	}
	return i, nil
}

// Operate asks an instance to start, stop, restart or, with in, resize.
func (c *Client) Operate(ctx context.Context, name, verb string, in any) error {
	return c.Post(ctx, in, nil, "computes", name, verb)
}

// OpenURL is an address that opens an application of an instance in a browser: once, and within a
// minute. That of a server of this machine's user alone is one that their browser needs no
// certificate for, unless https asks for the other.
func (c *Client) OpenURL(ctx context.Context, name, app string, https bool) (string, error) {
	var out struct {
		URL string `json:"url"`
	}
	return out.URL, c.Post(ctx, map[string]any{"app": app, "https": https}, &out, "computes", name, "open")
}

// InstanceLog reads the end of one of an instance's logs.
func (c *Client) InstanceLog(ctx context.Context, name, log string) (io.ReadCloser, error) {
	req, err := c.request(ctx, http.MethodPost, c.path("computes", name, "log")+"?"+url.Values{"name": {log}}.Encode(), nil)
	if err != nil {
		return nil, err
	}
	res, err := c.do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		defer res.Body.Close()
		return nil, failure(res)
	}
	return res.Body, nil
}

// SSH opens a connection to the ssh server of an instance, through the Berth server.
func (c *Client) SSH(ctx context.Context, i Instance) (net.Conn, error) {
	rwc, err := c.upgrade(ctx, i.sshEndpoint, "berth-ssh")
	if err != nil {
		return nil, err
	}
	return &tunnel{ReadWriteCloser: rwc}, nil
}

// Shell opens a connection that speaks ssh, with sessions beside the first task of a job. The
// server has its other end, and has been authenticated.
func (c *Client) Shell(ctx context.Context, job string) (net.Conn, error) {
	rwc, err := c.upgrade(ctx, c.path("jobs", job, "shell"), "berth-ssh")
	if err != nil {
		return nil, err
	}
	return &tunnel{ReadWriteCloser: rwc}, nil
}

// OpenService is [Client.OpenURL] for a service of a job.
func (c *Client) OpenService(ctx context.Context, job, service string, https bool) (string, error) {
	var out struct {
		URL string `json:"url"`
	}
	return out.URL, c.Post(ctx, map[string]any{"service": service, "https": https}, &out, "jobs", job, "open")
}

// tunnel is a connection that came out of an HTTP request.
type tunnel struct{ io.ReadWriteCloser }

func (t *tunnel) CloseWrite() error {
	if w, ok := t.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

func (*tunnel) LocalAddr() net.Addr              { return tunnelAddr{} }
func (*tunnel) RemoteAddr() net.Addr             { return tunnelAddr{} }
func (*tunnel) SetDeadline(time.Time) error      { return nil }
func (*tunnel) SetReadDeadline(time.Time) error  { return nil }
func (*tunnel) SetWriteDeadline(time.Time) error { return nil }

type tunnelAddr struct{}

func (tunnelAddr) Network() string { return "berth" }
func (tunnelAddr) String() string  { return "berth" }
