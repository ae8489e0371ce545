package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

func deleteExperimentsCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME…",
		Short: "Delete experiments: hide them and their runs from lists",
		Long: "Hides experiments, given by names or ids, and their runs from lists and searches, and refuses jobs that name them. Metrics and files stay, and\n" +
			"`berth runs experiments restore` shows them again, until they are removed for good: by `berth storage clean --kind metrics`, or by the\n" +
			"server after the days that it keeps deleted runs.\n\n  berth runs experiments delete iris",
		Args:              atLeastOne,
		ValidArgsFunction: s.completeExperiment(client.ViewActive),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := s.eachExperiment(cmd.Context(), args, func(c *client.Client, e client.Experiment) error {
				if e.Stage == experimentDeleted {
					s.say("experiment %s is deleted already", e.Name)
					return nil
				}
				if err := c.DeleteExperiment(cmd.Context(), e.ID); err != nil {
					return err
				}
				s.say("experiment %s deleted with its runs", e.Name)
				return nil
			})
			if err != nil {
				return err
			}
			s.hint("`berth runs experiments restore` shows it again, until `berth storage clean --kind metrics` removes it for good")
			return nil
		},
	}
}

// experimentDeleted is the stage of a deleted experiment.
const experimentDeleted = "deleted"

// eachExperiment does something with experiments, deleted or not, by their names or ids: with none
// where one of them is not there.
func (s *session) eachExperiment(ctx context.Context, names []string, do func(*client.Client, client.Experiment) error) error {
	c, err := s.open(ctx)
	if err != nil {
		return err
	}
	found, err := experimentsNamed(ctx, c, names)
	if err != nil {
		return err
	}
	for _, e := range found {
		if err := do(c, e); err != nil {
			return err
		}
	}
	return nil
}

// experimentsNamed finds experiments, deleted or not, by their names or ids.
func experimentsNamed(ctx context.Context, c *client.Client, names []string) ([]client.Experiment, error) {
	all, err := c.ListExperiments(ctx, client.ViewAll)
	if err != nil {
		return nil, err
	}
	out := make([]client.Experiment, 0, len(names))
	for _, name := range names {
		i := slices.IndexFunc(all, func(e client.Experiment) bool { return e.Name == name })
		if i < 0 { // names come first: one may look like an id
			i = slices.IndexFunc(all, func(e client.Experiment) bool { return e.ID == name })
		}
		if i < 0 {
			return nil, noExperiment(name, all)
		}
		out = append(out, all[i])
	}
	return out, nil
}

func noExperiment(name string, all []client.Experiment) error {
	near := "; `berth runs experiments` lists them"
	known := make([]string, len(all))
	for i, e := range all {
		known[i] = e.Name
	}
	if n := nearest(name, known); n != "" {
		near = fmt.Sprintf("; did you mean %q?", n)
	}
	return berth.Errorf(berth.NotFound, "there is no experiment %q in this workspace%s", name, near)
}

// completeExperiment offers the names of experiments.
func (s *session) completeExperiment(view client.View) completion {
	return s.names(func(cmd *cobra.Command, c *client.Client) (out []string) {
		all, err := c.ListExperiments(cmd.Context(), view)
		if err != nil {
			return nil
		}
		for _, e := range all {
			out = append(out, oneLine(e.Name))
		}
		return out
	})
}
