package cli

import "github.com/spf13/cobra"

func downloadRunCommand(s *session) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "download RUN [PATH]",
		Short: "Copy the artifacts of a run here",
		Long: "Copies the files of a job or another run, or a folder or file of them.\n\n" +
			"  berth runs download 3f2a                  # into ./artifacts\n" +
			"  berth runs download 3f2a model -p model",
		Args: runAndPath,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			c, err := s.open(ctx)
			if err != nil {
				return err
			}
			runs, err := s.runsNamed(ctx, c, args[:1])
			if err != nil {
				return err
			}
			line := s.newProgress()
			got, err := c.DownloadRun(ctx, runs[0].Info.ID, pathOf(args), dir, func(done, total int64) {
				line.set("downloading artifacts: %s of %s", size(done), size(total))
			})
			line.stop()
			if err != nil {
				return err
			}
			s.say("%s, %s, in %s", count(got.Files, "file"), size(got.Bytes), dir)
			return s.leftFiles(got)
		},
	}
	cmd.Flags().StringVarP(&dir, "download-path", "p", "artifacts", "folder to copy to")
	return cmd
}
