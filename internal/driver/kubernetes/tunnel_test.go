//go:build linux && engines

package kubernetes_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/kubernetes"
)

// nowhere is an address that pods cannot reach: nobody on their network has it.
const nowhere = "https://10.244.7.250:9"

// tunnel: pods that cannot reach the server reach it through the API server of the cluster, also
// after the server was started again; that is said, and later pods do not try for themselves.
func tunnel(t *testing.T) {
	ctx := timed(t)
	f := open(t)
	cluster.Apply(t, kubernetes.RBAC(f.space)) // with these rights and no more
	f.kubeconfig = f.tokenOf(t, "berth-token")
	f.reopen(t)
	l := f.launch(1, "echo begin; while [ ! -e /tmp/gate ]; do sleep 0.2; done; echo end")
	l.Home.URL = nowhere
	f.start(ctx, t, l)
	f.says(ctx, t, "through the API server of the cluster")
	f.until(ctx, t, running)
	f.logs1(ctx, t, l, "begin\n")
	info, err := f.d.Probe(ctx)
	if err != nil || !strings.Contains(strings.Join(info.Warnings, ""), "cannot reach the server at its address") {
		t.Errorf("probe: %+v, %v", info.Warnings, err)
	}
	f.d.(io.Closer).Close() // as the server does when it ends
	f.reopen(t)
	before := f.tunneled.Load()
	if _, err := f.d.Observe(ctx); err != nil {
		t.Fatal(err)
	}
	name, err := cluster.Kubectl("get", "pods", "-n", f.space, "-o", "name")
	if err != nil {
		t.Fatal(name)
	}
	if out, err := cluster.Kubectl("exec", "-n", f.space, name, "-c", "task", "--", "touch", "/tmp/gate"); err != nil {
		t.Fatal(out)
	}
	if e := f.until(ctx, t, func(o driver.Observed) bool { return o.State == berth.TaskDone }).Exit; !e.OK() {
		t.Errorf("exit %+v", e)
	}
	f.logs1(ctx, t, l, "begin\nend\n")
	if f.tunneled.Load() == before {
		t.Error("nothing went through the second tunnel")
	}
}

// logs1 waits for the log of a task.
func (f *fixture) logs1(ctx context.Context, t *testing.T, l berth.Launch, want string) {
	t.Helper()
	for f.log(l) != want {
		select {
		case <-ctx.Done():
			t.Fatalf("the log is %q, want %q", f.log(l), want)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// noTunnel: an account that may not run commands in pods cannot help them, and that is the reason.
func noTunnel(t *testing.T) {
	ctx := timed(t)
	f := open(t)
	var rights []string
	for line := range strings.Lines(kubernetes.RBAC(f.space)) {
		if !strings.Contains(line, "pods/") {
			rights = append(rights, line)
		}
	}
	cluster.Apply(t, strings.Join(rights, ""))
	f.kubeconfig = f.tokenOf(t, "berth-token")
	f.reopen(t)
	l := f.launch(1, "true")
	l.Home.URL = nowhere
	f.start(ctx, t, l)
	f.ends(ctx, t, "staging", "--print-rbac")
}

// dialPod: ports of a task are reached, at the address of its pod and, where it listens on its own
// machine only, through the API server.
func dialPod(t *testing.T) {
	ctx := timed(t)
	f := open(t)
	cluster.Apply(t, kubernetes.RBAC(f.space))
	f.kubeconfig = f.tokenOf(t, "berth-token")
	f.reopen(t)
	l := f.launch(1, "mkdir -p w && echo hello >w/index.html && busybox httpd -p 0.0.0.0:8080 -h w && echo up && exec busybox httpd -f -p 127.0.0.1:8081 -h w")
	h := f.start(ctx, t, l)
	f.until(ctx, t, running)
	f.logs1(ctx, t, l, "up\n")
	for _, port := range []int{8080, 8081} {
		var got string
		for got == "" && ctx.Err() == nil { // it is about to listen
			conn, err := f.d.(driver.Dialer).Dial(ctx, h, port)
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
			b, _ := io.ReadAll(conn)
			conn.Close()
			got = string(b)
		}
		if !strings.HasSuffix(got, "hello\n") || !strings.Contains(got, http.StatusText(http.StatusOK)) {
			t.Errorf("port %d: %q", port, got)
		}
	}
	if err := f.d.Stop(ctx, h, driver.Stop{Grace: time.Second}); err != nil {
		t.Fatal(err)
	}
}
