package api_test

import (
	"bufio"
	"context"
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

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/api"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

// TestLine has a runner of this machine report again and again over one connection.
func TestLine(t *testing.T) {
	x := open(t)
	dir, err := os.MkdirTemp("", "bl") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := auth.With(context.Background(), auth.Principal{User: "root", Role: auth.Admin})
	srv := &http.Server{Handler: x.h, BaseContext: func(net.Listener) context.Context { return ctx }}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()

	id := berth.TaskID("j.1")
	if err := x.db.Update(t.Context(), func(tx *store.Tx) error {
		return tx.InsertTask(&berth.Task{ID: id, Workspace: workspace.Key(), Job: "j", State: berth.TaskPlaced})
	}); err != nil {
		t.Fatal(err)
	}
	token := x.auth.Keys.TaskToken(id, time.Now().Add(time.Hour))
	report := func(state berth.TaskState, seq int) string {
		return fmt.Sprintf(`[{"task":%q,"token":%q,"seq":%d,"state":%q}]`, id, token, seq, state)
	}
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	post := func(path, body string) (int, string) {
		t.Helper()
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: berth\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(b)
	}
	const reports = "/runner/v1/reports"
	for i, tt := range []struct {
		body   string
		status int
		want   string
	}{
		{report(berth.TaskStarting, 1) + strings.Repeat(" \n", 5000), 200, `{"stop":null,"unknown":null}`},
		{report(berth.TaskRunning, 2), 200, `{"stop":null,"unknown":null}`},
		{`{"no":"list"`, 400, "not a list of reports"},
		{strings.Replace(report(berth.TaskRunning, 3), token, "bt_x", 1), 200, `"unknown":["j.1"]`},
		{report(berth.TaskEnding, 4) + "\n", 200, `{"stop":null,"unknown":null}`},
	} {
		if status, body := post(reports, tt.body); status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%d: %d %s, want %d and %s", i, status, body, tt.status, tt.want)
		}
	}
	if got := (&tracked{house: x}).task(id); got.State != berth.TaskEnding || got.Seq != 4 {
		t.Errorf("%+v", got)
	}

	// Both ways to report say the same of a body that cannot be read.
	long := strings.Repeat(" ", 16<<20+1)
	fresh := func() {
		t.Helper()
		c.Close()
		if c, err = net.Dial("unix", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		r.Reset(c)
	}
	fresh()
	status, body := post(reports, long)
	if w := x.as(token, "POST", reports, long); w.status != status || status != 400 || !strings.Contains(body, "the body is larger than 16 MiB") || !strings.Contains(string(w.raw), "the body is larger than 16 MiB") {
		t.Errorf("%d %s and %d %s", status, body, w.status, w.raw)
	}
	fresh()
	if status, body := post(reports, report(berth.TaskEnding, 4)); status != 200 {
		t.Fatal(status, body)
	}

	// Another call on such a connection is for another connection.
	fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: berth\r\n\r\n")
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
	// One that waits for the next report ends with the server.
	if c, err = net.Dial("unix", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r.Reset(c)
	if status, _ := post(reports, report(berth.TaskEnding, 5)); status != 200 {
		t.Errorf("%d", status)
	}
	if err := x.h.(*api.Server).Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
}
