//go:build linux

package kubetest

import (
	"archive/tar"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// authority signs the certificates of a cluster.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// certificates makes an authority, and the certificates and kubeconfigs of all components.
func (c *Cluster) certificates() error {
	a := &authority{dir: c.dir}
	if err := a.issue("ca", pkix.Name{CommonName: "test-ca"}); err != nil {
		return err
	}
	for name, who := range map[string]pkix.Name{
		"apiserver": {CommonName: "kube-apiserver"}, "kubelet-server": {CommonName: "localhost"}, "admin": {CommonName: "admin", Organization: []string{"system:masters"}},
		"kcm": {CommonName: "system:kube-controller-manager"}, "sched": {CommonName: "system:kube-scheduler"},
		"kubelet": {CommonName: "system:node:localhost", Organization: []string{"system:nodes"}}, "sa": {CommonName: "sa"},
	} {
		if err := a.issue(name, who); err != nil {
			return err
		}
		text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "https://127.0.0.1:%d", certificate-authority: %s}}],
users: [{name: u, user: {client-certificate: %s, client-key: %s}}]}
`, c.ports["api"], c.path("ca.crt"), c.path(name+".crt"), c.path(name+".key"))
		if err := os.WriteFile(c.path(name+".kubeconfig"), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// issue writes a key and its certificate. The first one is the authority's own.
func (a *authority) issue(name string, who pkix.Name) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return err
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: who, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default.svc"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)},
	}
	signer, by := a.key, a.cert
	if signer == nil {
		t.IsCA, t.BasicConstraintsValid, t.KeyUsage, t.ExtKeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature, nil
		signer, by = key, t
	}
	der, err := x509.CreateCertificate(rand.Reader, t, by, &key.PublicKey, signer)
	if err != nil {
		return err
	}
	if a.key == nil {
		a.key = key
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			return err
		}
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	for suffix, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "EC PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(a.dir, name+suffix), pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// makeImages makes the image of the pod itself, and one with busybox.
func makeImages(dir string) error {
	program, err := os.ReadFile(mustPath("busybox"))
	if err != nil {
		return err
	}
	names, err := exec.Command("busybox", "--list").Output() //nolint:noctx // it returns at once
	if err != nil {
		return err
	}
	// The first process of a pod only waits.
	if err := writeImage(filepath.Join(dir, "pause.tar"), "localhost/pause:1", program, nil, nil, "/bin/busybox", "sleep", "1000000"); err != nil {
		return err
	}
	return writeImage(filepath.Join(dir, "busybox.tar"), Image, program, strings.Fields(string(names)), nil)
}

// curl are curl of this machine and its libraries: busybox's own wget cannot speak to a server of
// Go over TLS.
func curl() (paths []string, err error) {
	path := mustPath("curl")
	out, err := exec.Command("ldd", path).Output() //nolint:noctx // it returns at once
	if err != nil {
		return nil, err
	}
	paths = append(paths, path)
	for word := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(word, "/") {
			paths = append(paths, word)
		}
	}
	return paths, nil
}

func mustPath(name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		return name
	}
	return path
}

// writeImage writes an image with busybox and links to it as `docker save` does. more is the tar
// file of another layer, if there is one.
func writeImage(path, name string, program []byte, links []string, more []byte, entry ...string) error {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, d := range []string{"bin", "dev", "etc", "proc", "sys", "usr", "usr/bin", "root"} {
		_ = w.WriteHeader(&tar.Header{Name: d + "/", Typeflag: tar.TypeDir, Mode: 0o755}) // Close has the error
	}
	_ = w.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777})
	passwd := []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
	_ = w.WriteHeader(&tar.Header{Name: "etc/passwd", Mode: 0o644, Size: int64(len(passwd))})
	_, _ = w.Write(passwd)
	_ = w.WriteHeader(&tar.Header{Name: "bin/busybox", Mode: 0o755, Size: int64(len(program))})
	_, _ = w.Write(program)
	if links != nil {
		files, err := curl()
		if err != nil {
			return err
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			_ = w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(f, "/"), Mode: 0o755, Size: int64(len(b))})
			_, _ = w.Write(b)
		}
	}
	for _, l := range links {
		if l != "busybox" {
			_ = w.WriteHeader(&tar.Header{Name: "bin/" + l, Typeflag: tar.TypeSymlink, Linkname: "busybox"})
		}
	}
	_ = w.WriteHeader(&tar.Header{Name: "usr/bin/env", Typeflag: tar.TypeSymlink, Linkname: "/bin/env"})
	if err := w.Close(); err != nil {
		return err
	}
	sums, layers := []string{"sha256:" + hash(layer.Bytes())}, []string{"first/layer.tar"}
	if more != nil {
		sums, layers = append(sums, "sha256:"+hash(more)), append(layers, "more/layer.tar")
	}
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", "created": "1970-01-01T00:00:00Z",
		"config": map[string]any{"Entrypoint": entry, "Env": []string{"PATH=/usr/local/bin:/usr/bin:/bin", "FROM_IMAGE=yes"}, "WorkingDir": "/"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": sums},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]any{map[string]any{"Config": hash(config) + ".json", "RepoTags": []string{name}, "Layers": layers}})
	if err != nil {
		return err
	}
	var out bytes.Buffer
	w = tar.NewWriter(&out)
	for _, f := range []struct {
		name string
		b    []byte
	}{{hash(config) + ".json", config}, {"first/layer.tar", layer.Bytes()}, {"more/layer.tar", more}, {"manifest.json", manifest}} {
		if f.b == nil {
			continue
		}
		_ = w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.b))})
		_, _ = w.Write(f.b)
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o600)
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
