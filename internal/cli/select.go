package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// lookBack is how many jobs a prefix is looked for in.
const lookBack = 5000

// offered is how many jobs a shell offers.
const offered = 50

// job finds a job by its name, by a prefix only it has, or as `last`, the newest that the caller
// created.
func (s *session) job(ctx context.Context, c *client.Client, text string) (*client.Job, error) {
	return s.findJob(ctx, c, text, false)
}

// findJob is job; with mine a prefix means the caller's own jobs only, so that nothing of somebody
// else is changed by accident.
func (s *session) findJob(ctx context.Context, c *client.Client, text string, mine bool) (*client.Job, error) {
	if text == "last" {
		return s.lastJob(ctx, c)
	}
	if text == "" {
		return nil, usagef("give the name of a job, or `last`")
	}
	j, err := c.Job(ctx, text)
	if berth.CodeOf(err) != berth.NotFound {
		return j, err
	}
	var found []string
	for candidate, listErr := range c.Jobs(ctx, client.JobQuery{View: "All", Mine: mine, Max: lookBack}) {
		if listErr != nil {
			return nil, listErr
		}
		if strings.HasPrefix(candidate.Name, text) {
			found = append(found, candidate.Name)
		}
	}
	switch len(found) {
	case 0:
		if mine {
			return nil, berth.Errorf(berth.NotFound, "%w, and none of your jobs begins with %q; give the whole name of a job of somebody else", err, text)
		}
		return nil, err
	case 1:
		return c.Job(ctx, found[0])
	}
	return nil, berth.Errorf(berth.Invalid, "%d jobs begin with %q: %s; give more of the name", len(found), text, strings.Join(found[:min(5, len(found))], ", "))
}

// completeJob offers the names of late jobs to a shell; where no server runs there are none, and
// none is started.
func (s *session) completeJob(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	s.noStart = true
	names := []string{"last"}
	if c, err := s.open(cmd.Context()); err == nil {
		for j, err := range c.Jobs(cmd.Context(), client.JobQuery{Max: offered}) {
			if err != nil {
				break
			}
			names = append(names, j.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

func (s *session) lastJob(ctx context.Context, c *client.Client) (*client.Job, error) {
	for j, err := range c.Jobs(ctx, client.JobQuery{View: "All", Mine: true, Max: 1}) {
		if err != nil {
			return nil, err
		}
		return c.Job(ctx, j.Name)
	}
	return nil, berth.Errorf(berth.NotFound, "you have no job in workspace %s; `berth run -- echo hello` makes one, `berth ps -a` shows those of others", c.Workspace.Name)
}
