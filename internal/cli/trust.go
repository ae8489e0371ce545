//go:build unix

package cli

import (
	"bufio"
	"cmp"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berthml/berth/internal/setup"
)

func trustCommand(s *session) *cobra.Command {
	var remove, yes bool
	var file string
	cmd := &cobra.Command{
		Use:   "trust [--remove]",
		Short: "Have this machine's browsers and programs trust the server's certificate authority, or forget it",
		Long: "Adds the certificate authority of the server to the store of the system (as root) and to those of Chromium and Firefox (with\n" +
			"certutil), after asking. The authority can certify only the names of its server and private ones. --remove takes it out again.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.config()
			if err != nil {
				return err
			}
			home, err := os.UserHomeDir()
			if err != nil {
				return err
			}
			t := setup.Trust{Root: "/", Home: home, CA: cmp.Or(file, os.Getenv("BERTH_CA"), filepath.Join(cfg.Home, "tls", "ca.pem"))}
			steps, err := t.Plan(remove)
			if err != nil {
				return err
			}
			if len(steps) == 0 {
				s.say("nothing to do")
				return nil
			}
			if !yes {
				for _, step := range steps {
					s.say("%s", step.What)
				}
				if !term.IsTerminal(int(os.Stdin.Fd())) {
					return usagef("nothing was changed; give --yes to agree")
				}
				s.say("Do this? [y/N]")
				line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
				if a := strings.ToLower(strings.TrimSpace(line)); a != "y" && a != "yes" {
					s.say("nothing was changed")
					return nil
				}
			}
			return s.doSteps(cmd.Context(), steps, false)
		},
	}
	cmd.Flags().StringVar(&file, "ca", "", "file of the authority (default: BERTH_CA, or tls/ca.pem of the home)")
	cmd.Flags().BoolVar(&remove, "remove", false, "take it out again")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
