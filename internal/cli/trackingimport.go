package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth/internal/migrate"
	"github.com/berthml/berth/internal/spec"
)

// importTokenVar has the token of the server that is imported from: on a command line everybody
// would see it.
const importTokenVar = "BERTH_IMPORT_TOKEN"

func trackingCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{Use: "tracking", Short: "Import runs and models from an MLflow server, and show the size of experiments", Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(trackingImportCommand(s), trackingSizesCommand(s))
	return cmd
}

func trackingImportCommand(s *session) *cobra.Command {
	var from string
	var full bool
	cmd := &cobra.Command{
		Use:   "import --from ADDRESS|FOLDER",
		Short: "Import an MLflow server or an mlruns folder",
		Long: "Imports the experiments, runs, metrics, models and files of an MLflow server, or of the folder mlruns that MLflow writes without one, into the\n" +
			"workspace. Runs keep their ids and model versions their numbers. Deleted runs and experiments are not imported. The import can be\n" +
			"stopped and run again: nothing is duplicated, and what has not changed is not read again. What cannot be imported is left behind, named\n" +
			"in the end, and tried again by the next import; the exit code is 1 then.\n\n" +
			"If the server requires a token, set it in " + importTokenVar + ".\n\n" +
			"  berth tracking import --from http://mlflow:5000\n" +
			"  berth tracking import --from ./mlruns",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			if from == "" {
				return usagef("say where from: --from ADDRESS or --from FOLDER")
			}
			source, err := importSource(from)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			c, err := s.open(ctx)
			if err != nil {
				return err
			}
			n, err := migrate.Copy(ctx, source, c, migrate.Options{Full: full, Say: func(format string, args ...any) {
				s.say("%s", spec.Printable(fmt.Sprintf(format, args...))) // the source chose the names
			}})
			if err != nil {
				return err
			}
			if s.format.chosen() {
				if err := s.print(n); err != nil {
					return err
				}
				return leftBehind(n)
			}
			s.say("imported %d experiments, %d runs (%d unchanged), %d points, %d files (%d bytes), %d logged models, %d registered models with %d new versions; %d things were left behind",
				n.Experiments, n.Runs, n.Unchanged, n.Points, n.Files, n.Bytes, n.Logged, n.Models, n.Versions, n.LeftBehind)
			for _, what := range n.NotImported {
				s.say("  %s", spec.Printable(what))
			}
			if more := n.LeftBehind - len(n.NotImported); more > 0 {
				s.say("  and %d more, which are named above", more)
			}
			return leftBehind(n)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "address of an MLflow server, or an mlruns folder")
	cmd.Flags().BoolVar(&full, "full", false, "read runs again even if they have not changed since they were imported")
	s.format.flags(cmd)
	return cmd
}

// leftBehind is the exit of an import: it fails where something was left behind.
func leftBehind(n migrate.Counts) error {
	if n.LeftBehind > 0 {
		return exitError(exitFailed)
	}
	return nil
}

func importSource(from string) (migrate.Source, error) {
	if strings.HasPrefix(from, "http://") || strings.HasPrefix(from, "https://") {
		return migrate.Server(from, os.Getenv(importTokenVar), migrate.Patience)
	}
	return migrate.Folder(strings.TrimPrefix(from, "file://"))
}

func trackingSizesCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sizes",
		Short: "Show how many runs, logged models, points and files each experiment has, and their size",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			list, err := c.ExperimentSizes(cmd.Context())
			switch {
			case err != nil:
				return err
			case s.format.chosen():
				return s.print(list)
			}
			t := table{header: []string{"EXPERIMENT", "RUNS", "MODELS", "POINTS", "POINT BYTES", "FILES", "FILE BYTES"}}
			for _, e := range list {
				t.add(cell{clip(e.Name, 40), ""}, cell{fmt.Sprint(e.Runs), ""}, cell{fmt.Sprint(e.Models), ""}, cell{fmt.Sprint(e.Points), ""}, cell{fmt.Sprint(e.PointBytes), ""},
					cell{fmt.Sprint(e.Files), ""}, cell{fmt.Sprint(e.FileBytes), ""})
			}
			return s.printRows(t)
		},
	}
	s.format.flags(cmd)
	return cmd
}
