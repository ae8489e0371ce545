package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/serve"
)

// one is a listener that accepts connections given to it.
type one chan net.Conn

func (o one) Accept() (net.Conn, error) {
	c, ok := <-o
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (o one) Close() error   { return nil }
func (o one) Addr() net.Addr { return &net.TCPAddr{} }

// front stands before a server that speaks HTTP/2 without TLS, as the worker does.
func front(t *testing.T, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &http.Protocols{}
	p.SetUnencryptedHTTP2(true)
	behind, inner := &http.Server{Protocols: p, Handler: h}, make(one)
	go behind.Serve(inner)
	t.Cleanup(func() { l.Close(); close(inner); behind.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				in := bufio.NewReader(c)
				for {
					r, err := http.ReadRequest(in)
					if err != nil {
						c.Close()
						return
					}
					if r.Header.Get(tunnelHeader) != "" && r.Header.Get(secretHeader) == "right" {
						io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
						inner <- &tunneled{c, in}
						return
					}
					w := httptest.NewRecorder()
					prover("right", nil)(w, r)
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"+serve.ProofHeader+": "+w.Header().Get(serve.ProofHeader)+"\r\n\r\n")
				}
			}()
		}
	}()
	return l.Addr().String()
}

// secure is a server with HTTP/2 and TLS, as clients of gRPC expect.
func secure(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

// TestGRPC: a call passes by HTTP/2 from end to end: both directions at the same time, and the
// trailers that tell how it ended.
func TestGRPC(t *testing.T) {
	address := front(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
		w.WriteHeader(http.StatusOK)
		buf := make([]byte, 10)
		for {
			n, err := r.Body.Read(buf)
			w.Write(buf[:n])
			http.NewResponseController(w).Flush()
			if err != nil {
				break
			}
		}
		w.Header().Set("Grpc-Status", "0")
		w.Header().Set("Grpc-Message", r.Method+" "+r.URL.Path+" "+r.Proto+" "+r.Header.Get("Te")+r.Header.Get("Authorization"))
	}))
	srv := secure(t, through(t, address, nil))
	for range 3 { // over the same connection
		body, send := io.Pipe()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/pkg.Service/Method", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc+proto")
		req.Header.Set("Authorization", "Bearer key")
		req.Header.Set("Te", "trailers")
		go io.WriteString(send, "one")
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"one", "two", "six"} {
			got := make([]byte, 3)
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != word {
				t.Fatalf("%q %v", got, err)
			}
			if word != "six" {
				go io.WriteString(send, map[string]string{"one": "two", "two": "six"}[word])
			}
		}
		send.Close()
		if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
			t.Errorf("%q %v", rest, err)
		}
		resp.Body.Close()
		if resp.Trailer.Get("Grpc-Status") != "0" || resp.Trailer.Get("Grpc-Message") != "POST /pkg.Service/Method HTTP/2.0 trailers" {
			t.Errorf("%v", resp.Trailer)
		}
	}
}

// TestGRPCWithoutServer: a deployment that cannot answer gRPC says so, in gRPC's own codes.
func TestGRPCWithoutServer(t *testing.T) {
	worker := httptest.NewServer(prover("right", func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) }))
	defer worker.Close()
	srv := secure(t, through(t, worker.URL, nil))
	resp, err := srv.Client().Post(srv.URL+"/a.B/C", "application/grpc", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if h := resp.Header; resp.StatusCode != http.StatusOK || h.Get("Grpc-Status") != "12" || !strings.Contains(h.Get("Grpc-Message"), "does not speak gRPC") || resp.ContentLength != 0 {
		t.Errorf("%d %v", resp.StatusCode, h)
	}
}

// zeros is a body of so many bytes.
type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.left)
	z.left -= n
	return int(n), nil
}

// TestLargeBodies: bodies in both directions pass in constant memory, with a length and without.
// BERTH_LARGE=1 has them be as large as they may be, 1 GiB.
func TestLargeBodies(t *testing.T) {
	size := int64(96 << 20)
	if os.Getenv("BERTH_LARGE") != "" {
		size = 1 << 30
	}
	var most uint64
	worker := httptest.NewServer(prover("right", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil || n != size {
			t.Errorf("%d bytes came: %v", n, err)
		}
		if r.ContentLength > 0 {
			w.Header().Set("Content-Length", r.Header.Get("X-Size"))
		}
		io.Copy(w, &zeros{left: size})
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapInuse)
	}))
	defer worker.Close()
	srv := httptest.NewServer(through(t, worker.URL, nil))
	defer srv.Close()
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, length := range []int64{size, -1} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/score", &zeros{left: size})
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = length
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil || n != size {
			t.Errorf("%d bytes came back: %v", n, err)
		}
	}
	if grown := int64(most) - int64(before.HeapInuse); grown > 24<<20 {
		t.Errorf("%d MiB more were in use", grown>>20)
	}
}

// TestNextAfterLarge: the answer to a body that was passed on as it came may be there before what
// sent it is done, and the client's connection is as good as before.
func TestNextAfterLarge(t *testing.T) {
	worker := httptest.NewServer(prover("right", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			t.Error(err)
		}
		fmt.Fprint(w, n)
	}))
	defer worker.Close()
	srv := httptest.NewServer(through(t, worker.URL, nil))
	defer srv.Close()
	const size = maxBuffered + 1
	for i := range 300 {
		for _, n := range []int64{size, 0} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/score", &zeros{left: n})
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = n
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(i, n, err)
			}
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(b) != strconv.FormatInt(n, 10) {
				t.Fatalf("request %d of %d bytes: %d %q %v", i, n, resp.StatusCode, b, err)
			}
		}
	}
}

// TestEarlyAnswer: a worker that answers before it has the whole body is heard, and the rest of the
// body goes nowhere.
func TestEarlyAnswer(t *testing.T) {
	address := rawEarly(t)
	srv := httptest.NewServer(through(t, address, nil))
	defer srv.Close()
	body, send := io.Pipe()
	defer send.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/score", body)
	if err != nil {
		t.Fatal(err)
	}
	go io.WriteString(send, "a part of it")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "no" || resp.StatusCode != http.StatusFailedDependency {
		t.Errorf("%d %q %v", resp.StatusCode, b, err)
	}
}

// rawEarly is a worker that refuses what has a body before it has read it.
func rawEarly(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				in := bufio.NewReader(c)
				for {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					if r.Header.Get(serve.NonceHeader) == "" {
						io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
						return // with the connection open
					}
					w := httptest.NewRecorder()
					prover("right", nil)(w, r)
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"+serve.ProofHeader+": "+w.Header().Get(serve.ProofHeader)+"\r\n\r\n")
				}
			}()
		}
	}()
	return l.Addr().String()
}
