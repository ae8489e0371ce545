package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/fence"
)

// finding is one thing the doctor looked at.
type finding struct {
	Check  string `json:"check"`
	Result string `json:"result"` // ok, note, problem
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

func doctorCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check for problems that could keep jobs from running here",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.config()
			if err != nil {
				return err
			}
			s.cfg = cfg
			found := s.examine(cmd.Context(), cfg)
			if s.format.chosen() {
				if err := s.print(found); err != nil {
					return err
				}
			} else {
				s.printFindings(found)
			}
			for _, f := range found {
				if f.Result == "problem" {
					return exitError(exitFailed)
				}
			}
			return nil
		},
	}
	s.format.flags(cmd)
	return cmd
}

func (s *session) printFindings(found []finding) {
	colors := map[string]string{"ok": green, "note": yellow, "problem": red}
	for _, f := range found {
		fmt.Fprintf(s.out, "%s  %-12s %s\n", s.paint(s.out, colors[f.Result], fmt.Sprintf("%-7s", f.Result)), f.Check, f.Detail)
		if f.Fix != "" {
			fmt.Fprintf(s.out, "         %-12s %s\n", "", s.paint(s.out, dim, f.Fix))
		}
	}
}

func (s *session) examine(ctx context.Context, cfg client.Config) []finding {
	var found []finding
	if cfg.URL == "" {
		found = append(found, homeFinding(cfg.Home), spaceFinding(cfg.Home))
	}
	found = append(found, s.serverFindings(ctx, cfg)...)
	if cfg.URL == "" {
		found = append(found, fenceFinding(cfg.Home), uvFinding(), engineFinding())
	}
	return found
}

func homeFinding(home string) finding {
	f := finding{Check: "home", Result: "ok", Detail: home}
	st, err := os.Stat(home)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Detail += " will be made at the first start"
	case err != nil:
		f.Result, f.Detail, f.Fix = "problem", err.Error(), "set BERTH_HOME to a folder of yours"
	case !st.IsDir():
		f.Result, f.Detail, f.Fix = "problem", home+" is not a folder", "set BERTH_HOME to a folder of yours"
	case st.Mode().Perm()&0o077 != 0:
		f.Result, f.Detail, f.Fix = "note", home+" can be read by others", "chmod 700 "+quote(home)
	}
	return f
}

func spaceFinding(home string) finding {
	for dir := home; ; dir = filepath.Dir(dir) {
		free, err := freeSpace(dir)
		if errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
			continue
		}
		switch {
		case err != nil:
			return finding{Check: "disk", Result: "note", Detail: "free space is not known: " + err.Error()}
		case free < 1<<30:
			return finding{Check: "disk", Result: "problem", Detail: size(free) + " free", Fix: "make room, or set BERTH_HOME to a larger disk"}
		}
		return finding{Check: "disk", Result: "ok", Detail: size(free) + " free"}
	}
}

// serverFindings looks at the server: that it answers, that it is of our version, and that its
// address can be reached with TLS.
func (s *session) serverFindings(ctx context.Context, cfg client.Config) []finding {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cfg.Start = nil
	c, err := client.Open(ctx, cfg)
	if err != nil && cfg.URL == "" && exitCode(err) == exitUnreachable {
		return []finding{{Check: "server", Result: "note", Detail: "no local server runs; it starts by itself when it is needed"}}
	}
	if err != nil {
		return []finding{{Check: "server", Result: "problem", Detail: err.Error(), Fix: "check BERTH_URL, BERTH_TOKEN and BERTH_CA"}}
	}
	defer c.Close()
	begun := time.Now()
	about, err := c.About(ctx)
	if err != nil {
		return []finding{{Check: "server", Result: "problem", Detail: err.Error(), Fix: "its log is " + filepath.Join(cfg.Home, "run", serveLog)}}
	}
	found := []finding{{Check: "server", Result: "ok", Detail: fmt.Sprintf("%s answers in %s; you are %s, %s", about.URL, span(time.Since(begun)), about.User, about.Role)}}
	if about.Version != berth.Version {
		found = append(found, finding{Check: "version", Result: "note", Detail: "the server is " + about.Version + ", this program " + berth.Version, Fix: "`berth down` and `berth up` start the new one"})
	}
	if about.Unlimited != "" {
		found = append(found, finding{
			Check: "nodes", Result: "note", Detail: about.Unlimited,
			Fix: "run the server as root, or below a control group that was delegated to its user (docs/clusters.md)",
		})
	}
	if c.Local() {
		found = append(found, doorFinding(ctx, about))
	}
	return found
}

// doorFinding tries the address that Azure's clients use.
func doorFinding(ctx context.Context, about client.About) finding {
	u, err := url.Parse(about.URL)
	if err != nil {
		return finding{Check: "https", Result: "problem", Detail: err.Error()}
	}
	pool, err := certPool(about.CABundle)
	if err != nil {
		return finding{Check: "https", Result: "problem", Detail: err.Error()}
	}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), "443")
	}
	d := tls.Dialer{Config: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	conn, err := d.DialContext(ctx, "tcp", host)
	if err != nil {
		return finding{Check: "https", Result: "problem", Detail: err.Error(), Fix: "Azure's clients use this address; a firewall or a stale advertise setting may be in the way"}
	}
	conn.Close() // nothing was written
	return finding{Check: "https", Result: "ok", Detail: about.URL + " with the certificate of " + about.CABundle}
}

func certPool(path string) (*x509.CertPool, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, errors.New(path + " holds no certificate")
	}
	return pool, nil
}

// fenceFinding says whether jobs, which run with the server's account, can read its secrets.
func fenceFinding(home string) finding {
	if why := fence.Missing(home); why != "" {
		return finding{
			Check: "secrets", Result: "note", Detail: "jobs can read the server's secrets: " + why,
			Fix: "for a server that others use: set BERTH_HOME to a folder like /var/lib/berth (docs/server.md)",
		}
	}
	return finding{Check: "secrets", Result: "ok", Detail: "jobs cannot read the server's secrets (Landlock)"}
}

func uvFinding() finding {
	path, err := exec.LookPath("uv")
	if err != nil {
		return finding{Check: "uv", Result: "note", Detail: "uv, which builds environments, is not on PATH; it is fetched when it is first needed"}
	}
	return finding{Check: "uv", Result: "ok", Detail: path}
}

// engineFinding looks for a container engine where clients do.
func engineFinding() finding {
	sockets := []string{"/var/run/docker.sock", "/run/podman/podman.sock", filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "podman", "podman.sock"), filepath.Join(os.Getenv("HOME"), ".docker", "run", "docker.sock")}
	if h := os.Getenv("DOCKER_HOST"); strings.HasPrefix(h, "unix://") {
		sockets = append([]string{strings.TrimPrefix(h, "unix://")}, sockets...)
	}
	for _, path := range sockets {
		conn, err := net.DialTimeout("unix", path, time.Second) //nolint:noctx // it has a timeout
		if err == nil {
			conn.Close() // nothing was written
			return finding{Check: "containers", Result: "ok", Detail: path}
		}
	}
	return finding{Check: "containers", Result: "note", Detail: "no container engine was found; environments are built from their package lists", Fix: "jobs that name only an image need Docker or Podman, or --environment host"}
}
