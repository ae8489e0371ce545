package peer

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	_ "embed"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/berthml/berth/bench/measure"
)

// kwokYAML is what KWOK does with a node.
//
//go:embed source/kwok.yaml
var kwokYAML []byte

// Kube is a control plane on loopback with simulated nodes: etcd on disk, kube-apiserver, KWOK, and
// kube-scheduler while it is measured.
//
// Everything that would slow the scheduler down and is not its own work is left out: no
// controllers, no heartbeats, no limit on its requests, no admission that needs a controller.
type Kube struct {
	Version string // of Kubernetes and of KWOK
	Nodes   int
	bin     string
	dir     string
	stages  []byte // what KWOK does
	daemons daemons
	api     *kubeAPI
	round   int
}

// kubePrograms are what a kit has.
var kubePrograms = []string{"etcd", "kube-apiserver", "kube-scheduler", "kwok"}

// KubeKit is the folder of the programs: BENCH_K8S, or what is in the user's cache. An error says
// what is missing.
func KubeKit() (string, error) {
	bin := os.Getenv("BENCH_K8S")
	if bin == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		bin = filepath.Join(cache, "berth-engines", "k8s")
	}
	for _, p := range kubePrograms {
		if _, err := exec.LookPath(filepath.Join(bin, p)); err != nil {
			return "", fmt.Errorf("no %s: BENCH_K8S names a folder with %s", p, strings.Join(kubePrograms, ", "))
		}
	}
	return bin, nil
}

// StartKube starts a control plane of the kit's programs in dir, with simulated nodes of ten CPUs
// each.
func StartKube(ctx context.Context, group *measure.Group, dir string, nodes int) (*Kube, error) {
	bin, err := KubeKit()
	if err != nil {
		return nil, err
	}
	k := newKube(bin, group, dir, nodes)
	if err := k.begin(ctx); err != nil {
		return nil, err
	}
	return k, nil
}

func newKube(bin string, group *measure.Group, dir string, nodes int) *Kube {
	return &Kube{Nodes: nodes, bin: bin, dir: dir, stages: kwokYAML, daemons: daemons{logs: filepath.Join(dir, "log"), group: group.Sub("kube")}}
}

// begin starts the control plane. On an error nothing of it runs.
func (k *Kube) begin(ctx context.Context) error {
	base, err := freePorts(4)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(k.dir, "log"), 0o755); err != nil {
		return err
	}
	if err := k.start(ctx, base); err != nil {
		k.Stop()
		return err
	}
	k.Version = version(ctx, k.program("kube-scheduler")) + ", " + version(ctx, k.program("kwok"))
	return nil
}

// version is the first word like v1.2.3 that a program says of its version.
func version(ctx context.Context, program string) string {
	out, _ := exec.CommandContext(ctx, program, "--version").Output()
	for w := range strings.FieldsSeq(string(out)) {
		if n, ok := strings.CutPrefix(w, "v"); ok && strings.Contains(n, ".") {
			return n
		}
	}
	return "unknown"
}

func (k *Kube) program(name string) string { return filepath.Join(k.bin, name) }
func (k *Kube) file(name string) string    { return filepath.Join(k.dir, name) }

func (k *Kube) start(ctx context.Context, base int) error {
	client, peers := fmt.Sprintf("http://127.0.0.1:%d", base), fmt.Sprintf("http://127.0.0.1:%d", base+1)
	if _, err := k.daemons.start(ctx, k.program("etcd"), "--data-dir", k.file("etcd"), "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers, "--log-level", "warn"); err != nil {
		return err
	}
	token, err := k.secrets()
	if err != nil {
		return err
	}
	port := fmt.Sprint(base + 2)
	if _, err := k.daemons.start(ctx, k.program("kube-apiserver"), "--etcd-servers", client, "--bind-address", "127.0.0.1", "--secure-port", port,
		"--cert-dir", k.file("tls"), "--token-auth-file", k.file("tokens"), "--authorization-mode", "AlwaysAllow", "--anonymous-auth=false",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", k.file("sa.key"), "--service-account-signing-key-file", k.file("sa.key"),
		"--service-cluster-ip-range", "10.96.0.0/16", "--endpoint-reconciler-type", "none", "--profiling=false", "--delete-collection-workers", "16",
		// Both wait for a controller: one to make an account, one to take a new node's taint away.
		"--disable-admission-plugins", "ServiceAccount,TaintNodesByCondition",
		"--max-requests-inflight", "2000", "--max-mutating-requests-inflight", "1000"); err != nil {
		return err
	}
	cert := filepath.Join(k.dir, "tls", "apiserver.crt")
	if err := k.daemons.wait(ctx, "kube-apiserver", func(ctx context.Context) bool {
		if k.api == nil {
			k.api, _ = newKubeAPI("https://127.0.0.1:"+port, cert, token)
		}
		return k.api != nil && k.api.get(ctx, "/readyz", nil) == nil
	}); err != nil {
		return err
	}
	if err := k.configs("https://127.0.0.1:"+port, cert, token); err != nil {
		return err
	}
	if _, err := k.daemons.start(ctx, k.program("kwok"), "--kubeconfig", k.file("kubeconfig"), "--config", k.file("kwok.yaml"),
		"--manage-all-nodes=true", "--node-lease-duration-seconds", "0", "--server-address", fmt.Sprintf("127.0.0.1:%d", base+3)); err != nil {
		return err
	}
	return k.makeNodes(ctx)
}

// secrets writes the keys of this one cluster and returns the token that opens it.
func (k *Kube) secrets() (string, error) {
	token := rand.Text()
	if err := os.WriteFile(k.file("tokens"), []byte(token+`,bench,bench,"system:masters"`+"\n"), 0o600); err != nil {
		return "", err
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", err
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return token, os.WriteFile(k.file("sa.key"), pem.EncodeToMemory(block), 0o600)
}

// configs writes the files KWOK and the scheduler read.
func (k *Kube) configs(url, cert, token string) error {
	for name, text := range map[string]string{
		"kwok.yaml": string(k.stages),
		"kubeconfig": fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: bench, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: bench, user: {token: %q}}]
contexts: [{name: bench, context: {cluster: bench, user: bench}}]
current-context: bench
`, url, cert, token),
		"scheduler.yaml": fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q, qps: 10000, burst: 10000}
leaderElection: {leaderElect: false}
`, k.file("kubeconfig")),
	} {
		if err := os.WriteFile(k.file(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// makeNodes makes the nodes, and waits until KWOK has made all of them ready.
func (k *Kube) makeNodes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	w, err := k.api.watch(ctx, "/api/v1/nodes", "", false)
	if err != nil {
		return err
	}
	defer w.close()
	if err := k.api.create(ctx, "/api/v1/nodes", k.Nodes, func(i int) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n%05d","labels":{"kubernetes.io/hostname":"n%05d","kubernetes.io/os":"linux","kubernetes.io/arch":"`+runtime.GOARCH+`"}},`+
			`"status":{"capacity":{"cpu":"10","memory":"40Gi","pods":"110"},"allocatable":{"cpu":"10","memory":"40Gi","pods":"110"}}}`, i, i)
	}); err != nil {
		return err
	}
	ready := map[string]bool{}
	for len(ready) < k.Nodes {
		e, err := w.next(ctx)
		if err != nil {
			return fmt.Errorf("%d of %d nodes are ready: %w", len(ready), k.Nodes, err)
		}
		if e.ready() {
			ready[e.Object.Metadata.Name] = true
		}
	}
	return nil
}

// Schedule has pods wait before the scheduler starts, and times it from the first one it binds to
// the last, as a watcher sees them. own is the scheduler's part of the CPU per pod, in
// milliseconds.
func (k *Kube) Schedule(ctx context.Context, pods int) (r Result, own float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	const path = "/api/v1/namespaces/default/pods"
	k.round++
	if err := k.api.create(ctx, path, pods, func(i int) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"r%d-p%06d"},"spec":{"containers":[{"name":"c","image":"none",`+
			`"resources":{"requests":{"cpu":"1","memory":"1Gi"}}}]}}`, k.round, i)
	}); err != nil {
		return r, 0, err
	}
	w, err := k.api.watch(ctx, path, "spec.nodeName!=", true)
	if err != nil {
		return r, 0, err
	}
	defer w.close()
	scheduler, err := k.daemons.start(ctx, k.program("kube-scheduler"), "--config", k.file("scheduler.yaml"), "--secure-port", "0")
	if err != nil {
		return r, 0, err
	}
	defer k.daemons.stop(scheduler)
	go func() { // the watch would wait for ever
		select {
		case <-scheduler.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	var first, last meter
	bound := map[string]bool{}
	for len(bound) < pods {
		e, err := w.next(ctx)
		if err != nil {
			if ended := k.daemons.check(); ended != nil {
				err = ended
			}
			return r, 0, fmt.Errorf("%d of %d pods are bound: %w", len(bound), pods, err)
		}
		bound[e.Object.Metadata.Name] = true
		if len(bound) == 1 {
			first = k.meter(scheduler)
		}
	}
	last = k.meter(scheduler)
	n := float64(pods - 1)
	r = Result{PerSecond: n / last.at.Sub(first.at).Seconds(), CPU: Ms(last.all-first.all) / n}
	return r, Ms(last.own-first.own) / n, nil
}

// Clear takes the pods of a round away.
func (k *Kube) Clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	return k.api.deleteAll(ctx, "/api/v1/namespaces/default/pods")
}

// meter is a moment, and the CPU used until then.
type meter struct {
	at       time.Time
	all, own time.Duration
}

func (k *Kube) meter(scheduler *daemon) meter {
	m := meter{at: time.Now()}
	m.all, _ = k.daemons.group.Usage()
	m.own, _ = measure.CPU(scheduler.cmd.Process.Pid)
	return m
}

// Stop ends the control plane. Its directory is the caller's.
func (k *Kube) Stop() {
	if k.api != nil {
		k.api.close()
	}
	k.daemons.stopAll()
}
