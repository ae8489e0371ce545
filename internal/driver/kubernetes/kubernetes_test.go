//go:build linux && engines

package kubernetes_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/driver/kubernetes"
	"github.com/berthml/berth/internal/driver/kubernetes/kubetest"
	"github.com/berthml/berth/internal/kubeconfig"
	"github.com/berthml/berth/internal/runner/alone"
	"github.com/berthml/berth/internal/runner/data/blobtest"
	"github.com/berthml/berth/internal/runner/group"
)

// cluster is one for all tests; each has a namespace of its own.
var (
	cluster *kubetest.Cluster
	spaces  atomic.Int64
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "_task" {
		os.Exit(alone.Main(context.Background(), os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == "_group" {
		os.Exit(group.Main(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == "_tunnel" {
		os.Exit(kubernetes.TunnelMain(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// TestOnCluster starts a cluster and runs all tests that need one.
func TestOnCluster(t *testing.T) {
	cluster = kubetest.Start(t)
	defer cluster.Stop(t)
	t.Run("Conformance", conformance)
	tests := []struct {
		name  string
		run   func(*testing.T)
		alone bool // it kills parts of the cluster, or takes all of it
	}{
		{name: "PastTerm", run: pastTerm},
		{name: "LeastRights", run: leastRights},
		{name: "Rights", run: rights},
		{name: "Image", run: image},
		{name: "Unschedulable", run: unschedulable},
		{name: "Quota", run: quota},
		{name: "OutOfMemory", run: outOfMemory},
		{name: "PodDeleted", run: podDeleted},
		{name: "JobDeleted", run: jobDeleted},
		{name: "Evicted", run: evicted},
		{name: "Pod", run: podItself},
		{name: "OwnBringing", run: ownBringing},
		{name: "Queue", run: queue},
		{name: "ServerNotReached", run: serverNotReached},
		{name: "Tunnel", run: tunnel},
		{name: "NoTunnel", run: noTunnel},
		{name: "Dial", run: dialPod},
		{name: "NodeLost", run: nodeLost, alone: true},
		{name: "APIServerAway", run: apiServerAway, alone: true},
		{name: "Scale", run: scale, alone: true},
		{name: "Kueue", run: realKueue, alone: true},
	}
	t.Run("Together", func(t *testing.T) { // a pod takes seconds, but little work
		for _, x := range tests {
			if !x.alone {
				t.Run(x.name, func(t *testing.T) {
					t.Parallel()
					x.run(t)
				})
			}
		}
	})
	for _, x := range tests {
		if x.alone {
			t.Run(x.name, x.run)
		}
	}
}

// fixture is a namespace and the server that runs tasks in it.
type fixture struct {
	dir, space, kubeconfig, document string
	api                              *httptest.Server
	ca                               []byte
	d                                driver.Driver

	tunneled atomic.Int64 // connections of tunnels

	mu    sync.Mutex
	logs  map[string][]byte
	blobs *blobtest.Server
}

func open(t testing.TB, properties ...string) *fixture {
	t.Helper()
	f := &fixture{dir: t.TempDir(), space: fmt.Sprintf("test-%d", spaces.Add(1)), logs: map[string][]byte{}, blobs: blobtest.New(t)}
	if out, err := cluster.Kubectl("create", "namespace", f.space); err != nil {
		t.Fatal(out)
	}
	t.Cleanup(func() {
		_, _ = cluster.Kubectl("delete", "jobs", "-n", f.space, "--all", "--wait=false")
		_, _ = cluster.Kubectl("delete", "pods", "-n", f.space, "--all", "--grace-period=1", "--wait=false")
	})
	f.serve(t)
	f.kubeconfig = flat(t, cluster.Kubeconfig)
	own := append([]string{`"namespace":"` + f.space + `"`, `"image":"` + kubetest.Image + `"`, `"imagePullPolicy":"Never"`}, properties...)
	f.document = `{"properties":{"computeType":"Kubernetes","properties":{` + strings.Join(own, ",") + `}}}`
	f.reopen(t)
	return f
}

// flat is a kubeconfig without files.
func flat(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		b, err = kubeconfig.Single(b, "", filepath.Dir(path))
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (f *fixture) reopen(t testing.TB) driver.Driver {
	t.Helper()
	d, err := kubernetes.Open(driver.Config{Name: "k8s", Dir: f.dir, Properties: []byte(f.document), Program: programHash, Dial: f.dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.(io.Closer).Close() })
	if _, err := f.connect(t, d); err != nil {
		t.Fatal(err)
	}
	f.d = d
	return d
}

// dial connects to the server, as tunnels do.
func (f *fixture) dial(ctx context.Context) (net.Conn, error) {
	f.tunneled.Add(1)
	return new(net.Dialer).DialContext(ctx, "tcp", f.api.Listener.Addr().String())
}

func (f *fixture) connect(t testing.TB, d driver.Driver) (*driver.Connection, error) {
	t.Helper()
	return d.(driver.Connector).Connect(t.Context(), driver.Access{Properties: []byte(f.document), Secrets: map[string]string{"properties.kubeconfig": f.kubeconfig}})
}

// programHash is the hash of this program.
var programHash = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile(os.Args[0])
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), err
})

// serve starts the server as runners see it, where pods reach it.
func (f *fixture) serve(t testing.TB) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "server"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP(kubetest.Gateway), net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", kubetest.Gateway+":0")
	if err != nil {
		t.Fatal(err)
	}
	f.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	f.api = httptest.NewUnstartedServer(f)
	f.api.Listener.Close()
	f.api.Listener, f.api.TLS = l, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	f.api.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	f.api.StartTLS()
	t.Cleanup(f.api.Close)
}

// ServeHTTP is the server as runners see it.
func (f *fixture) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/st.blob.berth/") {
		f.blobs.ServeHTTP(w, r)
		return
	}
	b, _ := io.ReadAll(r.Body)
	if strings.HasPrefix(r.URL.Path, kubernetes.ProgramPath) {
		http.ServeFile(w, r, os.Args[0])
		return
	}
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
	fmt.Fprint(w, "{}")
}

func (f *fixture) log(l berth.Launch) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return string(f.logs[string(l.Task)])
}

func (f *fixture) launch(n int, command string) berth.Launch {
	return berth.Launch{
		Task: berth.TaskID(fmt.Sprintf("job-%d.1", n)), Job: fmt.Sprintf("job-%d", n), Attempt: 1, Command: command,
		Home: berth.Home{URL: f.api.URL, Token: "x", CA: string(f.ca)}, Grace: 10 * time.Second,
	}
}

func conformance(t *testing.T) {
	drivertest.RunTogether(t, func(t *testing.T) drivertest.Fixture {
		f, n := open(t), 0
		return drivertest.Fixture{
			Driver: f.d,
			Launch: func(command string) berth.Launch { n++; return f.launch(n, command) },
			Log:    f.log,
			Reopen: func(t *testing.T) driver.Driver { return f.reopen(t) },
			Tasks:  20, // of pods that really run; Scale has a thousand
			Outputs: func(l *berth.Launch) func() map[string]string {
				url := strings.Replace(f.blobs.At("model"), f.blobs.URL, f.api.URL, 1)
				l.Outputs = map[string]berth.LaunchOutput{"model": {Type: "uri_folder", URL: url}}
				return func() map[string]string { return f.blobs.All("model/") }
			},
			Away: func(t *testing.T) func() {
				cluster.Kill("kube-apiserver")
				return func() { cluster.APIServer(t) }
			},
			Left: func(t *testing.T) []string {
				out, err := cluster.Kubectl("get", "jobs,pods,secrets", "-n", f.space, "-o", "name")
				if err != nil {
					t.Fatal(out)
				}
				return strings.Fields(out)
			},
		}
	})
}

func timed(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// start starts a task and returns how Observe finds it.
func (f *fixture) start(ctx context.Context, t *testing.T, l berth.Launch) driver.Handle {
	t.Helper()
	h, err := f.d.Start(ctx, l)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// until looks at the only task until it is as it should be.
func (f *fixture) until(ctx context.Context, t *testing.T, ok func(driver.Observed) bool) driver.Observed {
	t.Helper()
	for {
		all, err := f.d.Observe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 1 && ok(all[0]) {
			return all[0]
		}
		select {
		case <-ctx.Done():
			t.Fatalf("last seen: %+v", all)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// says waits until the task waits for a reason with these words.
func (f *fixture) says(ctx context.Context, t *testing.T, words string) {
	t.Helper()
	f.until(ctx, t, func(o driver.Observed) bool { return o.State == berth.TaskPlaced && strings.Contains(o.Why, words) })
}

// ends waits for the end of the task and compares how it ended.
func (f *fixture) ends(ctx context.Context, t *testing.T, cause, words string) *berth.Exit {
	t.Helper()
	e := f.until(ctx, t, func(o driver.Observed) bool { return o.State == berth.TaskDone }).Exit
	if e.OK() || e.Cause != cause || !strings.Contains(e.Reason, words) {
		t.Errorf("exit %+v, want cause %q and %q", e, cause, words)
	}
	return e
}

func running(o driver.Observed) bool { return o.State == berth.TaskRunning }

// pastTerm: nothing is started for a server that leads no more.
func pastTerm(t *testing.T) {
	f := open(t)
	drivertest.PastTerm(timed(t), t, f.d, f.launch(1, "true"), func() {})
}

// leastRights: an account with the printed rights can do everything, and the probe says what is not
// known without the optional ones.
func leastRights(t *testing.T) {
	ctx := timed(t)
	f := open(t)
	cluster.Apply(t, kubernetes.RBAC(f.space))
	f.kubeconfig = f.tokenOf(t, "berth-token")
	f.reopen(t)
	info, err := f.d.Probe(ctx)
	if err != nil || len(info.Warnings) > 0 || info.Nodes[0].Memory == 0 {
		t.Errorf("probe: %+v, %v", info, err)
	}
	h := f.start(ctx, t, f.launch(1, "sleep 600"))
	f.until(ctx, t, running)
	if err := f.d.Stop(ctx, h, driver.Stop{Grace: time.Second}); err != nil {
		t.Fatal(err)
	}
	f.ends(ctx, t, "canceled", "")
	if err := f.d.Remove(ctx, h); err != nil {
		t.Fatal(err)
	}
	if out, err := cluster.Kubectl("delete", "clusterrolebinding", "berth-"+f.space); err != nil {
		t.Fatal(out)
	}
	for ctx.Err() == nil {
		if info, err = f.d.Probe(ctx); err != nil || len(info.Warnings) > 0 {
			break
		}
	}
	if err != nil || len(info.Warnings) != 1 || !strings.Contains(info.Warnings[0], "may not list nodes") {
		t.Errorf("probe without rights on nodes: %+v, %v", info.Warnings, err)
	}
}

// tokenOf is a kubeconfig with the token in a Secret.
func (f *fixture) tokenOf(t *testing.T, secret string) string {
	t.Helper()
	var token string
	for ctx := timed(t); token == ""; {
		out, err := cluster.Kubectl("get", "secret", secret, "-n", f.space, "-o", "go-template={{if .data.token}}{{.data.token | base64decode}}{{end}}")
		if err != nil || ctx.Err() != nil {
			t.Fatalf("no token: %v, %s", err, out)
		}
		token = out
	}
	c, err := kubeconfig.Parse([]byte(f.kubeconfig), "")
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]any{
		"contexts": []any{map[string]any{"name": "x", "context": map[string]any{"cluster": "c", "user": "u"}}},
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": c.Server, "certificate-authority-data": c.CA}}},
		"users":    []any{map[string]any{"name": "u", "user": map[string]any{"token": token}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// rights: an account without them is refused when it is connected, with what is missing.
func rights(t *testing.T) {
	f := open(t)
	cluster.Apply(t, `{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: plain, namespace: `+f.space+`, annotations: {kubernetes.io/service-account.name: default}}}`)
	whole := f.kubeconfig
	f.kubeconfig = f.tokenOf(t, "plain")
	if _, err := f.connect(t, f.d); berth.CodeOf(err) != berth.Denied || !strings.Contains(err.Error(), "create jobs") || !strings.Contains(err.Error(), "--print-rbac") {
		t.Errorf("an account without rights: %v", err)
	}
	f.kubeconfig = strings.ReplaceAll(f.kubeconfig, `"token":"`, `"token":"x`)
	if _, err := f.connect(t, f.d); berth.CodeOf(err) != berth.Denied || !strings.Contains(err.Error(), "expired") {
		t.Errorf("an account that is not known: %v", err)
	}
	f.kubeconfig = strings.Replace(whole, "https://127.0.0.1:", "https://127.0.0.1:1", 1)
	if _, err := f.connect(t, f.d); err == nil {
		t.Error("an address where nothing is")
	}
	f.kubeconfig = ""
	if _, err := f.connect(t, f.d); berth.CodeOf(err) != berth.Denied || !strings.Contains(err.Error(), "kubernetes: in-cluster/NAMESPACE") {
		t.Errorf("no kubeconfig: %v", err)
	}
}

// image: a task whose image is not to be had says so, and fails when it never will be.
func image(t *testing.T) {
	ctx := timed(t)
	f := open(t)
	l := f.launch(1, "true")
	l.Environment.Image = "localhost/none:1"
	f.start(ctx, t, l)
	f.ends(ctx, t, "environment", "localhost/none:1 cannot be used")

	f = open(t, `"imagePullPolicy":"Always"`)
	h := f.start(ctx, t, l)
	f.says(ctx, t, "localhost/none:1 cannot be pulled")
	if err := f.d.Stop(ctx, h, driver.Stop{}); err != nil {
		t.Fatal(err)
	}
	f.ends(ctx, t, "canceled", "")
	for want, change := range map[string]func(*berth.Launch){
		"names no image":    func(*berth.Launch) {},
		"push the image":    func(l *berth.Launch) { l.Environment.Build = "https://x" },
		"has no instance":   func(l *berth.Launch) { l.Environment.Image, l.InstanceType = "x", "gpu" },
		"docker_args":       func(l *berth.Launch) { l.Environment.Image, l.DockerArgs = "x", []string{"--x"} },
		"such as 2g":        func(l *berth.Launch) { l.Environment.Image, l.ShmSize = "x", "much" },
		"bytes of settings": func(l *berth.Launch) { l.Environment.Image, l.Command = "x", strings.Repeat("x", 2<<20) },
	} {
		f.document = strings.Replace(f.document, `"image":"`+kubetest.Image+`",`, "", 1)
		f.reopen(t)
		l := f.launch(2, "true")
		change(&l)
		if _, err := f.d.Start(ctx, l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
