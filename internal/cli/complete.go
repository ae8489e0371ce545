package cli

import (
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// completion offers words to a shell.
type completion = func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective)

// names offers what a running server knows. None is started for that, and an error offers nothing.
func (s *session) names(find func(cmd *cobra.Command, c *client.Client) []string) completion {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		s.noStart = true
		c, err := s.open(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return find(cmd, c), cobra.ShellCompDirectiveNoFileComp
	}
}

// first offers words for the first argument only.
func first(complete completion) completion {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, word)
	}
}

// listed are the names of a collection, with a word about each.
func (s *session) listed(about string, segments ...string) completion {
	return s.names(func(cmd *cobra.Command, c *client.Client) (out []string) {
		for d, err := range c.List(cmd.Context(), url.Values{}, segments...) {
			if err != nil {
				break
			}
			word, _ := d.Properties()[about].(string)
			out = append(out, described(d.Name(), word))
		}
		return out
	})
}

func described(name, word string) string {
	if word == "" {
		return name
	}
	return name + "\t" + word
}

// completeCompute offers the names of computes.
func (s *session) completeCompute(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	names, directive := s.listed("computeType", "computes")(cmd, args, word)
	// It is offered also where no server answers.
	names = slices.DeleteFunc(names, func(n string) bool {
		name, _, _ := strings.Cut(n, "\t")
		return berth.IsLocal(name)
	})
	return append([]string{described(berth.LocalCompute, "the server's machine")}, names...), directive
}

// completeSize offers the names of sizes.
func (s *session) completeSize(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	return s.names(func(cmd *cobra.Command, c *client.Client) (out []string) {
		all, err := c.Sizes(cmd.Context(), client.SizeQuery{})
		if err != nil {
			return nil
		}
		for _, z := range all {
			out = append(out, z.Name)
		}
		return out
	})(cmd, args, word)
}

// completeOpen offers what `berth open` opens.
func (s *session) completeOpen(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	instances, _ := s.listed("computeType", "computes")(cmd, args, word)
	endpoints, _ := s.listed("", "onlineEndpoints")(cmd, args, word)
	var out []string
	for _, name := range instances {
		if strings.HasSuffix(name, "\t"+berth.TypeInstance) {
			out = append(out, name)
		}
	}
	return append(out, endpoints...), cobra.ShellCompDirectiveNoFileComp
}

// completeNoun offers the names of a noun's resources.
func (s *session) completeNoun(n noun) completion {
	switch {
	case n.word == "job":
		return s.completeJob
	case n.word == "workspace":
		return s.names(func(cmd *cobra.Command, c *client.Client) (out []string) {
			for d, err := range c.Workspaces(cmd.Context(), true) {
				if err != nil {
					break
				}
				out = append(out, d.Name())
			}
			return out
		})
	case n.child != "":
		return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			endpoint, _ := cmd.Flags().GetString("endpoint-name")
			if endpoint == "" {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return s.listed("", n.collection, endpoint, n.child)(cmd, args, word)
		}
	case n.word == "compute":
		return s.listed("computeType", "computes")
	}
	return s.listed("", n.collection)
}

// completeFlags adds completion to the flags of a tree of commands that name what a server has.
func (s *session) completeFlags(cmd *cobra.Command) {
	for flag, complete := range map[string]completion{"on": s.completeCompute, "size": s.completeSize, "endpoint-name": s.listed("", "onlineEndpoints")} {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, complete) // of a flag that is there
		}
	}
	for _, sub := range cmd.Commands() {
		s.completeFlags(sub)
	}
}
