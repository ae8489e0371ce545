package slurm_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/driver/slurm"
	"github.com/berthml/berth/internal/driver/slurm/slurmtest"
	"github.com/berthml/berth/internal/runner/alone"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "_task" {
		os.Exit(alone.Main(context.Background(), os.Args[2:]))
	}
	os.Exit(m.Run())
}

// fixture is a cluster and the server that submits to it.
type fixture struct {
	*slurmtest.Cluster
	dir string
	api *httptest.Server
	d   driver.Driver

	mu      sync.Mutex
	logs    map[string][]byte
	reports []string
}

const document = `{"properties":{"computeType":"VirtualMachine","properties":{"connection":"slurm"}}}`

func open(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{Cluster: slurmtest.Start(t, 2, 16), dir: t.TempDir(), logs: map[string][]byte{}}
	f.api = httptest.NewUnstartedServer(f)
	f.api.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	f.api.StartTLS()
	t.Cleanup(f.api.Close)
	f.reopen(t)
	return f
}

func (f *fixture) reopen(t *testing.T) driver.Driver {
	t.Helper()
	d, err := slurm.Open(driver.Config{Name: "site", Dir: f.dir, Properties: []byte(document), Host: []string{os.Args[0], "_host"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.(io.Closer).Close() })
	f.d = d
	return d
}

// ServeHTTP is the server as runners see it.
func (f *fixture) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	if id, ok := strings.CutPrefix(r.URL.Path, "/runner/v1/tasks/"); ok {
		id = strings.TrimSuffix(id, "/log")
		if r.URL.Query().Get("offset") == strconv.Itoa(len(f.logs[id])) {
			f.logs[id] = append(f.logs[id], b...)
		}
		fmt.Fprintf(w, `{"size":%d}`, len(f.logs[id]))
		return
	}
	f.reports = append(f.reports, string(b))
	fmt.Fprint(w, "{}")
}

func (f *fixture) log(l berth.Launch) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return string(f.logs[string(l.Task)])
}

func (f *fixture) launch(n int, command string) berth.Launch {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.api.Certificate().Raw})
	return berth.Launch{
		Task: berth.TaskID(fmt.Sprintf("job-%d.1", n)), Job: fmt.Sprintf("job-%d", n), Attempt: 1, Command: command,
		Home: berth.Home{URL: f.api.URL, Token: "x", CA: string(ca)}, Grace: 10 * time.Second,
	}
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Fixture {
		f, n := open(t), 0
		return drivertest.Fixture{
			Driver: f.d,
			Launch: func(command string) berth.Launch { n++; return f.launch(n, command) },
			Log:    f.log,
			Reopen: f.reopen,
		}
	})
}
