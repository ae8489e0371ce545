//go:build unix

package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/setup"
)

func setupCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "setup", Short: "Install a server for a team on this machine, or remove it", Args: cobra.ArbitraryArgs, RunE: group,
	}
	cmd.AddCommand(setupTeam(s), setupRemove(s))
	return cmd
}

func setupTeam(s *session) *cobra.Command {
	t := setup.Team{Secrets: s.out}
	var users []string
	var life lifeFlag
	var dryRun, noStart bool
	cmd := &cobra.Command{
		Use:   "team --name HOST [--user NAME[:ROLE] …]",
		Short: "Install a server for a team: an account, a systemd unit, TLS, a database and the first users",
		Long: "Installs a server on this machine that others can use. It runs under its own account, as the systemd unit berth.service, with\n" +
			"control groups of its own. Run it as root; --dry-run prints what it would do. `berth setup remove` undoes it.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if t.Program, err = os.Executable(); err != nil {
				return err
			}
			if t.Program, err = filepath.EvalSymlinks(t.Program); err != nil {
				return err
			}
			for _, u := range users {
				name, role, _ := strings.Cut(u, ":")
				if role == "" {
					role = "user"
				}
				t.Users = append(t.Users, setup.User{Name: name, Role: auth.Role(role), Life: life.life})
			}
			t.Start = !noStart
			steps, err := t.Plan()
			if err != nil {
				return err
			}
			if below := t.Below(); below != "" {
				s.say("all paths are below %s", below)
			}
			if err := s.doSteps(cmd.Context(), steps, dryRun); err != nil || dryRun {
				return err
			}
			home := filepath.Join(t.Root, t.Home)
			if list := t.Remaining(); len(list) > 0 {
				s.say("the server is prepared; its home is %s; it remains to run, as root, on the machine it is for:\n  %s", home, strings.Join(list, "\n  "))
			} else {
				s.say("the server is set up; its home is %s", home)
			}
			s.hint("give each user their token, the address %s, and %s/tls/ca.pem once the server has started, unless the certificate is a public one\n"+
				"`berth user add NAME` adds users, `berth doctor` checks the server: run both with --home %s, as root", t.Advertise(), home, home)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&t.Name, "name", "", "name under which clients reach this machine")
	f.StringVar(&t.Listen, "listen", "0.0.0.0:8443", "HOST:PORT to listen on")
	f.StringVar(&t.Account, "account", "berth", "account that the server and its jobs run as; created if it does not exist")
	f.StringVar(&t.Home, "dir", "/var/lib/berth", "home of the server")
	f.StringVar(&t.Root, "root", "/", "install below this folder and start nothing")
	f.StringVar(&t.Database, "database", "", "postgres://… of an empty database (default: SQLite in the home)")
	f.StringVar(&t.Certificate, "cert", "", "file with a certificate for the name, followed by those that lead to its authority")
	f.StringVar(&t.Key, "key", "", "file with its key")
	f.BoolVar(&t.ACME, "acme", false, "get a certificate from Let's Encrypt, or --acme-directory; needs port 443")
	f.StringVar(&t.ACMEMail, "acme-email", "", "address for messages of that authority")
	f.StringVar(&t.ACMEDirectory, "acme-directory", "", "address of another authority that has ACME")
	f.StringArrayVar(&users, "user", nil, "first user, NAME or NAME:ROLE with role admin, user or reader; may be repeated")
	life.add(cmd, " (of the first users' tokens)")
	f.BoolVar(&noStart, "no-start", false, "do not start the server")
	f.BoolVar(&dryRun, "dry-run", false, "print what would be done, and do nothing")
	return cmd
}

// doSteps does the steps of a plan and says so, or prints them.
func (s *session) doSteps(ctx context.Context, steps []setup.Step, dryRun bool) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	for _, step := range steps {
		s.say("%s", step.What)
		if dryRun {
			if step.Text != "" {
				s.hint("  %s", strings.ReplaceAll(strings.TrimRight(step.Text, "\n"), "\n", "\n  "))
			}
			continue
		}
		if err := step.Do(ctx); err != nil {
			return err
		}
	}
	if dryRun {
		s.say("nothing was done; leave --dry-run out to do it")
	}
	return nil
}

func setupRemove(s *session) *cobra.Command {
	var r setup.Removal
	var dryRun, deleteHome bool
	cmd := &cobra.Command{
		Use: "remove --keep-home|--delete-home", Short: "Remove the server that `berth setup team` installed", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if r.KeepHome == deleteHome {
				return usagef("give --keep-home, which keeps all data, or --delete-home, which deletes it")
			}
			steps, err := r.Plan()
			if err != nil {
				return err
			}
			return s.doSteps(cmd.Context(), steps, dryRun)
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Root, "root", "/", "the folder it was installed below")
	f.BoolVar(&r.KeepHome, "keep-home", false, "keep the home and the account: jobs, files, keys and users")
	f.BoolVar(&deleteHome, "delete-home", false, "delete them")
	f.BoolVar(&dryRun, "dry-run", false, "print what would be done, and do nothing")
	return cmd
}
