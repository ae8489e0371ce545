package cli

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
)

// trackingEnv is what `berth tracking-uri -o json` prints.
type trackingEnv struct {
	URI   string            `json:"tracking_uri"`
	Token string            `json:"token"`
	CA    string            `json:"ca"`
	Env   map[string]string `json:"env"`
}

func trackingURICommand(s *session) *cobra.Command {
	var export bool
	cmd := &cobra.Command{
		Use:   "tracking-uri [--export]",
		Short: "Print the address of the workspace's MLflow server",
		Long: "Prints where the MLflow client finds the workspace's runs. With --export, prints what a notebook or a script needs, as shell\n" +
			"commands; they contain your token.\n\n" +
			"  eval \"$(berth tracking-uri --export)\"\n" +
			"  python -c 'import mlflow; print(mlflow.search_runs(search_all_experiments=True))'",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			if export && s.format.chosen() {
				return usagef("--export prints shell commands: leave out -o and --query, or leave out --export")
			}
			e, err := s.trackingEnv(cmd)
			if err != nil {
				return err
			}
			switch {
			case export:
				var b strings.Builder
				for _, k := range sortedKeys(e.Env) {
					fmt.Fprintf(&b, "export %s=%s\n", k, quote(e.Env[k]))
				}
				_, err = s.out.WriteString(b.String())
				return err
			case s.format.chosen():
				return s.print(e)
			}
			_, err = fmt.Fprintln(s.out, e.URI)
			return err
		},
	}
	cmd.Flags().BoolVar(&export, "export", false, "print shell commands that also set the token and the certificate authority")
	s.format.flags(cmd)
	return cmd
}

func (s *session) trackingEnv(cmd *cobra.Command) (*trackingEnv, error) {
	c, err := s.open(cmd.Context())
	if err != nil {
		return nil, err
	}
	about, err := c.About(cmd.Context())
	if err != nil {
		return nil, err
	}
	if _, err := c.Get(cmd.Context()); err != nil { // the workspace: its address would answer nothing
		return nil, err
	}
	azure, err := s.azureEnv(c, about)
	if err != nil {
		return nil, err
	}
	e := &trackingEnv{URI: about.URL + c.Workspace.TrackingPath(), Token: azure.Token, CA: azure.CABundle}
	if c.Local() { // the client reads the file again for each connection: the one certificate is enough
		e.CA = filepath.Join(s.cfg.Home, "tls", "ca.pem")
	}
	e.Env = map[string]string{"MLFLOW_TRACKING_URI": e.URI, "MLFLOW_TRACKING_TOKEN": e.Token, berth.NoRunLinks: "true"}
	if e.CA != "" {
		e.Env["MLFLOW_TRACKING_SERVER_CERT_PATH"] = e.CA
	}
	return e, nil
}
