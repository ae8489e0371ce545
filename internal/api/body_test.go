package api_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth/internal/api"
	"github.com/berthml/berth/internal/blob/front"
	"github.com/berthml/berth/internal/pace"
)

// TestBodiesThatStopComing: a client that sends the first byte of a body and nothing more is given
// up, wherever it sends it.
func TestBodiesThatStopComing(t *testing.T) {
	x := open(t)
	x.h.(*api.Server).Pace = pace.Pace{Pause: 50 * time.Millisecond, Grace: time.Second, Rate: 1000}
	srv := httptest.NewUnstartedServer(x.h)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	sig := front.NewSigner(x.auth.Keys.SAS).Sign(front.Grant{Container: "c", Perm: "rw", Expiry: time.Now().Add(time.Hour)})
	for _, tt := range []struct{ method, path, token string }{
		{"POST", "/runner/v1/reports", ""},
		{"POST", "/runner/v1/reports", x.auth.Keys.TaskToken("j.1", time.Now().Add(time.Hour))},
		{"PUT", x.ws + "/jobs/j", ""},
		{"PUT", x.ws + "/jobs/j", x.admin},
		{"PUT", "/st.blob.berth/c/b", ""},
		{"PUT", "/st.blob.berth/c/b?" + sig, ""},
		{"POST", "/t/oauth2/token", ""},
		{"GET", "/healthz", ""},
		{"GET", "/none", ""},
	} {
		t.Run("http1 "+tt.method+" "+tt.path[:min(20, len(tt.path))], func(t *testing.T) {
			c, err := tls.Dial("tcp", srv.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 100000\r\n\r\n{", tt.method, tt.path, tt.token)
			untilClosed(t, c)
		})
		t.Run("http2 "+tt.method+" "+tt.path[:min(20, len(tt.path))], func(t *testing.T) {
			r, w := io.Pipe()
			defer w.Close()
			go func() { _, _ = io.WriteString(w, "{") }()
			req, err := http.NewRequestWithContext(t.Context(), tt.method, srv.URL+tt.path, r)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+tt.token)
			res, err := srv.Client().Do(req)
			if err != nil {
				return // given up
			}
			defer res.Body.Close()
			if _, err := io.Copy(io.Discard, res.Body); err == nil && res.ProtoMajor != 2 {
				t.Error(res.Proto)
			}
		})
	}
}

// untilClosed reads until the server has hung up.
func untilClosed(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("the connection is still open: %v", err)
	}
}

// TestRefusedBeforeTheBody: a client that asks before it sends its body is refused at once.
func TestRefusedBeforeTheBody(t *testing.T) {
	x := open(t)
	srv := httptest.NewServer(x.h)
	defer srv.Close()
	for _, path := range []string{"/st.blob.berth/c/b", x.ws + "/jobs/j"} {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil { // less than the usual pace
			t.Fatal(err)
		}
		fmt.Fprintf(c, "PUT %s HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 100000\r\n\r\n", path)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
}

// TestAnswersGoOnAfterABody: the deadline of a body is not that of the answer to it, nor that of
// the next request.
func TestAnswersGoOnAfterABody(t *testing.T) {
	x := open(t)
	slow := pace.Pace{Pause: 30 * time.Millisecond, Grace: 30 * time.Millisecond, Rate: 1}
	x.h.(*api.Server).Pace = slow
	x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "true")).want(201)
	srv := httptest.NewServer(x.h)
	defer srv.Close()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// A stream of events that was asked for with a body, as some clients do.
	fmt.Fprintf(c, "GET %s/jobs/j/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nAuthorization: Bearer %s\r\nContent-Length: 2\r\n\r\n{}", x.ws, x.admin)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("%v %+v", err, res)
	}
	lines := bufio.NewReader(res.Body)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	<-time.After(5 * slow.Pause) // the body's deadline, had it stayed, is over
	x.do("POST", x.ws+"/jobs/j/cancel", nil)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal("the stream ended", err)
		}
		if strings.Contains(line, "cancel") {
			return
		}
	}
}

// TestDocumentsAreBounded: in bytes, and in values, which take more memory than their text.
func TestDocumentsAreBounded(t *testing.T) {
	x := open(t)
	x.do("PUT", x.ws+"/jobs/j", `{"properties":{"x":"`+strings.Repeat("x", 4<<20)+`"}}`).want(400).says("larger than 4 MiB")
	x.do("PUT", x.ws+"/jobs/j", `{"properties":{"x":[`+strings.Repeat("{},", 200_000)+`{}]}}`).want(400).says("more than 200000 values")
	x.do("PUT", x.ws+"/jobs/j", `{"properties":{"jobType":"`+strings.Repeat("x", 1<<20)+`"}}`).want(400).short()
	x.do("POST", "/history/v1.0"+x.ws+"/rundata", `{"runId":`+strings.Repeat("9", 1<<20)+`}`).want(400).short()
}

// short says that an answer does not send back what it was sent.
func (a answer) short() {
	a.t.Helper()
	if len(a.raw) > 8<<10 {
		a.t.Errorf("an answer of %d bytes: %.300s", len(a.raw), a.raw)
	}
}

// TestReportsAreBounded: also from somebody who has a task's token.
func TestReportsAreBounded(t *testing.T) {
	x := open(t)
	task := x.auth.Keys.TaskToken("j.1", time.Now().Add(time.Hour))
	const path = "/runner/v1/reports"
	x.as("", "POST", path, "[]").want(401)
	x.as("bt_x", "POST", path, "[]").want(401)
	x.as(task, "POST", path, "[]").want(200)
	x.as(task, "POST", path, "[{}"+strings.Repeat(",{}", 10_000)+"]").want(400).says("more than 10000 reports")
	x.as(task, "POST", path, `[{"task":"`+strings.Repeat("x", 1<<20)+`"}]`).want(400).short()
	x.as(task, "POST", path, `[{"seq":`+strings.Repeat("9", 1<<20)+`}]`).want(400).short()
	x.as(task, "POST", path, `[{"seq":1}] [`).want(400)
	x.as(task, "POST", path, `[{"seq":1}`).want(400)
	x.as(task, "POST", path, `null`).want(400)
}
