package kubernetes

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // the protocol's own
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver/dialout"
)

// pipe is the other end of a WebSocket: the cluster's.
type pipe struct {
	net.Conn
	in   *bufio.Reader
	rest []byte
}

// accept upgrades a request as an API server does.
func accept(t *testing.T, w http.ResponseWriter, r *http.Request) *pipe {
	t.Helper()
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return nil
	}
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // as above
	io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: "+channels+
		"\r\nSec-WebSocket-Accept: "+base64.StdEncoding.EncodeToString(sum[:])+"\r\n\r\n")
	return &pipe{Conn: c, in: rw.Reader}
}

// message reads what a client sent, which has to be masked.
func (p *pipe) message() (kind byte, b []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(p.in, head[:]); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1] & 0x7f)
	if long := map[uint64]int{126: 2, 127: 8}[n]; long > 0 {
		var size [8]byte
		if _, err := io.ReadFull(p.in, size[8-long:]); err != nil {
			return 0, nil, err
		}
		n = binary.BigEndian.Uint64(size[:])
	}
	if head[1]&0x80 == 0 {
		return 0, nil, errors.New("a client's message is not masked")
	}
	all := make([]byte, 4+n)
	if _, err := io.ReadFull(p.in, all); err != nil {
		return 0, nil, err
	}
	for i := range all[4:] {
		all[4+i] ^= all[i&3]
	}
	return head[0] & 0x0f, all[4:], nil
}

// say sends a message on a stream, in two frames with a ping between.
func (p *pipe) say(stream byte, b []byte) {
	frame := func(head byte, b []byte) {
		out := binary.BigEndian.AppendUint16([]byte{head, 126}, uint16(len(b)))
		p.Conn.Write(append(out, b...))
	}
	frame(frameBinary, []byte{stream})
	frame(0x80|framePing, []byte("x"))
	frame(0x80, b)
}

// Read reads what is sent to the first stream.
func (p *pipe) Read(b []byte) (int, error) {
	for len(p.rest) == 0 {
		kind, got, err := p.message()
		if err != nil {
			return 0, err
		}
		if kind == frameClose {
			return 0, io.EOF
		}
		if kind == frameBinary && got[0] == streamIn {
			p.rest = got[1:]
		}
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Write writes as a command does.
func (p *pipe) Write(b []byte) (int, error) {
	for part := b; len(part) > 0; {
		n := min(len(part), 1000)
		p.say(streamOut, part[:n])
		part = part[n:]
	}
	return len(b), nil
}

// Close says that it is over, and reads what the client still sends: closing before would lose what
// is on its way.
func (p *pipe) Close() error {
	io.WriteString(p.Conn, "\x88\x00")
	io.Copy(io.Discard, p)
	return p.Conn.Close()
}

// TestExec: a command in a pod gets its input and says how it ended.
func TestExec(t *testing.T) {
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/ml/pods/p/exec" || r.Header.Get("Authorization") != "Bearer the-token" || r.URL.Query().Get("container") != "c" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		p := accept(t, w, r)
		defer p.Close()
		if r.URL.Query().Get("command") == "fail" {
			p.say(streamErr, []byte("no such thing"))
			p.say(streamEnd, []byte(`{"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`))
			return
		}
		b := make([]byte, 200_000)
		io.ReadFull(p, b)
		p.Write(b)
		p.say(streamEnd, []byte(`{"status":"Success"}`))
	})
	sent := bytes.Repeat([]byte("0123456789"), 20_000)
	var got bytes.Buffer
	if err := c.exec(t.Context(), "p", "c", []string{"cat"}, bytes.NewReader(sent), &got); err != nil || !bytes.Equal(got.Bytes(), sent) {
		t.Errorf("%d bytes came back, %v", got.Len(), err)
	}
	err := c.exec(t.Context(), "p", "c", []string{"fail"}, nil, io.Discard)
	if e, ok := errors.AsType[*exitError](err); !ok || e.code != 3 || e.said != "no such thing" {
		t.Errorf("a command that fails: %v", err)
	}
	if err := c.exec(t.Context(), "other", "c", []string{"true"}, nil, io.Discard); berth.CodeOf(err) != berth.Denied {
		t.Errorf("a command that is refused: %v", err)
	}
}

// TestHostileStreams: what a cluster sends that is not a stream ends the command.
func TestHostileStreams(t *testing.T) {
	for name, bytes := range map[string]string{
		"too long": "\x82\x7f\x00\x00\x00\x00\x7f\xff\xff\xff", "masked": "\x82\x81abcdx", "cut": "\x82", "nothing": "", "closed": "\x88\x00",
	} {
		c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
			p := accept(t, w, r)
			io.WriteString(p.Conn, bytes)
			p.Conn.Close()
		})
		if err := c.exec(t.Context(), "p", "c", []string{"x"}, nil, io.Discard); berth.CodeOf(err) != berth.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	if err := c.exec(t.Context(), "p", "c", []string{"x"}, nil, io.Discard); err == nil {
		t.Error("no upgrade")
	}
}

// TestRelayOverExec: connections in a pod reach the server through the command that runs there.
func TestRelayOverExec(t *testing.T) {
	home, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })} //nolint:gosec // of the test
	go server.Serve(home)
	defer server.Close()
	pod, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		p := accept(t, w, r)
		dialout.ServeRelay(ctx, pod, struct {
			io.Reader
			io.Writer
			io.Closer
		}{p, p, p.Conn}, log)
	})
	conn, err := c.attend(ctx, "p", "c", []string{"_tunnel"})
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() {
		over <- dialout.Relay(ctx, conn, func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", home.Addr().String())
		}, log)
	}()
	sent := strings.Repeat("words ", 50_000)
	for range 3 {
		res, err := http.Post("http://"+pod.Addr().String(), "text/plain", strings.NewReader(sent))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(got) != sent {
			t.Fatalf("%d bytes came back, %v", len(got), err)
		}
	}
	cancel()
	<-over
	<-ended
}

// TestForward: a port of a pod is reached through the API server, and what is wrong with it is
// said.
func TestForward(t *testing.T) {
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		p := accept(t, w, r)
		defer p.Close()
		p.say(0, []byte{0x90, 0x1f})
		p.say(1, []byte{0x90, 0x1f})
		if r.URL.Query().Get("ports") != "8080" {
			p.say(1, []byte("connection refused"))
			return
		}
		b := make([]byte, 5)
		io.ReadFull(p, b)
		p.say(0, append([]byte("heard "), b...))
	})
	conn, err := c.forward(t.Context(), "p", 8080)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "hello")
	if got, err := io.ReadAll(conn); string(got) != "heard hello" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	conn, err = c.forward(t.Context(), "p", 8081)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.ReadAll(conn); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a port where nothing listens: %v", err)
	}
}
