package setup

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/berthml/berth"
)

// Trust is where the certificate authority of a server is made known to browsers and programs of a
// machine, and forgotten again.
type Trust struct {
	Root string // of the system's store
	Home string // the user's own directory
	CA   string // file of the authority
}

// A store of the system: where certificates are put, and what is run afterwards.
type systemStore struct {
	dir    string
	update []string
}

var systemStores = []systemStore{
	{"/usr/local/share/ca-certificates", []string{"update-ca-certificates"}},
	{"/etc/pki/ca-trust/source/anchors", []string{"update-ca-trust"}},
	{"/etc/ca-certificates/trust-source/anchors", []string{"trust", "extract-compat"}},
}

// name is what the authority is called in stores: by its hash, so that several can be told apart.
// certificate is the text of that authority and of nothing else.
func (t Trust) name() (name string, certificate []byte, err error) {
	text, err := os.ReadFile(t.CA)
	if err != nil {
		return "", nil, berth.Errorf(berth.NotFound, "there is no certificate authority to trust: %w", err)
	}
	block, rest := pem.Decode(text)
	if block == nil {
		return "", nil, berth.Errorf(berth.Invalid, "%s is not a certificate", t.CA)
	}
	if next, _ := pem.Decode(rest); next != nil {
		return "", nil, berth.Errorf(berth.Denied, "%s has more than one certificate, and all of them would be trusted; start the server once with only its own there", t.CA)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil || !c.IsCA {
		return "", nil, berth.Errorf(berth.Invalid, "%s is not a certificate authority", t.CA)
	}
	if !c.PermittedDNSDomainsCritical || len(c.PermittedDNSDomains) == 0 || slices.Contains(c.PermittedDNSDomains, "") || slices.Contains(c.PermittedDNSDomains, ".") || len(c.PermittedIPRanges) == 0 || slices.ContainsFunc(c.PermittedIPRanges, everywhere) {
		return "", nil, berth.Errorf(berth.Denied, "the authority in %s may certify any name, so trusting it would be dangerous; start the server once to renew it", t.CA)
	}
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo) // the same when it is renewed
	return "berth-" + hex.EncodeToString(sum[:6]), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}), nil
}

// everywhere says whether a range has all addresses.
func everywhere(n *net.IPNet) bool {
	ones, _ := n.Mask.Size()
	return ones == 0
}

// Plan is what has to be done so that the authority is trusted, or is not any more.
func (t Trust) Plan(remove bool) (steps []Step, err error) {
	name, certificate, err := t.name()
	if err != nil {
		return nil, err
	}
	if runtime.GOOS == "darwin" {
		return t.keychain(remove), nil
	}
	for _, s := range systemStores {
		dir := filepath.Join(t.Root, s.dir)
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			continue
		}
		path := filepath.Join(dir, name+".crt")
		update := func(ctx context.Context) error {
			if filepath.Clean("/"+t.Root) != "/" {
				return nil
			}
			return command(ctx, s.update[0], s.update[1:]...)
		}
		if _, err := os.Stat(path); remove && err != nil {
			continue
		}
		if os.Geteuid() != 0 {
			steps = append(steps, Step{What: "skip the system's store " + s.dir + ": run this as root to change it", do: func(context.Context) error { return nil }})
			continue
		}
		if remove {
			steps = append(steps, Step{What: "remove " + path + " and run " + s.update[0], do: func(ctx context.Context) error {
				return errors.Join(os.Remove(path), update(ctx))
			}})
			continue
		}
		steps = append(steps, Step{What: "copy the authority to " + path + " and run " + s.update[0], do: func(ctx context.Context) error {
			return errors.Join(writeFile(path, certificate, 0o644), update(ctx))
		}})
	}
	return append(steps, t.nss(name, certificate, remove)...), nil
}

// nss are the steps for the stores of browsers, which need certutil.
func (t Trust) nss(name string, certificate []byte, remove bool) (steps []Step) {
	tool, err := exec.LookPath("certutil")
	if err != nil {
		return []Step{{What: "skip the stores of browsers: install certutil (libnss3-tools or nss-tools) to change them", do: func(context.Context) error { return nil }}}
	}
	dirs := []string{filepath.Join(t.Home, ".pki", "nssdb")} // Chromium's
	for _, pattern := range []string{".mozilla/firefox/*", "snap/firefox/common/.mozilla/firefox/*"} {
		found, _ := filepath.Glob(filepath.Join(t.Home, pattern, "cert9.db")) // the patterns are good
		for _, f := range found {
			dirs = append(dirs, filepath.Dir(f))
		}
	}
	for i, dir := range dirs {
		db := "sql:" + dir
		has := command(context.Background(), tool, "-L", "-d", db, "-n", name) == nil
		switch {
		case remove && has:
			steps = append(steps, Step{What: "remove the authority from the browser store " + dir, do: func(ctx context.Context) error {
				return command(ctx, tool, "-D", "-d", db, "-n", name)
			}})
		case !remove && !has:
			steps = append(steps, Step{What: "add the authority to the browser store " + dir, do: func(ctx context.Context) error {
				if _, err := os.Stat(filepath.Join(dir, "cert9.db")); err != nil && i == 0 {
					if err := os.MkdirAll(dir, 0o700); err != nil {
						return err
					}
					if err := command(ctx, tool, "-N", "--empty-password", "-d", db); err != nil {
						return err
					}
				}
				tmp, err := os.MkdirTemp("", "berth-trust-")
				if err != nil {
					return err
				}
				defer os.RemoveAll(tmp)
				checked := filepath.Join(tmp, "ca.pem") // not t.CA, which may be another by now
				if err := os.WriteFile(checked, certificate, 0o600); err != nil {
					return err
				}
				return command(ctx, tool, "-A", "-d", db, "-t", "C,,", "-n", name, "-i", checked)
			}})
		}
	}
	return steps
}

// keychain are the steps for macOS.
func (t Trust) keychain(remove bool) []Step {
	if remove {
		return []Step{{What: "remove the authority from your keychain", do: func(ctx context.Context) error {
			return command(ctx, "security", "remove-trusted-cert", t.CA)
		}}}
	}
	keychain := filepath.Join(t.Home, "Library", "Keychains", "login.keychain-db")
	return []Step{{What: "add the authority to your keychain " + strings.TrimPrefix(keychain, t.Home+"/"), do: func(ctx context.Context) error {
		return command(ctx, "security", "add-trusted-cert", "-r", "trustRoot", "-k", keychain, t.CA)
	}}}
}
