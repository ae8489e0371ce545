package app

import (
	"context"
	"crypto/tls"
	"net/url"
	"path/filepath"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"github.com/berthml/berth/internal/auth"
)

// tlsConfig is how the front door shows who it is. Clients that ask for the name of a certificate
// of another authority are served that; all others, such as jobs on this machine, one of ours.
func (a *App) tlsConfig() (*tls.Config, error) {
	c := &tls.Config{GetCertificate: a.certs.Serve, MinVersion: tls.VersionTLS12}
	switch {
	case a.cfg.TLSCertificate != "":
		pair, err := auth.LoadPair(a.cfg.TLSCertificate, a.cfg.TLSKey)
		if err != nil {
			return nil, err
		}
		c.GetCertificate = func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if own := pair.Serve(h); own != nil {
				return own, nil
			}
			return a.certs.Serve(h)
		}
	case a.cfg.ACME:
		u, err := url.Parse(a.cfg.Advertise)
		if err != nil {
			return nil, err
		}
		name := u.Hostname()
		m := &autocert.Manager{
			Prompt: autocert.AcceptTOS, Cache: autocert.DirCache(filepath.Join(a.cfg.Home, "tls", "acme")), HostPolicy: autocert.HostWhitelist(name),
			Email: a.cfg.ACMEEmail, Client: &acme.Client{DirectoryURL: a.cfg.ACMEDirectory},
		}
		c.NextProtos = []string{"h2", "http/1.1", acme.ALPNProto}
		c.GetCertificate = func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if h.ServerName != name {
				return a.certs.Serve(h)
			}
			cert, err := m.GetCertificate(h)
			if err == nil {
				return cert, nil
			}
			if h.Context().Err() == nil && context.Cause(h.Context()) == nil {
				a.log.Error("no certificate could be had by ACME; serving one of the server's own authority", "name", name, "err", err)
			}
			return a.certs.Serve(h)
		}
	}
	return c, nil
}
