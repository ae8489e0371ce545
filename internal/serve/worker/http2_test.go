package worker_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
)

// TestHTTP2Server is the server of the user's own of TestCommandHTTP2, in another process.
func TestHTTP2Server(t *testing.T) {
	port := os.Getenv("PORT")
	if os.Getenv("HTTP2_SERVER") == "" || port == "" {
		t.Skip("a part of TestCommandHTTP2")
	}
	p := &http.Protocols{}
	p.SetUnencryptedHTTP2(true)
	p.SetHTTP1(os.Getenv("HTTP2_SERVER") == "too")
	s := &http.Server{Addr: "127.0.0.1:" + port, Protocols: p, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		w.WriteHeader(http.StatusOK)
		io.WriteString(w, r.Proto+" ")
		io.Copy(w, r.Body)
		w.Header().Set("Grpc-Status", "7")
	})}
	t.Fatal(s.ListenAndServe())
}

// TestCommandHTTP2: HTTP/2 without TLS passes to a server of the user's own, with trailers, once
// the secret was shown. Servers of gRPC speak nothing else.
func TestCommandHTTP2(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, speaks := range []string{"too", "only"} {
		t.Run(speaks, func(t *testing.T) {
			address, _ := begin(t, "BERTH_COMMAND=HTTP2_SERVER="+speaks+" exec "+self+" -test.run '^TestHTTP2Server$'")
			readyAt(t, address)
			callHTTP2(t, address)
		})
	}
}

// callHTTP2 calls the server of TestCommandHTTP2.
func callHTTP2(t *testing.T, address string) {
	t.Helper()
	for secret, want := range map[string]string{"wrong": " 403 ", "s3cret": " 101 "} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nX-Berth-Replica: "+secret+"\r\nX-Berth-Tunnel: h2c\r\n\r\n")
		in := bufio.NewReader(c)
		line, err := in.ReadString('\n')
		if err != nil || !strings.Contains(line, want) {
			t.Fatalf("with %q: %q %v", secret, line, err)
		}
		if secret == "wrong" {
			continue
		}
		for line != "\r\n" {
			if line, err = in.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		p := &http.Protocols{}
		p.SetUnencryptedHTTP2(true)
		client := &http.Client{Transport: &http.Transport{Protocols: p, DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }}}
		resp, err := client.Post("http://worker/a.B/C", "application/grpc", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(b) != "HTTP/2.0 hello" || resp.Trailer.Get("Grpc-Status") != "7" {
			t.Errorf("%q %v %v", b, resp.Trailer, err)
		}
	}
}
