package cli

import (
	"github.com/spf13/cobra"

	"github.com/berthml/berth/client"
)

func runArtifactsCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "artifacts RUN [FOLDER]",
		Short: "List the artifacts of a run",
		Long: "Lists the files of a job or another run, with those in folders, or those in one folder.\n\n" +
			"  berth runs artifacts 3f2a\n" +
			"  berth runs artifacts 3f2a model",
		Args: runAndPath,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			runs, err := s.runsNamed(cmd.Context(), c, args[:1])
			if err != nil {
				return err
			}
			id, folder := runs[0].Info.ID, pathOf(args)
			files, err := c.AllRunFiles(cmd.Context(), id, folder)
			switch {
			case err != nil:
				return err
			case s.format.name == "tsv" && s.format.query == "":
				return s.print(names(files, func(f client.RunFile) any { return []any{f.Path, f.Size} }))
			case s.format.chosen():
				return s.print(append([]client.RunFile{}, files...))
			case len(files) == 0:
				s.say("run %s has no artifacts", id)
				return nil
			}
			t := table{header: []string{"FILE", "SIZE"}, flex: [][]flexible{{{column: 0, least: 20}}}}
			for _, f := range files {
				t.add(cell{oneLine(f.Path), ""}, cell{size(f.Size), dim})
			}
			return s.printRows(t)
		},
	}
	s.format.flags(cmd)
	return cmd
}

func runAndPath(_ *cobra.Command, args []string) error {
	if len(args) < 1 || len(args) > 2 {
		return usagef("name one job or run, and a path of its artifacts if you like; `berth runs` lists runs")
	}
	return nil
}

// pathOf is the path of artifacts in the arguments of a command, "" for all of them.
func pathOf(args []string) string {
	if len(args) > 1 {
		return args[1]
	}
	return ""
}
