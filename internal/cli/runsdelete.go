package cli

import "github.com/spf13/cobra"

func deleteRunsCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "delete RUN…",
		Short: "Delete runs: hide them from lists",
		Long: "Hides runs from lists and searches. Their metrics and files stay, and `berth runs restore` shows them again, until they are removed\n" +
			"for good: by `berth storage clean --kind metrics`, or by the server after the days that it keeps deleted runs.\n\n  berth runs delete 3f2a",
		Args: atLeastOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			runs, err := s.runsNamed(cmd.Context(), c, args)
			if err != nil {
				return err
			}
			for _, r := range runs {
				if err := c.DeleteRun(cmd.Context(), r.Info.ID); err != nil {
					return err
				}
				s.say("run %s deleted", r.Info.ID)
			}
			s.hint("`berth runs restore` shows it again, until `berth storage clean --kind metrics` removes it for good")
			return nil
		},
	}
}
