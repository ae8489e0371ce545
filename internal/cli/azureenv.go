package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// azureEnv is what `berth azure-env -o json` prints.
type azureEnv struct {
	Env           map[string]string `json:"env"`
	MetadataURL   string            `json:"metadata_url"`
	CABundle      string            `json:"ca_bundle"`
	Token         string            `json:"token"`
	Subscription  string            `json:"subscription_id"`
	ResourceGroup string            `json:"resource_group"`
	Workspace     string            `json:"workspace_name"`
}

func azureEnvCommand(s *session) *cobra.Command {
	var export bool
	cmd := &cobra.Command{
		Use:   "azure-env [--export]",
		Short: "Print the variables that point Azure's own clients at this server",
		Long: "Prints the variables with which the unmodified Python SDK and az use this server instead of Azure. They contain your token.\n\n" +
			"  eval \"$(berth azure-env --export)\"\n" +
			"  python script.py        # MLClient(DefaultAzureCredential(), subscription_id, resource_group, workspace_name)",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			about, err := c.About(cmd.Context())
			if err != nil {
				return err
			}
			e, err := s.azureEnv(c, about)
			if err != nil {
				return err
			}
			switch {
			case export:
				return printExports(s.out, e.Env)
			case s.format.chosen():
				return s.print(e)
			}
			for _, k := range sortedKeys(e.Env) {
				if _, err := fmt.Fprintf(s.out, "%s=%s\n", k, e.Env[k]); err != nil {
					return err
				}
			}
			s.hint("to set them in this shell: eval \"$(berth azure-env --export)\"")
			return nil
		},
	}
	cmd.Flags().BoolVar(&export, "export", false, "print shell commands")
	s.format.flags(cmd)
	return cmd
}

func printExports(w *stream, env map[string]string) error {
	var b strings.Builder
	for _, k := range sortedKeys(env) {
		fmt.Fprintf(&b, "export %s=%s\n", k, quote(env[k]))
	}
	b.WriteString("unset AZUREML_CURRENT_CLOUD\n") // set, it would win over the metadata address
	_, err := w.WriteString(b.String())
	return err
}

func (s *session) azureEnv(c *client.Client, about client.About) (*azureEnv, error) {
	token, bundle := s.cfg.Token, s.cfg.CA
	if c.Local() {
		b, err := os.ReadFile(filepath.Join(s.cfg.Home, "admin.token"))
		if err != nil {
			return nil, berth.Errorf(berth.Denied, "the administrator's token of this home cannot be read: %w", err)
		}
		token, bundle = strings.TrimSpace(string(b)), about.CABundle
	}
	if bundle == "" {
		bundle = filepath.Join(s.cfg.Home, "tls", "ca.pem")
		if _, err := os.Stat(bundle); err != nil {
			bundle = "" // a certificate the system trusts
		}
	}
	base := about.URL
	metadata := base + "/metadata/endpoints?api-version=2019-05-01"
	ws := c.Workspace
	e := &azureEnv{
		MetadataURL: metadata, CABundle: bundle, Token: token,
		Subscription: ws.Subscription, ResourceGroup: ws.Group, Workspace: ws.Name,
		Env: map[string]string{
			"ARM_CLOUD_METADATA_URL": metadata, "IDENTITY_ENDPOINT": base + "/msi/token", "IDENTITY_HEADER": token,
			"AZURE_CONFIG_DIR":                filepath.Join(s.cfg.Home, "azure"),
			"REGISTRY_DISCOVERY_ENDPOINT_URL": base,
			"AZURE_SUBSCRIPTION_ID":           ws.Subscription, "AZURE_RESOURCE_GROUP": ws.Group, "AZUREML_WORKSPACE_NAME": ws.Name,
		},
	}
	if bundle != "" {
		e.Env["REQUESTS_CA_BUNDLE"], e.Env["SSL_CERT_FILE"] = bundle, bundle
	}
	return e, nil
}
