package peer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthml/berth/bench/measure"
)

// Proxy is a proxy that speaks HTTPS to clients, checks a key and passes requests on to servers.
type Proxy struct {
	Name, Version, Address string
	d                      daemons
}

const haproxyConfig = `global
  maxconn 2000
defaults
  mode http
  timeout connect 2s
  timeout client 60s
  timeout server 60s
  timeout queue 60s
  option http-keep-alive
frontend f
  bind ADDRESS ssl crt DIR/cert.pem alpn http/1.1
  acl known req.hdr(Authorization) -m str "Bearer KEY"
  http-request deny deny_status 401 unless known
  http-request del-header Authorization
  default_backend b
backend b
  http-reuse always
SERVERS`

const nginxConfig = `worker_processes auto;
daemon off;
error_log DIR/error.log;
pid DIR/nginx.pid;
events { worker_connections 2000; }
http {
  access_log off;
  client_body_temp_path DIR/body; proxy_temp_path DIR/proxy; fastcgi_temp_path DIR/f; uwsgi_temp_path DIR/u; scgi_temp_path DIR/s;
  keepalive_requests 10000000;
  upstream b {
SERVERS    keepalive 64;
    keepalive_requests 10000000;
  }
  server {
    listen ADDRESS ssl;
    ssl_certificate DIR/cert.pem;
    ssl_certificate_key DIR/cert.pem;
    location / {
      if ($http_authorization != "Bearer KEY") { return 401; }
      proxy_pass http://b;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Authorization "";
    }
  }
}
`

// StartProxy runs HAProxy or nginx, whose servers are at the addresses.
func StartProxy(ctx context.Context, group *measure.Group, name, dir, key string, servers []string) (*Proxy, error) {
	version, err := exec.CommandContext(ctx, name, "-v").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s is not installed: %w", name, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := selfSigned(filepath.Join(dir, "cert.pem")); err != nil {
		return nil, err
	}
	p := &Proxy{Name: name, Version: firstNumber(string(version)), d: daemons{logs: dir, group: group.Sub(filepath.Base(dir))}}
	if p.Address, err = freeAddress(ctx); err != nil {
		return nil, err
	}
	config, line, args := haproxyConfig, "  server w%d %s maxconn 1\n", []string{"-db", "-f"}
	if name == "nginx" {
		config, line, args = nginxConfig, "    server %[2]s;\n", []string{"-p", dir, "-c"}
	}
	var list strings.Builder
	for i, s := range servers {
		fmt.Fprintf(&list, line, i, s)
	}
	file := filepath.Join(dir, "config")
	text := strings.NewReplacer("ADDRESS", p.Address, "DIR", dir, "KEY", key, "SERVERS", list.String()).Replace(config)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if _, err := p.d.start(ctx, name, append(args, file)...); err != nil {
		return nil, err
	}
	err = p.d.wait(ctx, name, func(ctx context.Context) bool {
		c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", p.Address) //nolint:gosec // its certificate is its own
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	if err != nil {
		p.Stop()
	}
	return p, err
}

// Processes are those of the proxy.
func (p *Proxy) Processes() []int {
	var pids []int
	for _, x := range p.d.all {
		pids = append(pids, family(x.cmd.Process.Pid)...)
	}
	return pids
}

// Stop ends it.
func (p *Proxy) Stop() { p.d.stopAll() }

// freeAddress is an address on this machine that nobody listens at.
func freeAddress(ctx context.Context) (string, error) {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// selfSigned writes a certificate and its key.
func selfSigned(file string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err1 := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	secret, err2 := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...)
	return os.WriteFile(file, text, 0o600)
}

// firstNumber is the first word of a text that looks like a version.
func firstNumber(text string) string {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" /\n,", r) }) {
		if word[0] >= '0' && word[0] <= '9' && strings.Contains(word, ".") {
			return word
		}
	}
	return ""
}
