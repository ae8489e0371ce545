//go:build engines && linux

package runner_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
	"github.com/berthml/berth/internal/runner"
)

// hog holds a buffer of 64 MiB and uses a core until it is ended.
const hog = "dd if=/dev/zero of=/dev/null bs=64M"

// boxedHog runs hog in a container until enough says so of a report, and is all reports.
func boxedHog(t *testing.T, host string, enough func(b *bench, r berth.Report) bool) []berth.Report {
	t.Helper()
	cache, err := envs.Open(t.TempDir(), envs.Options{DockerHost: host})
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, hog)
	b.launch.Environment, b.options.Envs = berth.LaunchEnv{Name: "bb", Image: image}, cache
	report := b.options.Report
	b.options.Report = func(r berth.Report) {
		report(r)
		if enough(b, r) {
			b.control.Stop(runner.Stop{Grace: time.Millisecond})
		}
	}
	if exit := b.run(); exit.Cause != "canceled" {
		t.Errorf("exit %+v", exit)
	}
	return b.reports
}

func measured(_ *bench, r berth.Report) bool {
	return r.Usage != nil && r.Usage.MemoryBytes >= 64<<20 && r.Usage.CPUSeconds > 0.1 && r.Usage.CPUPercent > 1
}

// A container's processes are measured where this machine shows them, and by its engine where not.
func TestContainerUsage(t *testing.T) {
	for name, apart := range map[string]bool{"by its processes": false, "by its engine": true} {
		t.Run(name, func(t *testing.T) {
			all := boxedHog(t, docker(t, apart), measured)
			if last := all[len(all)-1]; !measured(nil, last) {
				t.Errorf("the peaks at the end are %+v", last.Usage)
			}
		})
	}
}

// What neither this machine nor the engine tells is not made up.
func TestContainerUsageUnknown(t *testing.T) {
	socket := strings.TrimPrefix(docker(t, true), "unix://")
	engine := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "docker"})
	engine.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	refused := make(chan struct{})
	var asked atomic.Int32
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	front := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/stats") {
			engine.ServeHTTP(w, r)
			return
		}
		http.Error(w, `{"message":"no"}`, http.StatusNotImplemented)
		if asked.Add(1) == 2 { // what was made of the first answer has been reported
			close(refused)
		}
	})}
	go func() { _ = front.Serve(l) }()
	defer front.Close()
	all := boxedHog(t, "unix://"+l.Addr().String(), func(b *bench, r berth.Report) bool {
		if r.State == berth.TaskRunning && r.Usage == nil && asked.Load() == 0 {
			go func() {
				<-refused
				b.control.Stop(runner.Stop{Grace: time.Millisecond})
			}()
		}
		return false
	})
	for _, r := range all {
		if r.Usage != nil {
			t.Errorf("a sample of what nobody measured: %+v", *r.Usage)
		}
	}
}
