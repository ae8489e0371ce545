package auth

import (
	"crypto"
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
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// How long certificates last. One is renewed when less than the second figure is left; the
// authority so early that whoever has a copy of it has a year to fetch the next.
const (
	caYears, caSpare    = 2, 365 * 24 * time.Hour
	leafLife, leafSpare = 397 * 24 * time.Hour, 30 * 24 * time.Hour
)

// Certs is the server's certificate authority and the certificates it serves.
type Certs struct {
	CA     []byte // PEM
	Bundle string // path of a file with the CA and the system's roots, for clients that take one bundle

	dir   string
	hosts []string

	mu     sync.Mutex
	leaves []tls.Certificate
	renew  time.Time
}

// LoadCerts reads the CA of dir, making it on first start, and issues certificates for hosts. They
// are renewed at each start: it costs a millisecond and always fits the names the server has now.
//
// The CA vouches for the names of this server, and for those that mean something in a private
// network only: with its key nobody can play another server. It is renewed when it nears its end,
// or when the server has a name that it may not vouch for, with the same key and name: what it
// signs is good with the old one as well, as long as that lasts.
func LoadCerts(dir string, hosts []string, now time.Time) (*Certs, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	c := &Certs{Bundle: filepath.Join(dir, "bundle.pem"), dir: dir, hosts: hosts}
	return c, c.load(now)
}

// load issues the certificates.
func (c *Certs) load(now time.Time) error {
	pair, pemCA, err := loadCA(c.dir, c.hosts, now)
	if err != nil {
		return err
	}
	// One for the addresses, and one for each name: a client with an older copy of the CA, which
	// may not vouch for a newer name, refuses a certificate that has it at all. And BoringSSL, as
	// in clients of gRPC, refuses addresses where the CA says which of them it vouches for.
	groups := [][]string{{}}
	for _, h := range c.hosts {
		if h == "" || slices.ContainsFunc(groups, func(g []string) bool { return slices.Contains(g, h) }) {
			continue
		}
		if net.ParseIP(h) != nil || h == "localhost" { // for clients that name nobody
			groups[0] = append(groups[0], h)
		}
		if net.ParseIP(h) == nil {
			groups = append(groups, []string{h})
		}
	}
	var leaves []tls.Certificate
	for _, g := range groups {
		leaf, err := issue(pair, g, now)
		if err != nil {
			return err
		}
		leaves = append(leaves, leaf)
	}
	if err := writeBundle(c.Bundle, pemCA); err != nil {
		return err
	}
	c.CA, c.leaves = pemCA, leaves
	c.renew = leaves[0].Leaf.NotAfter.Add(-leafSpare)
	return nil
}

// Serve is the certificate for a client: [crypto/tls.Config.GetCertificate]. One that nears its end
// is renewed.
func (c *Certs) Serve(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.After(c.renew) {
		ca := c.CA
		if err := c.load(now); err != nil {
			c.renew = now.Add(time.Hour) // the present ones are good for days
		}
		c.CA = ca // others read it; the next start has the new one
	}
	for i := range c.leaves {
		if h.ServerName != "" { // those of names first
			i = len(c.leaves) - 1 - i
		}
		if h.SupportsCertificate(&c.leaves[i]) == nil {
			return &c.leaves[i], nil
		}
	}
	return &c.leaves[0], nil
}

// loadCA reads the CA, makes it where there is none, and renews it where that is due.
func loadCA(dir string, hosts []string, now time.Time) (pair tls.Certificate, caPEM []byte, err error) {
	caPath, keyPath := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key")
	caPEM, err = os.ReadFile(caPath)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeCA(caPath, keyPath, hosts, now); err != nil {
			return pair, nil, err
		}
		caPEM, err = os.ReadFile(caPath)
	}
	if err != nil {
		return pair, nil, err
	}
	keyPEM, err := os.ReadFile(keyPath)
	if err != nil {
		return pair, nil, err
	}
	pair, err = tls.X509KeyPair(caPEM, keyPEM)
	if err != nil {
		return pair, nil, berth.Errorf(berth.Invalid, "the certificate authority in %s is damaged (%w); move the folder away to create a new one", dir, err)
	}
	if pair.Leaf.PermittedDNSDomainsCritical && pair.Leaf.NotAfter.Sub(now) > caSpare && vouches(pair.Leaf, hosts) {
		return pair, caPEM, nil
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return pair, nil, berth.Errorf(berth.Invalid, "the key in %s cannot sign; move the folder away to create a new one", keyPath)
	}
	// What the last one might vouch for stays: somebody may know the server by that name.
	names, ips := constraints(hosts)
	for _, n := range pair.Leaf.PermittedDNSDomains {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	for _, n := range pair.Leaf.PermittedIPRanges {
		if !slices.ContainsFunc(ips, func(m *net.IPNet) bool { return m.String() == n.String() }) {
			ips = append(ips, n)
		}
	}
	if caPEM, err = signCA(pair.Leaf.Subject, names, ips, key, now); err != nil {
		return pair, nil, err
	}
	if err := replaceFile(caPath, caPEM); err != nil {
		return pair, nil, err
	}
	pair, err = tls.X509KeyPair(caPEM, keyPEM)
	return pair, caPEM, err
}

func makeCA(caPath, keyPath string, hosts []string, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	names, ips := constraints(hosts)
	caPEM, err := signCA(pkix.Name{CommonName: "Berth CA of " + host}, names, ips, key, now)
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
		return makeCA(caPath, keyPath, hosts, now)
	}
	return writeNew(caPath, caPEM, 0o644)
}

// signCA makes the certificate of an authority for these names and addresses.
func signCA(subject pkix.Name, names []string, ips []*net.IPNet, key crypto.Signer, now time.Time) ([]byte, error) {
	tmpl := &x509.Certificate{
		SerialNumber: serial(), Subject: subject,
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(caYears, 0, 0),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage:                    x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: names, PermittedIPRanges: ips,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create the certificate authority: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// Names and addresses that nobody owns: they mean something in a private network, and a server
// there often changes them.
var (
	privateNames  = []string{"localhost", "local", "internal", "lan", "home.arpa", "test"}
	privateRanges = []string{
		"127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10", "::1/128", "fc00::/7", "fe80::/10",
	}
)

// constraints are what an authority for hosts may vouch for.
func constraints(hosts []string) (names []string, ips []*net.IPNet) {
	names = slices.Clone(privateNames)
	for _, r := range privateRanges {
		_, n, err := net.ParseCIDR(r)
		if err != nil {
			panic(err) // a constant
		}
		ips = append(ips, n)
	}
	for _, h := range hosts {
		ip := net.ParseIP(h)
		switch {
		case h == "" || permitted(names, ips, h):
		case ip == nil:
			names = append(names, strings.TrimPrefix(h, "*."))
		case ip.To4() != nil:
			ips = append(ips, &net.IPNet{IP: ip.To4(), Mask: net.CIDRMask(32, 32)})
		default:
			ips = append(ips, &net.IPNet{IP: ip, Mask: net.CIDRMask(128, 128)})
		}
	}
	return names, ips
}

// vouches says whether an authority may vouch for all hosts.
func vouches(ca *x509.Certificate, hosts []string) bool {
	return !slices.ContainsFunc(hosts, func(h string) bool { return h != "" && !permitted(ca.PermittedDNSDomains, ca.PermittedIPRanges, h) })
}

func permitted(names []string, ips []*net.IPNet, host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		return slices.ContainsFunc(ips, func(n *net.IPNet) bool { return n.Contains(ip) })
	}
	host = strings.ToLower(strings.TrimPrefix(host, "*."))
	return slices.ContainsFunc(names, func(n string) bool {
		return host == strings.ToLower(n) || strings.HasSuffix(host, "."+strings.ToLower(n))
	})
}

func issue(ca tls.Certificate, hosts []string, now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "berth"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(leafLife),
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
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der, ca.Certificate[0]}, PrivateKey: key, Leaf: leaf}, err
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
	return replaceFile(path, b)
}

// replaceFile writes a file that everybody may read, so that it is the old one or the new one.
func replaceFile(path string, data []byte) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
