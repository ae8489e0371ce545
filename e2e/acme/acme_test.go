//go:build engines

package acme

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth/e2e/world"
)

const (
	pebble = "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.8.0"
	name   = "ml.berth.test"
)

// serveDNS answers every question for an address with 127.0.0.1, and all others with nothing.
func serveDNS(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			q := buf[:n]
			end := 12
			for end < n && q[end] != 0 { // the labels of the name
				end += int(q[end]) + 1
			}
			end += 5
			if end > n {
				continue
			}
			answers := uint16(0)
			var answer []byte
			if binary.BigEndian.Uint16(q[end-4:]) == 1 { // A
				answers = 1
				answer = []byte{0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, 1}
			}
			out := append([]byte{}, q[0], q[1], 0x81, 0x80, 0, 1, byte(answers>>8), byte(answers), 0, 0, 0, 0)
			out = append(append(out, q[12:end]...), answer...)
			_, _ = conn.WriteTo(out, from)
		}
	}()
	return conn.LocalAddr().String()
}

// authority makes the certificate of Pebble's own address, with the program that is tested.
func authority(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	out, err := exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-keyout", key, "-out", cert,
		"-subj", "/CN=pebble", "-addext", "subjectAltName=IP:127.0.0.1").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return cert, key
}

// TestACME: a server with `acme: true` proves its name over TLS and serves a certificate of the
// authority for it, which is kept over a restart.
func TestACME(t *testing.T) {
	tool, dir := world.Tool(t, pebble), t.TempDir()
	cert, key := authority(t, dir)
	home := world.Home(t)
	address, port := world.FreeAddress(t), world.FreeAddress(t)
	_, serving, err := net.SplitHostPort(port)
	if err != nil {
		t.Fatal(err)
	}
	var number int
	fmt.Sscan(serving, &number)
	conf := map[string]any{"pebble": map[string]any{
		"listenAddress": address, "managementListenAddress": "", "certificate": cert, "privateKey": key, "httpPort": 1, "tlsPort": number,
		"ocspResponderURL": "", "externalAccountBindingRequired": false,
	}}
	text, err := json.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "pebble.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	dns := serveDNS(t)
	world.Serve(t, address, func() *exec.Cmd {
		cmd := exec.Command(tool, "-config", file, "-dnsserver", dns)
		cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0")
		return cmd
	})
	t.Setenv("SSL_CERT_FILE", cert)
	yaml := "listen: 127.0.0.1:" + serving + "\nadvertise: https://" + name + ":" + serving + "\nacme: true\nacme_directory: https://" + address + "/dir\n"
	if err := os.WriteFile(filepath.Join(home, "berth.yaml"), []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	world.StartIn(t, home)
	issuer := func(name string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		d := tls.Dialer{Config: &tls.Config{ServerName: name, InsecureSkipVerify: true}}
		conn, err := d.DialContext(ctx, "tcp", "127.0.0.1:"+serving)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Issuer.CommonName
	}
	if got := issuer(name); !strings.HasPrefix(got, "Pebble Intermediate CA") {
		t.Errorf("%s: %q", name, got)
	}
	if got := issuer("localhost"); !strings.HasPrefix(got, "Berth CA of ") {
		t.Errorf("localhost: %q", got)
	}
	if kept, err := os.ReadDir(filepath.Join(home, "tls", "acme")); err != nil || len(kept) < 2 {
		t.Errorf("nothing is kept: %v, %v", kept, err)
	}
}
