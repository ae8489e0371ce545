package keepalive_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/keepalive"
)

const path = "/echo"

// listen is a Unix socket; a socket's path is short.
func listen(t testing.TB) net.Listener {
	t.Helper()
	dir, err := os.MkdirTemp("", "ka")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); os.RemoveAll(dir) })
	return l
}

// hijacker serves the first request with net/http and hands the connection over, as the API does.
func hijacker(hijacked *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hijacked.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		keepalive.Serve(conn, buf.Reader, path, 1<<20, body, func(a *keepalive.Answer, body []byte) {
			if bytes.Equal(body, []byte(`"bad"`)) {
				http.Error(a, `"no"`, http.StatusTeapot)
				return
			}
			a.Body = append([]byte(nil), body...)
		})
	})
}

func serve(t testing.TB, h http.Handler) (socket string) {
	t.Helper()
	l := listen(t)
	srv := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Close(); <-done })
	return l.Addr().String()
}

// TestOneConnection: many requests of many sizes go over one connection; one that is dead is
// replaced.
func TestOneConnection(t *testing.T) {
	var hijacked atomic.Int64
	c := &keepalive.Client{Path: serve(t, hijacker(&hijacked))}
	defer c.Close()
	post := func(body string, status int) {
		t.Helper()
		err := c.Post(t.Context(), path, []byte(body), func(res *http.Response) error {
			b, err := io.ReadAll(res.Body)
			if err != nil {
				return err
			}
			if res.StatusCode != status || status == http.StatusOK && string(b) != body {
				t.Errorf("%d %.40q for %.40q", res.StatusCode, b, body)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	for _, n := range []int{0, 1, 100, 5000, 100_000, 3, 1 << 20} {
		post(strings.Repeat("x", n), http.StatusOK)
	}
	post(`"bad"`, http.StatusTeapot)
	post(`"good"`, http.StatusOK)
	if n := hijacked.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	post(strings.Repeat("x", 1<<20+1), http.StatusOK) // too large for this connection: the client tries it on another
	post(`"good"`, http.StatusOK)
	if n := hijacked.Load(); n != 2 {
		t.Errorf("%d connections after one was ended by the server", n)
	}
	c.Close()
	post(`"good"`, http.StatusOK)
	if n := hijacked.Load(); n != 3 {
		t.Errorf("%d connections after one was closed", n)
	}
}

// TestOtherRequests: a request that is not the Client's ends the connection without an answer.
func TestOtherRequests(t *testing.T) {
	for _, text := range []string{
		"GET /echo HTTP/1.1\r\n\r\n", "POST /other HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", "POST /echo HTTP/1.1\r\n\r\n",
		"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", "POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
		"POST /echo HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", "POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
		"POST /echo HTTP/1.1\r\nContent-Length: 9999999\r\n\r\nx", "\r\n", "POST /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\nx",
	} {
		var n atomic.Int64
		conn, err := net.Dial("unix", serve(t, hijacker(&n)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\ny"+text); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(conn)
		if err != nil || bytes.Count(b, []byte("HTTP/1.1 ")) != 1 || !bytes.HasSuffix(b, []byte("\r\n\r\ny")) {
			t.Errorf("%q: %q, %v", text, b, err)
		}
		conn.Close()
	}
}

// TestEnds: a server that is away, and a caller that gives up, are errors with a code.
func TestEnds(t *testing.T) {
	c := &keepalive.Client{Path: filepath.Join(t.TempDir(), "nobody")}
	if err := c.Post(t.Context(), path, nil, nil); berth.CodeOf(err) != berth.Unavailable {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c = &keepalive.Client{Path: serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() }))}
	defer c.Close()
	if err := c.Post(ctx, path, nil, nil); berth.CodeOf(err) != berth.Unavailable {
		t.Error(err)
	}
}

const report = `[{"task":"amiable_anchor_0123456789.1","token":"bt_0123456789abcdef0123456789abcdef","seq":3,"state":"running"}]`

// BenchmarkPost compares a small report over the kept connection with the same over net/http on
// both sides.
func BenchmarkPost(b *testing.B) {
	b.Run("keepalive", func(b *testing.B) {
		var n atomic.Int64
		c := &keepalive.Client{Path: serve(b, hijacker(&n))}
		defer c.Close()
		b.ReportAllocs()
		for b.Loop() {
			if err := c.Post(b.Context(), path, []byte(report), drain); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("nethttp", func(b *testing.B) {
		socket := serve(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err == nil {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(body)
			}
		}))
		client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}}}
		defer client.CloseIdleConnections()
		b.ReportAllocs()
		for b.Loop() {
			res, err := client.Post("http://berth"+path, "application/json", strings.NewReader(report))
			if err == nil {
				err = drain(res)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

func drain(res *http.Response) error {
	defer res.Body.Close()
	_, err := io.Copy(io.Discard, res.Body)
	return err
}
