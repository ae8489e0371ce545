package cli

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

func tokenCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "token", Short: "Create, list and revoke tokens for others and for other machines", Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(tokenCreate(s), tokenList(s), tokenRevoke(s))
	return cmd
}

func tokenCreate(s *session) *cobra.Command {
	var t client.Token
	var life lifeFlag
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a token and print its secret, which is shown only once",
		Args:  oneArg("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			t.Name, t.Expires = args[0], life.until()
			made, err := c.CreateToken(cmd.Context(), t)
			if err != nil {
				return err
			}
			if s.format.chosen() {
				return s.print(made)
			}
			if _, err := fmt.Fprintln(s.out, made.Secret); err != nil {
				return err
			}
			about, err := c.About(cmd.Context())
			if err != nil {
				return err
			}
			ca := "certificate authority"
			if s.cfg.URL == "" {
				ca += ", " + filepath.Join(s.cfg.Home, "tls", "ca.pem")
			}
			if t.Role != "reader" {
				s.warn("%s", berth.TokenIsShell)
			}
			s.hint("use it on another machine, with a copy of the server's %s:\n"+
				"  berth login %s --ca ca.pem\n"+
				"or, in a script, export BERTH_URL=%s BERTH_TOKEN=… BERTH_CA=ca.pem", ca, about.URL, about.URL)
			s.warnLoopback(about.URL)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&t.User, "user", "", "user who owns its jobs (default: NAME)")
	f.StringVar(&t.Role, "role", "user", "admin, user or reader")
	life.add(cmd, "")
	s.format.flags(cmd)
	return cmd
}

func tokenList(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List tokens, without their secrets", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			tokens, err := c.Tokens(cmd.Context())
			if err != nil {
				return err
			}
			if s.format.chosen() {
				return s.print(tokens)
			}
			t := table{header: []string{"NAME", "USER", "ROLE", "EXPIRES"}}
			for _, k := range tokens {
				expires := "never"
				if !k.Expires.IsZero() {
					expires = k.Expires.Local().Format("2006-01-02 15:04")
				}
				t.add(cell{k.Name, ""}, cell{k.User, ""}, cell{k.Role, ""}, cell{expires, ""})
			}
			return s.printRows(t)
		},
	}
	s.format.flags(cmd)
	return cmd
}

func tokenRevoke(s *session) *cobra.Command {
	return &cobra.Command{
		Use: "revoke NAME", Short: "Revoke a token immediately", Args: oneArg("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			if err := c.RevokeToken(cmd.Context(), args[0]); err != nil {
				return err
			}
			s.say("revoked %s", args[0])
			return nil
		},
	}
}

// warnLoopback warns of an address, meant for other machines, that leads back to the machine where
// it is used.
func (s *session) warnLoopback(address string) {
	u, err := url.Parse(address)
	if err != nil {
		return
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return
	}
	s.warn("other machines cannot reach this server at %s: set `listen: 0.0.0.0:PORT` and `advertise: https://NAME:PORT` in berth.yaml of its home "+
		"and start it again (\"Sharing a server\" in docs/server.md)", address)
}
