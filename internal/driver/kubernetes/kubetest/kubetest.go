//go:build linux

// Package kubetest runs a Kubernetes cluster of one node for a test, which may kill parts of it: a
// control plane, a kubelet and containerd, with images that are made here.
package kubetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Gateway is the address at which pods reach this machine, and Image what they can run: busybox
// and curl.
const (
	Gateway = "10.244.7.1"
	Image   = "localhost/busybox:1"
	bridge  = "berthk8s0"
	group   = "berthk8s" // of control groups
)

// Cluster is a cluster on this machine.
type Cluster struct {
	Kubeconfig string // of an administrator
	dir        string
	bin        string // of the components
	ports      map[string]int
	procs      map[string]*process
	lock       *os.File
	forward    []byte
	names      *names
}

type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// cache is where the components are, see e2e/engines/k8s/build.sh.
func cache() string {
	if dir := os.Getenv("BERTH_ENGINE_CACHE"); dir != "" {
		return filepath.Join(dir, "k8s")
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "berth-engines", "k8s")
}

// Start starts a cluster, for one test binary at a time. Stop ends it.
func Start(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{bin: filepath.Join(cache(), "hyperkube"), ports: map[string]int{}, procs: map[string]*process{}}
	for _, name := range []string{c.bin, "containerd", "ctr", "runc", "ip", "busybox", "curl", "/usr/lib/cni/bridge"} {
		if _, err := exec.LookPath(name); err != nil {
			if strings.Contains(os.Getenv("BERTH_REQUIRE_ENGINES"), "kubernetes") {
				t.Fatal(err)
			}
			t.Skipf("Kubernetes is not here: %v", err)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("a kubelet needs root")
	}
	var err error
	if c.dir, err = os.MkdirTemp("", "bk8s"); err != nil {
		t.Fatal(err)
	}
	if err := c.alone(); err != nil {
		t.Fatal(err)
	}
	if err := c.write(); err != nil {
		c.Stop(t)
		t.Fatal(err)
	}
	c.Etcd(t)
	c.APIServer(t)
	c.controllers(t)
	if err := c.startNames(); err != nil {
		c.Stop(t)
		t.Fatal(err)
	}
	c.node(t)
	return c
}

// alone waits until no other test has a cluster: there is one name for its bridge and its groups.
func (c *Cluster) alone() error {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "berth-kubetest.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	c.lock = f
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	c.forward, err = os.ReadFile("/proc/sys/net/ipv4/ip_forward") // the network plug-in sets it
	if err != nil {
		return err
	}
	b, err := io.ReadAll(f)
	if err == nil && filepath.Dir(string(b)) == filepath.Clean(os.TempDir()) && strings.HasPrefix(filepath.Base(string(b)), "bk8s") { // of a test that was killed
		old := &Cluster{dir: string(b), procs: map[string]*process{}}
		old.clear()
		os.RemoveAll(old.dir)
	}
	if err := note(f, c.dir); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"link", "add", bridge, "type", "bridge"}, {"addr", "add", Gateway + "/24", "dev", bridge}, {"link", "set", bridge, "up"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil { //nolint:noctx // it returns at once
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
	}
	return nil
}

// note writes the directory of the cluster that runs into the file of the lock.
func note(f *os.File, dir string) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(dir), 0)
	return err
}

// write writes the configuration of all components.
func (c *Cluster) write() error {
	names := []string{"etcd", "peers", "api", "controllers", "scheduler", "kubelet", "health"}
	ports, err := freePorts(len(names))
	if err != nil {
		return err
	}
	for i, name := range names {
		c.ports[name] = ports[i]
	}
	if err := c.certificates(); err != nil {
		return err
	}
	c.Kubeconfig = c.path("admin.kubeconfig")
	if err := makeImages(c.dir); err != nil {
		return err
	}
	fill := strings.NewReplacer("@DIR@", c.dir, "@PORT@", fmt.Sprint(c.ports["kubelet"]), "@HEALTH@", fmt.Sprint(c.ports["health"]), "@GROUP@", group, "@BRIDGE@", bridge)
	for name, text := range map[string]string{"containerd.toml": containerdToml, "cni/10-bridge.conflist": bridgeConf, "kubelet.yaml": kubeletYaml, "scheduler.yaml": schedulerYaml} {
		if err := os.MkdirAll(filepath.Dir(c.path(name)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(c.path(name), []byte(fill.Replace(text)), 0o600); err != nil {
			return err
		}
	}
	return c.makeGroups()
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

// makeGroups makes the control group of the pods in all hierarchies: the kubelet wants it there.
func (c *Cluster) makeGroups() error {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return os.MkdirAll("/sys/fs/cgroup/"+group, 0o755)
	}
	for _, name := range []string{"cpu", "cpuacct", "cpuset", "memory", "pids", "systemd", "devices", "freezer", "blkio", "hugetlb"} {
		dir := "/sys/fs/cgroup/" + name
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		if err := os.MkdirAll(dir+"/"+group, 0o755); err != nil {
			return err
		}
		if name != "cpuset" {
			continue
		}
		for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
			b, err := os.ReadFile(dir + "/" + f)
			if err == nil {
				err = os.WriteFile(dir+"/"+group+"/"+f, b, 0o600)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// freePorts are ports that nobody listens at.
func freePorts(n int) (ports []int, err error) {
	for range n {
		l, lerr := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if lerr != nil {
			return nil, lerr
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// Etcd starts the database.
func (c *Cluster) Etcd(t testing.TB) {
	t.Helper()
	clients, peers := fmt.Sprintf("http://127.0.0.1:%d", c.ports["etcd"]), fmt.Sprintf("http://127.0.0.1:%d", c.ports["peers"])
	c.run(t, "etcd", c.bin, "etcd", "--data-dir", c.path("etcd"), "--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers, "--unsafe-no-fsync", "--log-level", "warn")
}

// APIServer starts the API server, as it was when it ended.
func (c *Cluster) APIServer(t testing.TB) {
	t.Helper()
	c.run(t, "kube-apiserver", c.bin, "kube-apiserver", "--etcd-servers", fmt.Sprintf("http://127.0.0.1:%d", c.ports["etcd"]), "--bind-address", "127.0.0.1",
		"--secure-port", fmt.Sprint(c.ports["api"]), "--tls-cert-file", c.path("apiserver.crt"), "--tls-private-key-file", c.path("apiserver.key"),
		"--client-ca-file", c.path("ca.crt"), "--kubelet-client-certificate", c.path("admin.crt"), "--kubelet-client-key", c.path("admin.key"),
		"--kubelet-certificate-authority", c.path("ca.crt"), "--kubelet-preferred-address-types", "Hostname",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", c.path("sa.key"), "--service-account-signing-key-file", c.path("sa.key"),
		"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction", "--service-cluster-ip-range", "10.96.0.0/16",
		"--endpoint-reconciler-type", "none", "--profiling=false", "--max-requests-inflight", "2000", "--max-mutating-requests-inflight", "1000")
	c.until(t, "the API server", func() bool {
		out, err := c.Kubectl("get", "--raw", "/readyz")
		return err == nil && out == "ok"
	})
}

func (c *Cluster) controllers(t testing.TB) {
	t.Helper()
	k := c.path("kcm.kubeconfig")
	c.run(t, "kube-controller-manager", c.bin, "kube-controller-manager", "--kubeconfig", k, "--authentication-kubeconfig", k, "--authorization-kubeconfig", k,
		"--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(c.ports["controllers"]), "--leader-elect=false", "--use-service-account-credentials",
		"--service-account-private-key-file", c.path("sa.key"), "--root-ca-file", c.path("ca.crt"), "--kube-api-qps", "500", "--kube-api-burst", "1000", "--concurrent-job-syncs", "20")
	s := c.path("sched.kubeconfig")
	c.run(t, "kube-scheduler", c.bin, "kube-scheduler", "--config", c.path("scheduler.yaml"), "--authentication-kubeconfig", s, "--authorization-kubeconfig", s,
		"--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(c.ports["scheduler"]))
	c.until(t, "the service account of pods", func() bool {
		_, err := c.Kubectl("get", "serviceaccount", "default")
		return err == nil
	})
}

// node starts containerd, which gets the images, and the kubelet.
func (c *Cluster) node(t testing.TB) {
	t.Helper()
	c.run(t, "containerd", "containerd", "--config", c.path("containerd.toml"))
	c.until(t, "containerd", func() bool { return c.ok("ctr", "-a", c.path("c.sock"), "version") })
	for _, name := range []string{"pause.tar", "busybox.tar"} {
		if out, err := c.limited("ctr", "-a", c.path("c.sock"), "-n", "k8s.io", "images", "import", c.path(name)); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	c.Kubelet(t)
	c.until(t, "the node", func() bool {
		out, err := c.Kubectl("get", "node", "localhost", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		return err == nil && out == "True"
	})
}

// Kubelet starts the kubelet.
func (c *Cluster) Kubelet(t testing.TB) {
	t.Helper()
	c.run(t, "kubelet", c.bin, "kubelet", "--config", c.path("kubelet.yaml"), "--kubeconfig", c.path("kubelet.kubeconfig"), "--root-dir", c.path("kubelet"),
		"--cert-dir", c.path("kubelet/pki"), "--hostname-override", "localhost", "--v", "1")
}

// Kill kills a component: kube-apiserver, kube-controller-manager, kube-scheduler or kubelet.
func (c *Cluster) Kill(name string) {
	p := c.procs[name]
	_ = p.cmd.Process.Kill()
	<-p.ended
	delete(c.procs, name)
}

// Kubectl runs kubectl as an administrator and returns what it said.
func (c *Cluster) Kubectl(args ...string) (string, error) {
	b, err := c.limited(c.bin, append([]string{"kubectl", "--kubeconfig", c.Kubeconfig, "--request-timeout=20s"}, args...)...)
	return strings.TrimSpace(string(b)), err
}

// API is the host and the port of the API server.
func (c *Cluster) API() (host, port string) { return "127.0.0.1", fmt.Sprint(c.ports["api"]) }

// Apply makes the objects of a manifest.
func (c *Cluster) Apply(t testing.TB, manifest string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := c.Kubectl("apply", "-f", path); err != nil {
		t.Fatalf("kubectl apply: %v\n%s", err, out)
	}
}

func (c *Cluster) run(t testing.TB, as, name string, args ...string) {
	t.Helper()
	log, err := os.OpenFile(c.path(as+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p := &process{cmd: exec.Command(name, args...), ended: make(chan struct{})} //nolint:noctx // it is stopped at the end of the test
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// An interrupt of the test is not theirs, but a test that is killed takes them with it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // whose end would be taken for that of the test
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // its log says why
		}
		close(p.ended)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	c.procs[as] = p
}

// limited is a command that ends after a while.
func (c *Cluster) limited(name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.Bytes(), err
}

func (c *Cluster) ok(name string, args ...string) bool {
	_, err := c.limited(name, args...)
	return err == nil
}

func (c *Cluster) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		dead := ""
		for name, p := range c.procs {
			select {
			case <-p.ended:
				dead = name
			default:
			}
		}
		if dead == "" && time.Now().Before(deadline) {
			continue
		}
		for name := range c.procs {
			b, _ := os.ReadFile(c.path(name + ".log"))
			t.Logf("%s:\n%s", name, b[max(0, len(b)-2000):])
		}
		c.Stop(t)
		t.Fatalf("%s: not ready (ended: %q)", what, dead)
	}
}
