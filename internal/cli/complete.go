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
	endpoints, _ := s.listed("", "onlineEndpoints")(cmd, args, word)
	jobs, directive := s.completeJobs([]berth.JobStatus{berth.Running})(cmd, args, word)
	return slices.Concat(s.instances(cmd, args, word), endpoints, jobs), directive
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

// completeTree adds completion to the flags and arguments of a tree of commands that name what a
// server has, or one of a few words.
func (s *session) completeTree(cmd *cobra.Command) {
	path := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	flags := map[string]completion{
		"on": s.completeCompute, "size": s.completeSize, "endpoint-name": s.listed("", "onlineEndpoints"),
		"output": words("json", "jsonc", "yaml", "yamlc", "table", "tsv", "none"),
	}
	switch path {
	case "ps", "job list":
		flags["status"] = words(append([]string{"active"}, berth.StatusTexts(jobStatuses())...)...)
		flags["user"], flags["experiment"] = s.completeUser, s.completeExperiment(client.ViewActive)
	case "run":
		flags["experiment"] = s.completeExperiment(client.ViewActive)
	case "compute create":
		flags["type"] = words("amlcompute", "computeinstance")
	case "cancel", "stop", "job cancel":
		cmd.ValidArgsFunction = s.completeJobs(berth.ActiveStatuses)
		flags["name"], flags["experiment-name"] = cmd.ValidArgsFunction, s.completeExperiment(client.ViewActive)
	case "diff", "metrics", "download", "job download":
		cmd.ValidArgsFunction = s.completeJobs(nil)
	case "runs show", "runs artifacts", "runs download", "runs delete":
		cmd.ValidArgsFunction = s.completeJob
	case "user rotate", "user remove":
		cmd.ValidArgsFunction = first(s.completeToken(func(t client.Token) string { return t.User }))
	case "token revoke":
		cmd.ValidArgsFunction = first(s.completeToken(func(t client.Token) string { return t.Name }))
	case "ssh":
		cmd.ValidArgsFunction = first(s.completeShell)
	}
	if strings.HasPrefix(path, "endpoint ") && strings.Contains(cmd.Use, " ") && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = first(flags["endpoint-name"])
	}
	for flag, complete := range flags {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, complete) // one that is there; the first to say keeps it
		}
	}
	for _, sub := range cmd.Commands() {
		s.completeTree(sub)
	}
}

// words offers a few words.
func words(all ...string) completion {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// completeJobs offers the names of late jobs with these statuses, as many as somebody wants.
func (s *session) completeJobs(statuses []berth.JobStatus) completion {
	return s.names(func(cmd *cobra.Command, c *client.Client) (out []string) {
		for j, err := range c.Jobs(cmd.Context(), client.JobQuery{Max: offered, Status: statuses}) {
			if err != nil {
				break
			}
			out = append(out, j.Name)
		}
		return out
	})
}

// completeUser offers those who made late jobs.
func (s *session) completeUser(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	return s.names(func(cmd *cobra.Command, c *client.Client) (out []string) {
		for j, err := range c.Jobs(cmd.Context(), client.JobQuery{Max: offered}) {
			if err != nil {
				break
			}
			if user := j.SystemData.CreatedBy; !slices.Contains(out, user) {
				out = append(out, user)
			}
		}
		return out
	})(cmd, args, word)
}

// completeToken offers what tokens are called, or whose they are.
func (s *session) completeToken(of func(client.Token) string) completion {
	return s.names(func(cmd *cobra.Command, c *client.Client) (out []string) {
		tokens, err := c.Tokens(cmd.Context())
		if err != nil {
			return nil
		}
		for _, t := range tokens {
			if name := of(t); !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
		return out
	})
}

// completeShell offers where `berth ssh` goes: running jobs and instances.
func (s *session) completeShell(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	jobs, directive := s.completeJobs([]berth.JobStatus{berth.Running})(cmd, args, word)
	return append(s.instances(cmd, args, word), jobs...), directive
}

// instances are the compute instances there are.
func (s *session) instances(cmd *cobra.Command, args []string, word string) []string {
	computes, _ := s.listed("computeType", "computes")(cmd, args, word)
	return slices.DeleteFunc(computes, func(name string) bool { return !strings.HasSuffix(name, "\t"+berth.TypeInstance) })
}
