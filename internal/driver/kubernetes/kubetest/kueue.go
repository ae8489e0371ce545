//go:build linux

package kubetest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// kueueConfig is Kueue's for Jobs alone; words between @ are filled in.
const kueueConfig = `apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {healthProbeBindAddress: "127.0.0.1:@HEALTH@"}
metrics: {bindAddress: "0"}
webhook: {host: 127.0.0.1, port: @PORT@, certDir: @DIR@/kueue.etc/kueue/metrics/certs}
leaderElection: {leaderElect: false}
internalCertManagement: {enable: false}
featureGates: {VisibilityOnDemand: false}
integrations: {frameworks: [batch/job]}
`

// webhookService is how the manifests of Kueue name what serves its webhooks.
var webhookService = regexp.MustCompile(`service:\s+name: webhook-service\s+namespace: system\s+path: (\S+)`)

// Kueue installs Kueue and runs its manager, with the webhooks of its own objects and of Jobs. They
// are called at an address of this machine, because the cluster has no Services. StopKueue ends it.
func (c *Cluster) Kueue(t testing.TB) {
	t.Helper()
	program, objects := filepath.Join(cache(), "kueue"), filepath.Join(cache(), "kueue.d")
	if _, err := exec.LookPath(program); err != nil {
		t.Fatal(err)
	}
	ports, err := freePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	certs := c.path("kueue.etc/kueue/metrics/certs") // where Kueue reads those of its metrics, below /etc
	authority, err := os.ReadFile(c.path("ca.crt"))
	if err == nil {
		err = os.MkdirAll(certs, 0o700)
	}
	for from, to := range map[string]string{"apiserver.crt": "tls.crt", "apiserver.key": "tls.key"} { // for 127.0.0.1
		var b []byte
		if err == nil {
			b, err = os.ReadFile(c.path(from))
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(certs, to), b, 0o600)
		}
	}
	fill := strings.NewReplacer("@DIR@", c.dir, "@PORT@", fmt.Sprint(ports[0]), "@HEALTH@", fmt.Sprint(ports[1]))
	if err == nil {
		err = os.WriteFile(c.path("kueue.yaml"), []byte(fill.Replace(kueueConfig)), 0o600)
	}
	hooks, rerr := os.ReadFile(filepath.Join(objects, "webhooks.yaml"))
	if err != nil || rerr != nil {
		t.Fatal(err, rerr)
	}
	if out, err := c.Kubectl("apply", "--server-side", "-f", filepath.Join(objects, "crds.yaml")); err != nil {
		t.Fatal(out)
	}
	address, bundle := fmt.Sprintf("https://127.0.0.1:%d", ports[0]), base64.StdEncoding.EncodeToString(authority)
	for _, name := range []string{"localqueues", "clusterqueues", "cohorts", "workloads"} {
		convert := fmt.Sprintf(`{"spec":{"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"%s/convert","caBundle":"%s"}}}}}`, address, bundle)
		if out, err := c.Kubectl("patch", "crd", name+".kueue.x-k8s.io", "--type", "merge", "-p", convert); err != nil {
			t.Fatal(out)
		}
	}
	// Its mount namespace is its own, because it reads certificates in /etc.
	c.run(t, "kueue", "unshare", "--mount", "sh", "-c", `mount --bind "$1" /etc && exec "$2" --config "$3" --kubeconfig "$4"`, "sh",
		c.path("kueue.etc"), program, c.path("kueue.yaml"), c.Kubeconfig)
	c.until(t, "Kueue", func() bool {
		res, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", ports[1])) //nolint:noctx // it answers at once
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	c.Apply(t, ownHooks(string(hooks), address, bundle))
}

// ownHooks are the webhooks that are called for Jobs and Kueue's own objects.
func ownHooks(manifests, address, bundle string) string {
	const item = "\n- admissionReviewVersions:"
	var out strings.Builder
	for _, part := range strings.SplitAfter(manifests, "\n---\n") {
		all := strings.Split(strings.TrimSuffix(part, "---\n"), item)
		out.WriteString(all[0])
		for _, hook := range all[1:] {
			if strings.Contains(hook, "-kueue-x-k8s-io-") || strings.Contains(hook, "-batch-v1-job") {
				out.WriteString(item + webhookService.ReplaceAllString(hook, "url: "+address+"$1\n    caBundle: "+bundle))
			}
		}
		out.WriteString("\n---\n")
	}
	return out.String()
}

// StopKueue ends Kueue and takes its webhooks away, which would refuse everything without it.
func (c *Cluster) StopKueue(t testing.TB) {
	t.Helper()
	for _, kind := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		if out, err := c.Kubectl("delete", kind, "--all"); err != nil {
			t.Error(out)
		}
	}
	c.end("kueue")
}
