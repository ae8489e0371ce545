package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth/client"
)

func experimentsCommand(s *session) *cobra.Command {
	var deleted bool
	cmd := &cobra.Command{
		Use:   "experiments",
		Short: "List experiments",
		Long:  "Lists the experiments of the workspace's MLflow server, newest first. `berth tracking sizes` shows what they take up.",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			view := client.ViewActive
			if deleted {
				view = client.ViewDeleted
			}
			all, err := c.ListExperiments(cmd.Context(), view)
			switch {
			case err != nil:
				return err
			case s.format.name == "tsv" && s.format.query == "":
				return s.print(names(all, func(e client.Experiment) any { return []any{e.ID, e.Name, isoTime(e.Created), isoTime(e.Updated)} }))
			case s.format.chosen():
				return s.print(all)
			case len(all) == 0:
				s.say("no experiments")
				return nil
			}
			t := table{header: []string{"ID", "NAME", "CREATED", "CHANGED", "TAGS"}, flex: [][]flexible{{{column: 4, least: 8}}, {{column: 1, least: 10}}}}
			now := time.Now()
			for _, e := range all {
				tags := ""
				for _, x := range e.Tags {
					tags += fmt.Sprintf("%s=%s ", oneLine(x.Key), oneLine(x.Value))
				}
				t.add(cell{e.ID, ""}, cell{oneLine(e.Name), ""}, cell{ago(now.Sub(time.UnixMilli(e.Created))), dim},
					cell{ago(now.Sub(time.UnixMilli(e.Updated))), dim}, cell{tags, dim})
			}
			return s.printRows(t)
		},
	}
	cmd.Flags().BoolVar(&deleted, "deleted", false, "list deleted experiments instead")
	s.format.flags(cmd)
	cmd.AddCommand(deleteExperimentsCommand(s), restoreExperimentsCommand(s))
	return cmd
}
