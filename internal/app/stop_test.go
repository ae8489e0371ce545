package app_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// stopping begins to stop the server and returns when it takes no more connections; the channel is
// closed when it has ended.
func (s *server) stopping(home string) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.stop()
	}()
	for {
		c, err := net.Dial("unix", filepath.Join(home, "run", "api.sock"))
		if err != nil {
			return ended
		}
		c.Close()
	}
}

// TestStopFinishesRequests: a request whose body was not all there when the server began to stop is
// carried out and answered, on both listeners, while new connections are refused.
func TestStopFinishesRequests(t *testing.T) {
	home := shortHome(t)
	s := start(t, home)
	begin := func(name string, c net.Conn, err error) (finish func()) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		body := `{"properties":{"jobType":"Command","command":"true","computeId":"azureml:local"}}`
		fmt.Fprintf(c, "PUT %s/jobs/%s HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
			s.ws, name, s.app.Token, len(body))
		r := bufio.NewReader(c)
		if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") { // it is being served
			t.Fatalf("%q, %v", line, err)
		}
		return func() {
			io.WriteString(c, body)
			r.ReadString('\n')
			res, err := http.ReadResponse(r, nil)
			if err != nil || res.StatusCode != http.StatusCreated {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
		}
	}
	local, err := net.Dial("unix", filepath.Join(home, "run", "api.sock"))
	finishLocal := begin("overlocal", local, err)
	address := strings.TrimPrefix(s.app.URL, "https://")
	remote, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	finishRemote := begin("overtls", remote, err)
	ended := s.stopping(home)
	if c, err := net.Dial("tcp", address); err == nil {
		c.Close()
		t.Error("the socket is closed and the port is not")
	}
	finishLocal()
	finishRemote()
	<-ended
	s = start(t, home)
	for _, name := range []string{"overlocal", "overtls"} {
		if code, m := s.do("GET", s.ws+"/jobs/"+name, nil); code != http.StatusOK {
			t.Errorf("%s after the restart: %d %v", name, code, m)
		}
	}
}

// TestStopEndsStreams: followers of a log and of events, and a connection on which nothing was
// sent, do not hold up the end: nothing has to be cut off.
func TestStopEndsStreams(t *testing.T) {
	home := shortHome(t)
	s := start(t, home)
	gate := filepath.Join(t.TempDir(), "gate")
	s.submit("long", "echo begun; while [ ! -e "+gate+" ]; do sleep 0.02; done")
	idle, err := net.Dial("unix", filepath.Join(home, "run", "api.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	var bodies []io.ReadCloser
	for _, path := range []string{"/jobs/long/logs?follow=true", "/jobs/long/events", "/events"} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://berth"+s.ws+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "text/event-stream")
		res, err := s.http.Do(req)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v, %v", path, res, err)
		}
		defer res.Body.Close()
		bodies = append(bodies, res.Body)
	}
	begun := time.Now()
	<-s.stopping(home)
	for i, b := range bodies {
		text, err := io.ReadAll(b)
		// A log that is not whole is broken off; a stream of events says why it ends.
		good := errors.Is(err, io.ErrUnexpectedEOF)
		if i > 0 {
			good = err == nil && strings.Contains(string(text), "the server is stopping")
		}
		if !good {
			t.Errorf("stream %d ended with %v after %q", i, err, text)
		}
	}
	if log := s.log.String(); strings.Contains(log, "requests interrupted") {
		t.Errorf("after %v: %s", time.Since(begun), log)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if log, status := start(t, home).wait("long"); log != "begun\n" || status != "Completed" {
		t.Errorf("after the restart: log %q, status %v", log, status)
	}
}

// TestStopFinishesTracking: what a client was logging when the server began to stop is kept and
// answered.
func TestStopFinishesTracking(t *testing.T) {
	home := shortHome(t)
	s := start(t, home)
	tracking := "/mlflow/v2.0" + s.ws + mlflowAPI
	admin := func() *tracker {
		return trackerOf(t, map[string]string{
			"MLFLOW_TRACKING_SERVER_CERT_PATH": filepath.Join(home, "tls", "ca.pem"), "MLFLOW_TRACKING_URI": s.app.URL, "MLFLOW_TRACKING_TOKEN": s.app.Token,
		})
	}
	code, m := admin().do("POST", tracking+"runs/create", map[string]any{"experiment_id": "0", "start_time": 1})
	if code != http.StatusOK {
		t.Fatalf("%d %v", code, m)
	}
	run := at(m, "run", "info", "run_id").(string)
	c, err := tls.Dial("tcp", strings.TrimPrefix(s.app.URL, "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := fmt.Sprintf(`{"run_id":%q,"key":"loss","value":0.5,"timestamp":1,"step":3}`, run)
	fmt.Fprintf(c, "POST %sruns/log-metric HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
		tracking, s.app.Token, len(body))
	r := bufio.NewReader(c)
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") { // it is being served
		t.Fatalf("%q, %v", line, err)
	}
	ended := s.stopping(home)
	time.Sleep(300 * time.Millisecond) // for whatever would end too early to do so
	io.WriteString(c, body)
	r.ReadString('\n')
	if res, err := http.ReadResponse(r, nil); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("%+v, %v", res, err)
	}
	<-ended
	s = start(t, home)
	_, m = admin().do("GET", tracking+"runs/get?run_id="+run, nil)
	if got := at(m, "run", "data", "metrics", 0, "value"); got != 0.5 {
		t.Errorf("after the restart: %v", m)
	}
}
