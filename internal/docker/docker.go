// Package docker is a client of the part of the Docker Engine API that tasks need, as Docker and
// Podman serve it. It is our own because the engine's client weighs more than it carries: 40
// packages, a fifth of the time in which this program starts.
package docker

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// newest is the version of the API that this package is written for. Engines that know only an
// older one are spoken to in theirs.
const newest = "1.44"

// A Client speaks to one engine. Its methods may be called by several goroutines.
type Client struct {
	host    string
	url     url.URL
	version string
	http    *http.Client
}

// An Error is an answer of the engine that is not a success.
type Error struct {
	Status  int // of HTTP
	Message string
}

func (e *Error) Error() string { return e.Message }

// Status is the HTTP status of an engine's answer that err is, or 0.
func Status(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Status
	}
	return 0
}

// A ConnectionError says that the engine could not be asked.
type ConnectionError struct {
	Host string
	Err  error
}

func (e *ConnectionError) Error() string {
	return fmt.Sprintf("the container engine at %s cannot be reached: %v", e.Host, e.Err)
}

func (e *ConnectionError) Unwrap() error { return e.Err }

// New is a client of the engine at host: unix://PATH, tcp://HOST:PORT, http://HOST:PORT or
// https://HOST:PORT. It does not connect yet.
func New(host string, t *tls.Config) (*Client, error) {
	scheme, addr, ok := strings.Cut(host, "://")
	if !ok || addr == "" {
		return nil, fmt.Errorf("%q is not the address of a container engine; write unix://PATH or tcp://HOST:PORT", host)
	}
	dialer := net.Dialer{Timeout: 30 * time.Second}
	tr := &http.Transport{TLSClientConfig: t, MaxIdleConns: 6, IdleConnTimeout: 30 * time.Second}
	c := &Client{host: host, http: &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	switch scheme {
	case "unix":
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "unix", addr) }
		c.url = url.URL{Scheme: "http", Host: "engine"}
	case "tcp", "http", "https":
		at, base, _ := strings.Cut(addr, "/")
		tr.Proxy, tr.DialContext = http.ProxyFromEnvironment, dialer.DialContext
		c.url = url.URL{Scheme: "http", Host: at, Path: strings.TrimRight("/"+base, "/")}
		if t != nil || scheme == "https" {
			c.url.Scheme = "https"
		}
	default:
		return nil, fmt.Errorf("%q is not the address of a container engine; write unix://PATH or tcp://HOST:PORT", host)
	}
	return c, nil
}

// EnvironmentTLS is what DOCKER_TLS_VERIFY and DOCKER_CERT_PATH say; nil where the engine at
// DOCKER_HOST is reached without TLS.
func EnvironmentTLS() (*tls.Config, error) {
	dir := os.Getenv("DOCKER_CERT_PATH")
	if dir == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	if err != nil {
		return nil, fmt.Errorf("DOCKER_CERT_PATH: %w", err)
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, InsecureSkipVerify: os.Getenv("DOCKER_TLS_VERIFY") == ""} //nolint:gosec // as Docker's own clients
	if !t.InsecureSkipVerify {
		pem, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
		if err != nil {
			return nil, fmt.Errorf("DOCKER_CERT_PATH: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("DOCKER_CERT_PATH: ca.pem contains no certificate")
		}
	}
	return t, nil
}

// Close lets go of connections that are not used.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Ping asks whether the engine is there, and agrees on the version of the API. It must have
// succeeded before other methods are called.
func (c *Client) Ping(ctx context.Context) error {
	res, err := c.send(ctx, http.MethodGet, "/_ping", nil, nil, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<10))
	c.version = "/v" + older(newest, res.Header.Get("Api-Version"))
	return nil
}

// older is the older of two versions of the API, MAJOR.MINOR. An engine that names none is taken to
// know ours.
func older(ours, theirs string) string {
	number := func(v string) int {
		major, minor, ok := strings.Cut(v, ".")
		a, err1 := strconv.Atoi(major)
		b, err2 := strconv.Atoi(minor)
		if !ok || err1 != nil || err2 != nil {
			return -1
		}
		return a<<16 + b
	}
	if n := number(theirs); n >= 0 && n < number(ours) {
		return theirs
	}
	return ours
}

// A body is what a request carries.
type body struct {
	content string // its type
	read    io.Reader
}

// send makes a request and returns its answer if that is a success. The path is below the version.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, b *body, header http.Header) (*http.Response, error) {
	u := c.url
	u.Path += c.version + path
	u.RawQuery = query.Encode()
	var read io.Reader
	if b != nil {
		read = b.read
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), read)
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header
	}
	if b != nil {
		req.Header.Set("Content-Type", b.content)
	}
	res, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		var at *url.Error
		if errors.As(err, &at) {
			err = at.Err
		}
		return nil, &ConnectionError{c.host, err}
	}
	if res.StatusCode < 300 || res.StatusCode == http.StatusNotModified { // a container that is started already
		return res, nil
	}
	defer res.Body.Close()
	var e struct{ Message string }
	text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if json.Unmarshal(text, &e) != nil || e.Message == "" {
		e.Message = strings.TrimSpace(string(text))
	}
	if e.Message == "" {
		e.Message = "the engine answered " + res.Status
	}
	return nil, &Error{Status: res.StatusCode, Message: e.Message}
}

// call makes a request with in as JSON and reads the answer into out; both may be nil.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	var b *body
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		b = &body{"application/json", bytes.NewReader(text)}
	}
	res, err := c.send(ctx, method, path, query, b, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, res.Body)
		return err
	}
	return json.NewDecoder(res.Body).Decode(out)
}

// Version is what an engine says of itself.
type Version struct {
	Version    string
	Components []struct{ Name, Version string }
}

// Version asks the engine who it is.
func (c *Client) Version(ctx context.Context) (Version, error) {
	var v Version
	err := c.call(ctx, http.MethodGet, "/version", nil, nil, &v)
	return v, err
}
