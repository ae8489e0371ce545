package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/api"
	"github.com/berthml/berth/internal/store"
)

// TestFollowerThatNeverReadsIsCutOff: a client that asks for a stream and takes nothing of it holds
// no place among the followers for ever.
func TestFollowerThatNeverReadsIsCutOff(t *testing.T) {
	x := open(t)
	x.h.(*api.Server).Patience = time.Second
	srv := httptest.NewServer(x.h)
	defer srv.Close()
	run := x.runWithPoints()
	x.neverRead(srv, "berth/metrics/stream?run_id="+run)
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		page := x.do("GET", "/metrics", nil).want(http.StatusOK)
		if strings.Contains(string(page.raw), "\nberth_followers 0\n") {
			return
		}
		if time.Since(begin) > time.Minute {
			t.Fatal("a client that does not read is still a follower")
		}
	}
}

// pointKey is the metric of runWithPoints.
var pointKey = strings.Repeat("k", 200)

// runWithPoints makes a run with more points than the buffers of a connection hold.
func (x *house) runWithPoints() string {
	x.t.Helper()
	mlflow := "/mlflow/v1.0" + x.ws + "/api/2.0/mlflow/"
	run := x.do("POST", mlflow+"runs/create", `{"experiment_id": "0"}`, "Content-Type", "application/json").want(200).at("run.info.run_id").(string)
	for batch := range 100 {
		var b strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&b, `,{"key": "%s", "value": 1, "timestamp": %d}`, pointKey, batch*1000+i)
		}
		x.do("POST", mlflow+"runs/log-batch", `{"run_id": "`+run+`", "metrics": [`+b.String()[1:]+`]}`, "Content-Type", "application/json").want(200)
	}
	return run
}

// neverRead asks the tracking API for something and reads the first line of the answer only.
func (x *house) neverRead(srv *httptest.Server, call string) {
	x.t.Helper()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		x.t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /mlflow/v1.0%s/api/2.0/%s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\n\r\n", x.ws, call, x.admin)
	head := bufio.NewReaderSize(conn, 16)
	if line, err := head.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		x.t.Fatalf("%q %v", line, err)
	}
}

// TestAnswerThatNobodyReadsIsCutOff: a client of the tracking API that does not read an answer
// holds its connection and the goroutine that writes for a while only, whatever the answer is.
func TestAnswerThatNobodyReadsIsCutOff(t *testing.T) {
	x := open(t)
	x.h.(*api.Server).Patience = time.Second
	srv := httptest.NewUnstartedServer(x.h)
	cut := make(chan struct{}, 8)
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			cut <- struct{}{}
		}
	}
	srv.Start()
	t.Cleanup(srv.Close) // after the connections below
	run := x.runWithPoints()
	artifact := "mlflow-artifacts/artifacts/0/" + run + "/artifacts/large"
	x.do("PUT", "/mlflow/v1.0"+x.ws+"/api/2.0/"+artifact, strings.Repeat("x", 32<<20)).want(200)
	for _, call := range []string{
		"mlflow/metrics/get-history?run_id=" + run + "&metric_key=" + pointKey,      // in pieces
		"mlflow/metrics/get-history-bulk?run_id=" + run + "&metric_key=" + pointKey, // in one
		artifact, // a file
	} {
		x.neverRead(srv, call)
		select {
		case <-cut:
		case <-time.After(time.Minute):
			t.Fatalf("%.60s: a client that does not read is still served", call)
		}
	}
}

// TestQuietLogEndsCleanly: a log that is quiet for longer than a follower may take nothing comes to
// its end: nobody kept the server waiting.
func TestQuietLogEndsCleanly(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("http2=", http2), func(t *testing.T) {
			x := open(t)
			x.h.(*api.Server).Patience = 100 * time.Millisecond
			srv := httptest.NewUnstartedServer(x.h)
			srv.EnableHTTP2 = http2
			srv.StartTLS()
			defer srv.Close()
			x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "true")).want(201)
			req, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL+x.ws+"/jobs/j/logs?follow=true", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+x.admin)
			res, err := srv.Client().Do(req)
			if err != nil || res.StatusCode != http.StatusOK || (res.ProtoMajor == 2) != http2 {
				t.Fatal(res, err)
			}
			defer res.Body.Close()
			time.Sleep(300 * time.Millisecond) // the quiet that this is about
			err = x.db.Update(t.Context(), func(tx *store.Tx) error {
				d, err := tx.Get(workspace.Key(), "jobs", "j", "")
				if err != nil {
					return err
				}
				d.Status = string(berth.Completed)
				tx.Emit(berth.Event{Workspace: workspace.Key(), Subject: "jobs/j", Type: berth.EventJobStatus})
				return tx.Save(d)
			})
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(res.Body); err != nil {
				t.Fatalf("the log ends with %v after %q", err, b)
			}
		})
	}
}
