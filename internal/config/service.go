package config

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/berthml/berth"
)

// Unit is the systemd unit of a server that `berth setup team` installed, and ServiceFile the file
// of its home that names it: the unit starts the server of that home, and nobody else.
const (
	Unit        = "berth.service"
	ServiceFile = "service"
)

// Service is the unit that runs the server of a home, "" where there is none.
func Service(home string) string {
	text, err := os.ReadFile(filepath.Join(home, ServiceFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// checkTLS says what is wrong with the certificates.
func (c Config) checkTLS() error {
	switch {
	case (c.TLSCertificate == "") != (c.TLSKey == ""):
		return berth.Errorf(berth.Invalid, "tls_certificate and tls_key belong together")
	case c.ACME && c.TLSCertificate != "":
		return berth.Errorf(berth.Invalid, "acme gets a certificate by itself: remove tls_certificate and tls_key")
	case c.ACME && c.Advertise == "":
		return berth.Errorf(berth.Invalid, "acme needs the name that the certificate is for: set advertise to https://NAME")
	case !c.ACME && (c.ACMEEmail != "" || c.ACMEDirectory != ""):
		return berth.Errorf(berth.Invalid, "acme_email and acme_directory need acme: true")
	}
	return nil
}
