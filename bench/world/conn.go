package world

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// Conn is one kept connection to the API, one request at a time. It is leaner than net/http's
// client, so that the client weighs little on the machine that is measured.
type Conn struct {
	conn    net.Conn
	r       *bufio.Reader
	headers string
	out     []byte
}

// Dial connects over the home's socket, or by HTTPS with the administrator's token.
func (s *Server) Dial(ctx context.Context, https bool) (*Conn, error) {
	if !https {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", s.socket)
		if err != nil {
			return nil, err
		}
		return &Conn{conn: conn, r: bufio.NewReader(conn), headers: "Host: berth\r\n"}, nil
	}
	pem, err := os.ReadFile(s.ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	d := tls.Dialer{Config: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	conn, err := d.DialContext(ctx, "tcp", s.address)
	if err != nil {
		return nil, err
	}
	return &Conn{conn: conn, r: bufio.NewReader(conn), headers: "Host: " + s.address + "\r\nAuthorization: Bearer " + s.token + "\r\n"}, nil
}

// Close ends the connection.
func (c *Conn) Close() { c.conn.Close() }

// request sends a request and reads the head of the answer.
func (c *Conn) request(method, path, headers string, body []byte) (*http.Response, error) {
	c.out = append(c.out[:0], method+" "+path+" HTTP/1.1\r\n"+c.headers+headers...)
	if body != nil {
		c.out = append(c.out, "Content-Type: application/json\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n"...)
	}
	c.out = append(append(c.out, "\r\n"...), body...)
	if _, err := c.conn.Write(c.out); err != nil {
		return nil, err
	}
	return http.ReadResponse(c.r, nil)
}

// do sends a request and reads the whole answer.
func (c *Conn) do(method, path string, body []byte) ([]byte, error) {
	resp, err := c.request(method, path, "", body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, b)
	}
	return b, err
}

// Do makes any call and returns the answer.
func (c *Conn) Do(method, path string, body []byte) ([]byte, error) { return c.do(method, path, body) }

// Get reads a resource.
func (c *Conn) Get(path string) ([]byte, error) { return c.do(http.MethodGet, path, nil) }

// Post makes a call.
func (c *Conn) Post(path string, body []byte) error {
	_, err := c.do(http.MethodPost, path, body)
	return err
}

// Delete removes a resource.
func (c *Conn) Delete(path string) error {
	_, err := c.do(http.MethodDelete, path, nil)
	return err
}

// Copy reads an answer of any length into w.
func (c *Conn) Copy(w io.Writer, path string) (int64, error) {
	resp, err := c.request(http.MethodGet, path, "", nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	return io.Copy(w, resp.Body)
}

// Job is the document of a command job.
func Job(command string) []byte {
	return JobOn("local", command)
}

// Submit creates a job; when it returns, the job is on disk.
func (c *Conn) Submit(ws, name string, job []byte) error {
	_, err := c.do(http.MethodPut, ws+"/jobs/"+name, job)
	return err
}

// Event is what the benchmarks need of an event.
type Event struct {
	Type, Job, Status string
	Reason            string
	Compute, State    string // of a node: where it is, and what became of it
	Time              string
}

// Done reports whether the job of the event has ended.
func (e Event) Done() bool {
	return e.Type == "job.status" && (e.Status == "Completed" || e.Status == "Failed" || e.Status == "Canceled")
}

// Watch is a subscription to the events of a workspace.
type Watch struct {
	c    *Conn
	body io.ReadCloser
	r    *bufio.Reader
	kind string
}

// Watch subscribes to all events from now on; it is in force when it returns.
func (s *Server) Watch(ctx context.Context) (*Watch, error) {
	c, err := s.Dial(ctx, false)
	if err != nil {
		return nil, err
	}
	resp, err := c.request(http.MethodGet, s.WS+"/events?from=now", "Accept: text/event-stream\r\n", nil)
	if err != nil {
		c.Close()
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		c.Close()
		return nil, fmt.Errorf("events: %s", resp.Status)
	}
	return &Watch{c: c, body: resp.Body, r: bufio.NewReader(resp.Body)}, nil
}

// Close ends the subscription, and a Next that waits.
func (w *Watch) Close() { w.c.Close() }

// Next waits for an event.
func (w *Watch) Next() (Event, error) {
	for {
		line, err := w.r.ReadSlice('\n')
		if err != nil {
			return Event{}, err
		}
		if kind, ok := bytes.CutPrefix(line, []byte("event: ")); ok {
			w.kind = strings.TrimSpace(string(kind))
			if w.kind == "end" {
				return Event{}, fmt.Errorf("the event stream ended")
			}
		}
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			return Event{
				Type: w.kind, Job: field(data, `"subject":"jobs/`), Status: field(data, `"status":"`), Reason: field(data, `"reason":"`),
				Compute: field(data, `"subject":"computes/`), State: field(data, `"state":"`), Time: field(data, `"time":"`),
			}, nil
		}
	}
}

// field is the text between start and the next quote.
func field(data []byte, start string) string {
	_, rest, ok := bytes.Cut(data, []byte(start))
	if !ok {
		return ""
	}
	value, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(value)
}
