// Package client is the Go client of the API. The command line uses nothing else.
//
// A Client talks to one server and one workspace: the server of a local home over its Unix socket,
// without a token or TLS, or a remote one over HTTPS. Methods are safe for concurrent use. Errors
// carry the server's code and message.
package client

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/berthml/berth"
)

// Client talks to one workspace of one server.
type Client struct {
	// Workspace is where resources are looked for.
	Workspace berth.Workspace

	cfg   Config
	base  string // scheme and host of every request
	local bool   // over the home's socket
	http  *http.Client
	info  Server
	store *stores
	met   *atomic.Bool // the server has answered
}

// In is a client for another workspace of the same server; it shares the connections.
func (c *Client) In(ws berth.Workspace) *Client {
	other := *c
	other.Workspace, other.store = ws, &stores{}
	return &other
}

// Local reports whether the client talks to the server of a home on this machine.
func (c *Client) Local() bool { return c.local }

// Server is what the home says about its running server; for a remote server only URL is set.
func (c *Client) Server() Server { return c.info }

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// path is the escaped path of a resource below the workspace.
func (c *Client) path(segments ...string) string {
	var b strings.Builder
	w := c.Workspace
	for _, s := range []string{"subscriptions", w.Subscription, "resourceGroups", w.Group, "providers", berth.Provider, "workspaces", w.Name} {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}

// call makes a request with a JSON body and decodes the JSON answer into out; both may be nil.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	_, err := c.callRev(ctx, method, path, in, out)
	return err
}

// callRev is call with the revision of the document that was read or written.
func (c *Client) callRev(ctx context.Context, method, path string, in, out any) (berth.Rev, error) {
	var body []byte
	switch v := in.(type) {
	case nil:
	case json.RawMessage:
		body = v
	default:
		var err error
		if body, err = json.Marshal(in); err != nil {
			return 0, err
		}
	}
	var rev berth.Rev
	err := c.persist(ctx, method, func() error {
		req, err := c.request(ctx, method, path, body)
		if err == nil {
			rev, err = c.answer(req, out)
		}
		return err
	})
	return rev, err
}

// request makes a request of the API; path is escaped and may have a query.
func (c *Client) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, r)
	if err == nil && body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, err
}

// answer sends a request and decodes the JSON answer into out, which may be nil. rev is the
// revision of the document, if any.
func (c *Client) answer(req *http.Request, out any) (rev berth.Rev, err error) {
	resp, err := c.do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() // read to the end below
	if resp.StatusCode >= 300 {
		return 0, failure(resp)
	}
	b, err := readBody(resp)
	if err != nil {
		return 0, c.lost(err)
	}
	if n, err := strconv.ParseInt(strings.Trim(resp.Header.Get("ETag"), `"`), 10, 64); err == nil {
		rev = berth.Rev(n)
	}
	if out == nil {
		return rev, nil
	}
	if text := bytes.TrimSpace(b); len(text) == 0 || string(text) == "null" {
		return 0, &Unreachable{Server: c.where(), Err: errEmpty}
	}
	if err := decode(b, out); err != nil {
		return 0, berth.Errorf(berth.Internal, "%s is not a Berth server: its answer is not JSON (%w)", c.base, err)
	}
	return rev, nil
}

// readBody reads a response to its end, into a buffer of its size where the server says it.
func readBody(resp *http.Response) ([]byte, error) {
	if n := resp.ContentLength; 0 < n && n < 64<<20 {
		b := make([]byte, n)
		_, err := io.ReadFull(resp.Body, b)
		return b, err
	}
	return io.ReadAll(resp.Body)
}

// decode reads JSON. Numbers whose type is not known keep their digits; jobs have none, and their
// lists, which are long, are decoded without another copy.
func decode(b []byte, out any) error {
	switch out.(type) {
	case *page[*Job], *Job:
		return json.Unmarshal(b, out)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	return dec.Decode(out)
}

// do sends a request to the API with the client's credentials.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	if c.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	req.Header.Set("User-Agent", "berth/"+berth.Version)
	resp, err := c.http.Do(req)
	return resp, c.lost(err)
}

// Unreachable is the error of a request that got no response.
type Unreachable struct {
	Server string
	Err    error
	dial   bool // no connection was made
	local  bool // the server is that of a home
}

func (e *Unreachable) Error() string {
	why := unreachableWhy(e.Err)
	if e.local && e.dial && NotRunning(e.Err) {
		why = "no server runs there; start one with `berth up`"
	}
	return "cannot reach " + e.Server + ": " + why
}

// unreachableWhy is the error of a connection in words for people.
func unreachableWhy(err error) string {
	var host *net.DNSError
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var op *net.OpError
	switch {
	case errors.As(err, &host) && host.IsNotFound:
		return "there is no host " + host.Name
	case errors.As(err, &host):
		return "the address of " + host.Name + " cannot be looked up"
	case errors.As(err, &authority):
		return "its certificate is signed by an authority that this machine does not trust"
	case errors.As(err, &name):
		return "its certificate is for another name than " + name.Host
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused: no server listens there"
	case errors.As(err, &op) && op.Timeout():
		return "it does not answer"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it closed the connection"
	}
	return err.Error()
}

// Stopped reports whether the server of a home on this machine has stopped: it closed the
// connection, or accepts none.
func (e *Unreachable) Stopped() bool {
	return e.local && (NotRunning(e.Err) || errors.Is(e.Err, io.EOF) || errors.Is(e.Err, io.ErrUnexpectedEOF))
}

func (e *Unreachable) Unwrap() error { return e.Err }

// As lets berth.CodeOf see that the server is unavailable.
func (e *Unreachable) As(target any) bool {
	if t, ok := target.(**berth.Error); ok {
		*t = &berth.Error{Code: berth.Unavailable, Msg: e.Error(), Err: e.Err}
		return true
	}
	return false
}

// lost gives an error of the connection its code. The caller's own cancellation stays what it is.
func (c *Client) lost(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return &Unreachable{Server: c.where(), Err: err, dial: dialError(err), local: c.local}
}

func (c *Client) where() string {
	if c.local {
		return "the server of " + c.cfg.Home
	}
	return c.base
}

// errEmpty is what is wrong with an answer that says nothing: a server that was stopped, or a
// proxy, sent it, and nothing was done.
var errEmpty = errors.New("the response has no body, so it is unknown whether the request succeeded")

// failure reads an Azure-shaped error.
func failure(resp *http.Response) error {
	e := refusal(resp)
	if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "" {
		return &comeBack{err: e}
	}
	return e
}

// workspaceFull is the tracking server's code for a workspace at its storage limit.
const workspaceFull = "RESOURCE_EXHAUSTED"

// IsFull reports whether the workspace accepts no points and files because it stores as much as it
// may.
func IsFull(err error) bool {
	var e *berth.Error
	return errors.As(err, &e) && e.Wire == workspaceFull
}

func refusal(resp *http.Response) *berth.Error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // the status says enough
	e := &berth.Error{Code: berth.CodeOfHTTP(resp.StatusCode), Wire: resp.Header.Get("x-ms-error-code")}
	var v struct {
		Error struct {
			Code, Message  string
			AdditionalInfo []struct {
				Info struct{ Value struct{ Code string } }
			}
		}
		Message   string // as the tracking server has it
		ErrorCode string `json:"error_code"`
	}
	var x struct { // the storage's own form
		XMLName       xml.Name `xml:"Error"`
		Code, Message string
	}
	if xml.Unmarshal(b, &x) == nil {
		v.Error.Code = x.Code
		v.Error.Message, _, _ = strings.Cut(x.Message, "\nRequestId:")
	}
	if v.Error.Message == "" && json.Unmarshal(b, &v) == nil && v.Error.Message == "" {
		v.Error.Message = v.Message
		switch v.ErrorCode { // which say more than the status
		case "RESOURCE_ALREADY_EXISTS":
			e.Code = berth.Conflict
		case "REQUEST_LIMIT_EXCEEDED":
			e.Code = berth.Limit
		case workspaceFull:
			e.Code, e.Wire = berth.Limit, workspaceFull
		}
	}
	if v.Error.Message != "" {
		e.Msg = v.Error.Message
		if e.Wire == "" {
			e.Wire = v.Error.Code
		}
		for _, more := range v.Error.AdditionalInfo {
			if e.Code == berth.Invalid && more.Info.Value.Code == "NotFound" { // as berth.Missingf
				e.Err = &berth.Error{Code: berth.NotFound}
			}
		}
		return e
	}
	e.Msg = resp.Request.Method + " " + resp.Request.URL.Path + ": the server answered " + resp.Status
	if e.Wire != "" {
		e.Msg += " (" + e.Wire + ")"
	}
	return e
}
