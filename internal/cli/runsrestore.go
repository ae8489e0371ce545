package cli

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/berthml/berth/client"
)

func restoreRunsCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "restore RUN…",
		Short: "Show deleted runs in lists again",
		Long:  "Shows deleted runs in lists again, as long as they have not been removed for good.\n\n  berth runs --deleted\n  berth runs restore 3f2a",
		Args:  atLeastOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			runs, err := s.runsNamed(cmd.Context(), c, args)
			if err != nil {
				return err
			}
			gone, err := c.ListExperiments(cmd.Context(), client.ViewDeleted)
			if err != nil {
				return err
			}
			for _, r := range runs {
				if err := c.RestoreRun(cmd.Context(), r.Info.ID); err != nil {
					return err
				}
				s.say("run %s restored", r.Info.ID)
				if i := slices.IndexFunc(gone, func(e client.Experiment) bool { return e.ID == r.Info.Experiment }); i >= 0 {
					s.hint("no list has it while its experiment is deleted: `berth runs experiments restore %s`", quote(gone[i].Name))
				}
			}
			return nil
		},
	}
}
