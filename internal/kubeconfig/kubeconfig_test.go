package kubeconfig_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/kubeconfig"
)

const two = `
apiVersion: v1
kind: Config
current-context: prod
contexts:
- {name: dev, context: {cluster: d, user: du}}
- {name: prod, context: {cluster: p, user: pu, namespace: ml}}
clusters:
- {name: d, cluster: {server: "https://dev:6443", certificate-authority: ca.pem}}
- {name: p, cluster: {server: "https://prod:6443/k8s/", certificate-authority-data: Q0E=, tls-server-name: kube}}
users:
- {name: du, user: {client-certificate: c.pem, client-key: k.pem, tokenFile: token}}
- {name: pu, user: {token: secret-of-prod}}
`

func TestParse(t *testing.T) {
	c, err := kubeconfig.Parse([]byte(two), "")
	if err != nil {
		t.Fatal(err)
	}
	if c.Server != "https://prod:6443/k8s" || c.ServerName != "kube" || string(c.CA) != "CA" || c.Token != "secret-of-prod" || c.Namespace != "ml" {
		t.Errorf("%+v", c)
	}
	if _, err := kubeconfig.Parse([]byte(two), "none"); err == nil || !strings.Contains(err.Error(), "dev, prod") {
		t.Errorf("a context that is not there: %v", err)
	}
}

// TestSingle: only the chosen context travels, with the contents of its files.
func TestSingle(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"ca.pem": "CA", "c.pem": "cert", "k.pem": "key", "token": "word\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := kubeconfig.Single([]byte(two), "dev", dir)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "prod") {
		t.Errorf("it has what belongs to another context:\n%s", b)
	}
	c, err := kubeconfig.Parse(b, "")
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	if c.Server != "https://dev:6443" || string(c.CA) != "CA" || string(c.Cert) != "cert" || string(c.Key) != "key" || c.Token != "word" {
		t.Errorf("%+v", c)
	}
}

// TestRefused: nothing that needs files, programs or trust of the server's own is accepted.
func TestRefused(t *testing.T) {
	const ok = `server: "https://h"`
	for _, x := range []struct{ cluster, user, want string }{
		{`server: "http://h"`, "token: x", "must be https"},
		{`server: "https://u:p@h"`, "token: x", "must be https"},
		{`server: "https://h?x=y"`, "token: x", "must be https"},
		{ok + ", insecure-skip-tls-verify: true", "token: x", "insecure-skip-tls-verify"},
		{ok + ", proxy-url: http://p", "token: x", "proxy-url"},
		{ok + ", certificate-authority: /etc/passwd", "token: x", "names a file (certificate-authority)"},
		{ok, "exec: {command: sh}", "running a program"},
		{ok, "auth-provider: {name: gcp}", "plug-in"},
		{ok, "tokenFile: /etc/shadow", "names a file (tokenFile)"},
		{ok, "client-key: /etc/shadow", "names a file (client-key)"},
		{ok, "username: a, password: b", "password"},
		{ok, "token: x, as: admin", "somebody else"},
		{ok, "client-certificate-data: '*'", "not base64"},
		{ok, "", "neither a token nor"},
	} {
		text := "contexts: [{name: x, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {" + x.cluster + "}}]\nusers: [{name: u, user: {" + x.user + "}}]\n"
		_, err := kubeconfig.Parse([]byte(text), "")
		if berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s; %s: %v, want %q", x.cluster, x.user, err, x.want)
		}
	}
	if _, err := kubeconfig.Parse([]byte(":\n-"), ""); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("not YAML: %v", err)
	}
}
