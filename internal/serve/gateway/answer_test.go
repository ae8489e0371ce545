package gateway

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/serve"
)

// raw is a worker that answers each request with the same bytes. It returns its address and the
// heads of the requests that it got.
func raw(t *testing.T, answers ...string) (string, <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	heads := make(chan string, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for i := 0; ; {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					if r.Header.Get(serve.NonceHeader) != "" {
						w := httptest.NewRecorder()
						prover("right", nil)(w, r)
						io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"+serve.ProofHeader+": "+w.Header().Get(serve.ProofHeader)+"\r\n\r\n")
						continue
					}
					var b strings.Builder
					r.Write(&b)
					heads <- b.String()
					io.WriteString(c, answers[i%len(answers)])
					if i++; strings.Contains(answers[(i-1)%len(answers)], "\r\nX-Then: close\r\n") {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String(), heads
}

// TestAnswerFraming: how long an answer is, is said in one way; who says it in two ways, or sends
// what is not HTTP, is not believed, since the next answer on the connection would be another's.
func TestAnswerFraming(t *testing.T) {
	for text, want := range map[string]string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi":                                      "200 hi",
		"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nhi":                                         "200 hi",
		"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi":                                            "200 hi",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi":         "200 hi",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi":                 "200 hi",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n":  "200 hi",
		"HTTP/1.1 204 No Content\r\n\r\n":                                                     "204 ",
		"HTTP/1.0 200 OK\r\nX-Then: close\r\n\r\nhi":                                          "200 hi",
		"HTTP/1.1 200 OK\r\nX-Then: close\r\n\r\nhi":                                          "200 hi",
		"HTTP/1.1 599 Odd\r\nContent-Length: 2\r\n\r\nhi":                                     "424 hi",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi":                 "502",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": "502",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n":                "502",
		"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nhi":                                     "502",
		"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nhi":                                     "502",
		"HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\nhi":                                    "502",
		"HTTP/1.1 999 OK\r\nContent-Length: 2\r\n\r\nhi":                                      "502",
		"HTTP/1.1 099 OK\r\nContent-Length: 2\r\n\r\nhi":                                      "502",
		"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nhi":                                      "502",
		"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nhi":                                     "502",
		"HTTP/1.1 200 OK\r\n folded: 2\r\n\r\nhi":                                             "502",
		"HTTP/1.1 200 OK\r\nA: \x00\r\nContent-Length: 2\r\n\r\nhi":                           "502",
		"nonsense\r\n\r\n": "502",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n":                   "502",
		"HTTP/1.1 200 OK\r\nX-Then: close\r\nContent-Length: 9\r\n\r\nhi":          "502",
		"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 70<<10) + "\r\n\r\n":        "502",
		"HTTP/1.1 200 OK\r\n" + strings.Repeat("A: x\r\n", 20_000) + "\r\n":        "502",
		"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhi":        "502",
		"HTTP/1.1 200 OK\r\nX-Then: close\r\nTransfer-Encoding: chunked\r\n\r\nzz": "broken",
	} {
		address, _ := raw(t, text)
		srv := httptest.NewServer(through(t, address, nil))
		resp, err := http.Post(srv.URL+"/score", "application/json", strings.NewReader("{}"))
		got := "broken"
		if err == nil {
			b, rerr := io.ReadAll(resp.Body)
			resp.Body.Close()
			if rerr == nil {
				got = strings.Fields(resp.Status)[0] + " " + string(b)
			}
		}
		if want == "502" {
			got = got[:min(len(got), 3)]
		}
		if got != want {
			t.Errorf("%.200q: %q, want %q", text, got, want)
		}
		srv.Close()
	}
}

// TestAnswerNext: after an answer with more bytes than it said, the connection is not used again.
func TestAnswerNext(t *testing.T) {
	address, _ := raw(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
	srv := httptest.NewServer(through(t, address, nil))
	defer srv.Close()
	for range 5 {
		resp, err := http.Post(srv.URL+"/score", "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(b) != "hi" {
			t.Errorf("%q %v", b, err)
		}
	}
}

// TestRequestPassed: a worker gets the request with what is for it, and nothing else.
func TestRequestPassed(t *testing.T) {
	address, heads := raw(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nSet-Cookie: a=b\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-Kept: 1\r\nX-Kept: 2\r\n\r\n")
	srv := httptest.NewServer(through(t, address, nil))
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/a%2Fb/c?x=1&y=%20", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]string{
		"Authorization": "Bearer key", "Cookie": "a=b", berth.DeploymentHeader: "blue", secretHeader: "guess", serve.NonceHeader + "x": "kept", tunnelHeader: "h2c",
		"Connection": "X-Mine, close", "X-Mine": "hop", "X-Other": "kept", "X-Forwarded-For": "forged", "Te": "trailers", "Upgrade": "no",
	} {
		req.Header.Set(name, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	got := strings.ToLower(<-heads)
	for _, want := range []string{"post /a%2fb/c?x=1&y=%20 http/1.1", "\r\nx-other: kept\r\n", "\r\nx-berth-replica: right\r\n", "\r\nx-forwarded-for: 127.0.0.1\r\n", "\r\n\r\nbody", "\r\ncontent-length: 4\r\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
	for _, not := range []string{"authorization", "cookie", "azureml", "guess", "x-mine", "forged", "upgrade", "tunnel", "\r\nte:"} {
		if strings.Contains(got, not) {
			t.Errorf("%q is in %q", not, got)
		}
	}
	if h := resp.Header; h.Get("Set-Cookie")+h.Get("X-Hop") != "" || strings.Join(h.Values("X-Kept"), ",") != "1,2" || h.Get(berth.DeploymentHeader) != "blue" {
		t.Errorf("%v", h)
	}
}

// TestRequestQuery: bytes that HTTP/2 lets through in a query do not end the line of a request.
func TestRequestQuery(t *testing.T) {
	if got := escaped("a=b HTTP/1.1\r\nX: y"); got != "a=b%20HTTP/1.1%0D%0AX:%20y" {
		t.Error(got)
	}
	if got := escaped("a=%20b"); got != "a=%20b" {
		t.Error(got)
	}
}

// TestAnswerTrailers: trailers pass.
func TestAnswerTrailers(t *testing.T) {
	address, _ := raw(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 7\r\n\r\n")
	srv := httptest.NewServer(through(t, address, nil))
	defer srv.Close()
	for range 2 {
		resp, err := http.Get(srv.URL + "/")
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(b) != "hi" || resp.Trailer.Get("X-Sum") != "7" {
			t.Errorf("%q %v %v", b, resp.Trailer, err)
		}
	}
}

// FuzzReadAnswer: whatever a worker sends, reading it ends, and a body is as long as it was said.
func FuzzReadAnswer(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
	f.Add("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nA: b\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := readAnswer(bufio.NewReader(strings.NewReader(text)), http.MethodPost)
		if err != nil || a.body == nil {
			return
		}
		n, err := io.Copy(io.Discard, a.body)
		if err == nil && a.length >= 0 && n != a.length {
			t.Errorf("%d bytes of %d", n, a.length)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return
		}
		for _, x := range a.fields {
			if !isToken(x.name) || !isText(x.value) || hopByHop(x.name, nil) {
				t.Errorf("header %q: %q", x.name, x.value)
			}
		}
	})
}
