package cli

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
)

// What a script finds when it calls az and berth answers: the commands that such scripts use
// besides `az ml`, with answers in az's own shapes. They tell of this server; nothing is asked of
// Azure.

// The az and the extension whose grammar and answers are followed.
const (
	azVersion = "2.91.0"
	mlVersion = "2.44.1"
)

// azRoot is the tree of az without ml.
func azRoot(s *session) *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use: "az", Short: "Berth, called as az",
		Long:          "This is Berth, called as az. It supports `az ml` and the other commands that scripts for Azure ML use. Nothing here contacts Azure.",
		SilenceErrors: true, SilenceUsage: true, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case version:
				_, err := fmt.Fprintf(s.out, "%-34s%s\n%-34s%s\n\nExtensions:\n%-34s%s\n", "azure-cli", azVersion, "berth", berth.Version, "ml", mlVersion)
				return err
			case len(args) == 0:
				return cmd.Help()
			}
			return azKnows(cmd, args)
		},
	}
	s.prepareRoot(root)
	root.CompletionOptions.DisableDefaultCmd = true
	root.Flags().BoolVarP(&version, "version", "v", false, "print versions")
	root.AddCommand(&cobra.Command{Use: "ml", Short: "Machine learning", Run: func(*cobra.Command, []string) {}})
	for _, make := range []func(*session) *cobra.Command{
		azAccount, azCloud, azConfig, azConfigure, azDeployment, azExtension, azGroup, azLogin, azLogout, azProvider, azRole, azUpgrade, azVersionCommand,
	} {
		root.AddCommand(make(s))
	}
	return root
}

// azKnows says so where the first word is not a command of ours, whatever flags come after it.
func azKnows(root *cobra.Command, words []string) error {
	if len(words) == 0 || strings.HasPrefix(words[0], "-") || strings.HasPrefix(words[0], cobra.ShellCompRequestCmd) || words[0] == "help" {
		return nil
	}
	var known []string
	for _, c := range root.Commands() {
		if c.Name() == words[0] {
			return nil
		}
		if !c.Hidden && c.Name() != "help" && c.Name() != "completion" {
			known = append(known, c.Name())
		}
	}
	return usagef("'%s' is not known here: this is Berth, not Azure's own az. It knows %s", words[0], strings.Join(known, ", "))
}

// anyFlags makes a group of commands look at the word that is not a command of it before the flags
// that come with it.
var anyFlags = cobra.FParseErrWhitelist{UnknownFlags: true}

// azGroupOf is a group of commands: az WORD ….
func azGroupOf(word, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: word, Short: short, Args: cobra.ArbitraryArgs, RunE: group, FParseErrWhitelist: anyFlags}
	cmd.AddCommand(commands...)
	return cmd
}

// azCommand is a command whose result is printed. The flags are those az's has and that mean
// nothing here; they are taken and left.
func (s *session) azCommand(word, short string, run func(ctx context.Context) (any, error)) *cobra.Command {
	return s.azTable(word, short, nil, run)
}

// azTable is azCommand with the columns of its table.
func (s *session) azTable(word, short string, columns []column, run func(ctx context.Context) (any, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use: word, Short: short, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			v, err := run(cmd.Context())
			if err != nil || v == nil {
				return err
			}
			return s.printAs(v, columns)
		},
	}
	s.format.flags(cmd)
	return cmd
}

// ignored adds flags that are taken and mean nothing here.
func ignored(cmd *cobra.Command, words ...string) *cobra.Command {
	f := cmd.Flags()
	for _, w := range words {
		name, short, _ := strings.Cut(w, "/")
		isSwitch := strings.HasSuffix(name, "?")
		name = strings.TrimSuffix(name, "?")
		if isSwitch {
			f.BoolP(name, short, false, "accepted for compatibility with az; has no effect")
		} else {
			f.StringP(name, short, "", "accepted for compatibility with az; has no effect")
		}
		f.Lookup(name).Hidden = true
	}
	return cmd
}

// refusal is the value of a flag of az's that cannot be served, and would be missed if it were
// left: the reason.
type refusal string

func (r refusal) Set(string) error { return usagef("%s", string(r)) }
func (r refusal) String() string   { return "" }
func (r refusal) Type() string     { return "string" }

func azVersionCommand(s *session) *cobra.Command {
	return s.azCommand("version", "Print versions", func(context.Context) (any, error) {
		return map[string]any{"azure-cli": azVersion, "azure-cli-core": azVersion, "azure-cli-telemetry": "1.1.0", "berth": berth.Version, "extensions": map[string]any{"ml": mlVersion}}, nil
	})
}

func azUpgrade(s *session) *cobra.Command {
	return ignored(s.azCommand("upgrade", "Show how to get a newer version", func(context.Context) (any, error) {
		s.say("this is Berth %s, one program; a newer one takes its place", berth.Version)
		return nil, nil
	}), "yes?/y", "all")
}

// azLogin says who one is; there is nothing to log in to.
func azLogin(s *session) *cobra.Command {
	return ignored(s.azCommand("login", "Show who you are here", func(ctx context.Context) (any, error) {
		s.say("this is Berth: your token, or this machine's own server, is the login")
		return s.accounts(ctx)
	}), "identity?/i", "service-principal?", "username/u", "password/p", "tenant/t", "use-device-code?", "allow-no-subscriptions?", "client-id",
		"object-id", "resource-id", "federated-token", "certificate", "scope", "claims-challenge")
}

func azLogout(s *session) *cobra.Command {
	return ignored(s.azCommand("logout", "Do nothing", func(context.Context) (any, error) {
		s.say("this is Berth: there is no login to end; `berth token revoke` ends a token")
		return nil, nil
	}), "username")
}

// azRole knows that access is by tokens here.
func azRole(s *session) *cobra.Command {
	const why = "this is Berth: the role of a token decides what it may do (`berth token create NAME --role …`), and jobs reach the data of their workspace without further roles"
	list := ignored(s.azCommand("list", "List role assignments", func(context.Context) (any, error) {
		s.say("%s", why)
		return []any{}, nil
	}), "assignee", "role", "scope", "all?", "include-inherited?", "include-groups?", "assignee-object-id")
	create := ignored(s.azCommand("create", "Assign a role", func(context.Context) (any, error) {
		s.warn("nothing was assigned. %s", why)
		return nil, nil
	}), "assignee", "role", "scope", "assignee-object-id", "assignee-principal-type", "description", "name/n", "condition", "condition-version")
	remove := ignored(s.azCommand("delete", "Take a role away", func(context.Context) (any, error) {
		s.warn("nothing was taken away. %s", why)
		return nil, nil
	}), "assignee", "role", "scope", "ids", "yes?/y", "include-inherited?")
	return azGroupOf("role", "Roles", azGroupOf("assignment", "Role assignments", list, create, remove))
}

// azProvider knows that everything there is may be used.
func azProvider(s *session) *cobra.Command {
	var name string
	one := func() any {
		return map[string]any{"namespace": name, "registrationPolicy": "RegistrationFree", "registrationState": "Registered", "resourceTypes": []any{}}
	}
	command := func(word, short string, run func() any) *cobra.Command {
		cmd := ignored(s.azCommand(word, short, func(context.Context) (any, error) {
			if name == "" {
				return nil, usagef("give the provider with --namespace")
			}
			return run(), nil
		}), "wait?", "consent-to-permissions?", "management-group-id/m", "expand")
		cmd.Flags().StringVarP(&name, "namespace", "n", "", "the provider, for example Microsoft.MachineLearningServices")
		return cmd
	}
	nothing := func() any {
		s.say("this is Berth: nothing has to be registered")
		return nil
	}
	return azGroupOf("provider", "Resource providers", command("register", "Do nothing", nothing), command("unregister", "Do nothing", nothing),
		command("show", "Report that it is registered", one))
}

// azExtension knows the one extension there is.
func azExtension(s *session) *cobra.Command {
	ml := map[string]any{"experimental": false, "extensionType": "builtin", "name": "ml", "path": nil, "preview": false, "version": mlVersion}
	var name, source string
	check := func(verb string, v any) func(context.Context) (any, error) {
		return func(context.Context) (any, error) {
			if file := path.Base(source); name == "" && strings.HasPrefix(file, "ml-") {
				name = "ml" // a wheel of it
			}
			switch name {
			case "ml":
				return v, nil
			case "":
				return nil, usagef("give the extension with --name; this is Berth, and it has one, ml")
			}
			if verb == "remove" || verb == "show" {
				return nil, berth.Errorf(berth.Invalid, "The extension %s is not installed. This is Berth; it has one extension, ml", name)
			}
			return nil, berth.Errorf(berth.Unsupported, "No extension found with name '%s'. This is Berth; it has one extension, ml", name)
		}
	}
	command := func(verb, short string, v any) *cobra.Command {
		cmd := ignored(s.azCommand(verb, short, check(verb, v)), "yes?/y", "upgrade?", "version", "allow-preview", "system?", "index", "pip-proxy", "pip-extra-index-urls")
		cmd.Flags().StringVarP(&name, "name", "n", "", "the extension")
		cmd.Flags().StringVarP(&source, "source", "s", "", "ignored: the extension is built in")
		cmd.Flags().Lookup("source").Hidden = true
		return cmd
	}
	list := s.azCommand("list", "List extensions", func(context.Context) (any, error) { return []any{ml}, nil })
	available := s.azCommand("list-available", "List extensions", func(context.Context) (any, error) { return []any{ml}, nil })
	return azGroupOf("extension", "Extensions", list, available,
		command("show", "Show an extension", ml), command("add", "Add an extension", nil), command("update", "Update an extension", nil), command("remove", "Remove an extension", nil))
}

// azCloud knows this server.
func azCloud(s *session) *cobra.Command {
	about := func(ctx context.Context) (map[string]any, error) {
		c, err := s.open(ctx)
		if err != nil {
			return nil, err
		}
		a, err := c.About(ctx)
		return map[string]any{"name": "Berth", "isActive": true, "profile": "latest", "endpoints": map[string]any{"resourceManager": a.URL + "/"}}, err
	}
	return azGroupOf("cloud", "Show the cloud in use",
		s.azCommand("show", "Show it", func(ctx context.Context) (any, error) { return about(ctx) }),
		s.azCommand("list", "List it", func(ctx context.Context) (any, error) {
			one, err := about(ctx)
			return []any{one}, err
		}),
		ignored(s.azCommand("set", "Do nothing", func(context.Context) (any, error) {
			s.say("this is Berth: it talks to its own server only")
			return nil, nil
		}), "name/n"))
}
