package cli

import (
	"github.com/spf13/cobra"

	"github.com/berthml/berth/client"
)

func restoreExperimentsCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "restore NAME…",
		Short: "Show deleted experiments and their runs in lists again",
		Long: "Shows deleted experiments in lists again with all of their runs, also those that were deleted before by themselves, as long as they\n" +
			"have not been removed for good.\n\n  berth runs experiments --deleted\n  berth runs experiments restore iris",
		Args:              atLeastOne,
		ValidArgsFunction: s.completeExperiment(client.ViewDeleted),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.eachExperiment(cmd.Context(), args, func(c *client.Client, e client.Experiment) error {
				if e.Stage != experimentDeleted {
					s.say("experiment %s is not deleted", e.Name)
					return nil
				}
				if err := c.RestoreExperiment(cmd.Context(), e.ID); err != nil {
					return err
				}
				s.say("experiment %s restored with its runs", e.Name)
				return nil
			})
		},
	}
}
