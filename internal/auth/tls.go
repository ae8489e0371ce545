package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/berthml/berth"
)

// Certs is the server's certificate authority and the certificate it serves.
type Certs struct {
	CA     []byte // PEM
	Bundle string // path of a file with the CA and the system's roots, for clients that take one bundle
	Leaf   tls.Certificate
}

// LoadCerts reads the CA of dir, making it on first start, and issues a certificate for hosts. The certificate is made anew at
// each start: it costs a millisecond and always fits the names the server has now.
func LoadCerts(dir string, hosts []string, now time.Time) (*Certs, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	caPath, keyPath := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key")
	caPEM, err := os.ReadFile(caPath)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeCA(caPath, keyPath, now); err != nil {
			return nil, err
		}
		caPEM, err = os.ReadFile(caPath)
	}
	if err != nil {
		return nil, err
	}
	keyPEM, err := os.ReadFile(keyPath)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(caPEM, keyPEM)
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "the certificate authority in %s is damaged (%w); move the folder away to make a new one", dir, err)
	}
	if now.After(pair.Leaf.NotAfter) {
		return nil, berth.Errorf(berth.Invalid, "the certificate authority in %s has expired; move the folder away to make a new one", dir)
	}
	leaf, err := issue(pair, hosts, now)
	if err != nil {
		return nil, err
	}
	bundle := filepath.Join(dir, "bundle.pem")
	if err := writeBundle(bundle, caPEM); err != nil {
		return nil, err
	}
	return &Certs{CA: caPEM, Bundle: bundle, Leaf: leaf}, nil
}

func makeCA(caPath, keyPath string, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	tmpl := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Berth CA of " + host},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(20, 0, 0),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	// The key goes first: a CA file without its key would stop every later start.
	if err := writeNew(keyPath, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600); err != nil {
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		// A start that was killed between the two files left this key; nothing was signed with it.
		if err := os.Remove(keyPath); err != nil {
			return err
		}
		return makeCA(caPath, keyPath, now)
	}
	return writeNew(caPath, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

func issue(ca tls.Certificate, hosts []string, now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "berth"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(2, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if tmpl.NotAfter.After(ca.Leaf.NotAfter) {
		tmpl.NotAfter = ca.Leaf.NotAfter
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else if h != "" {
			tmpl.DNSNames = append(tmpl.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca.Leaf, &key.PublicKey, ca.PrivateKey)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("issue certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der, ca.Certificate[0]}, PrivateKey: key}, nil
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	return n
}

// systemRoots are the usual places of the system's CA bundle.
var systemRoots = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem",
}

func writeBundle(path string, ca []byte) error {
	b := ca
	for _, p := range systemRoots {
		if roots, err := os.ReadFile(p); err == nil {
			b = append(append([]byte{}, ca...), roots...)
			break
		}
	}
	if old, err := os.ReadFile(path); err == nil && string(old) == string(b) {
		return nil
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
