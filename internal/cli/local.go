package cli

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// localHome is the folder, in the home, of the server that has what is made with --local.
const localHome = "local"

// localVerbs are verbs with --local: on this machine, whatever server the command would call, and
// beside the workspace. A server of their own has what they make, which ends with the last of it.
func localVerbs(verbs ...verb) []verb {
	out := slices.Clone(verbs)
	for i, v := range out {
		out[i] = func(s *session, n noun) *cobra.Command { return withLocal(s, n, v(s, n)) }
	}
	return out
}

func withLocal(s *session, n noun, cmd *cobra.Command) *cobra.Command {
	short := "l"
	if cmd.Flags().ShorthandLookup(short) != nil {
		short = ""
	}
	here := cmd.Flags().BoolP("local", short, false, "on this machine only, with processes instead of containers; beside the workspace")
	debugging := new(bool)
	if cmd.Name() == "create" && n.child != "" || cmd.Name() == "update" && n.child != "" {
		debugging = cmd.Flags().Bool("vscode-debug", false, "accepted for compatibility with az")
		cmd.Flags().Lookup("vscode-debug").Hidden = true
	}
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *debugging {
			return usagef("--vscode-debug is not supported: have init() call debugpy.listen and attach to its port")
		}
		if !*here {
			return run(cmd, args)
		}
		cfg, err := s.config()
		if err != nil {
			return err
		}
		s.home, s.here = filepath.Join(cfg.Home, localHome), true
		if err := run(cmd, args); err != nil || cmd.Name() != "delete" || n.child != "" {
			return s.explainLocal(err)
		}
		return s.endLocal(cmd.Context())
	}
	return cmd
}

// explainLocal adds to an error what is different here.
func (s *session) explainLocal(err error) error {
	if berth.CodeOf(err) == berth.NotFound || berth.CodeOf(err) == berth.Invalid && berth.IsMissing(err) {
		return berth.Errorf(berth.CodeOf(err), "%w (with --local: models, code and environments of a workspace are not on this machine; name their files)", err)
	}
	return err
}

// endLocal ends the server of this machine once it has nothing left.
func (s *session) endLocal(ctx context.Context) error {
	c, err := s.open(ctx)
	if err != nil {
		return err
	}
	for _, err := range c.List(ctx, nil, "onlineEndpoints") {
		return err // there is one
	}
	c.Close()
	s.client = nil
	quiet := s.quiet
	s.quiet = true
	defer func() { s.quiet = quiet }()
	return s.stop(ctx, client.Config{Home: s.home})
}
