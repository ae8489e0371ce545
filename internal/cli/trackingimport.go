package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
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
			"stopped and run again: nothing is duplicated, and what has not changed is not read again. What cannot be imported is named, left\n" +
			"behind, and tried again by the next import; the exit code is 1 then. After Ctrl-C it is 130.\n\n" +
			"If the server requires a token, set it in " + importTokenVar + ". If it is another Berth server, with a certificate of its own,\n" +
			"set BERTH_CA to a copy of the file tls/ca.pem of its home; BERTH_CA may have several certificates.\n\n" +
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
			source, err := s.importSource(from)
			var wrong *migrate.NoSource
			if errors.As(err, &wrong) {
				return usagef("--from %s: %v", withoutUser(from), wrong)
			} else if err != nil {
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
			stopped := interrupted(ctx, err)
			if err != nil && !stopped {
				return err
			}
			if s.format.chosen() {
				if err := s.print(n); err != nil {
					return err
				}
			}
			switch {
			case stopped:
				s.say("interrupted; imported so far: %s\nrun the same command again to go on", summary(n))
				return exitError(exitInterrupted)
			case !s.format.chosen():
				s.say("imported %s", summary(n))
			}
			return leftBehind(n)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "address of an MLflow server (http:// or https://), or an mlruns folder, or the folder that has one")
	cmd.Flags().BoolVar(&full, "full", false, "read runs again even if they have not changed since they were imported")
	s.format.flags(cmd)
	return cmd
}

// summary is what an import brought.
func summary(n migrate.Counts) string {
	said := ""
	if n.LeftBehind > 0 {
		said = " and named above"
	}
	return fmt.Sprintf("%s, %s (%d unchanged), %s, %s (%s), %s, %s with %s; %s left behind%s",
		count(n.Experiments, "experiment"), count(n.Runs, "run"), n.Unchanged, count(n.Points, "point"), count(n.Files, "file"), count(n.Bytes, "byte"),
		count(n.Logged, "logged model"), count(n.Models, "registered model"), count(n.Versions, "new version"), wereLeft(n.LeftBehind), said)
}

// count is a number with what it counts.
func count[N int | int64](n N, word string) string { return fmt.Sprintf("%d %s", n, plural(n, word)) }

func wereLeft(n int) string {
	if n == 1 {
		return "1 thing was"
	}
	return fmt.Sprintf("%d things were", n)
}

// leftBehind is the exit of an import: it fails where something was left behind.
func leftBehind(n migrate.Counts) error {
	if n.LeftBehind > 0 {
		return exitError(exitFailed)
	}
	return nil
}

func (s *session) importSource(from string) (migrate.Source, error) {
	if strings.HasPrefix(from, "http://") || strings.HasPrefix(from, "https://") {
		cfg, err := s.config()
		if err != nil {
			return nil, err
		}
		// After `berth login`, cfg.CA is that server's, and BERTH_CA may be the source's.
		roots, err := cfg.RootsOfOthers(cfg.CA, os.Getenv("BERTH_CA"))
		if err != nil {
			return nil, err
		}
		return migrate.Server(from, os.Getenv(importTokenVar), roots, migrate.Patience)
	}
	dir := strings.TrimPrefix(from, "file://")
	if scheme, _, ok := strings.Cut(dir, "://"); ok && scheme != "" && !strings.HasPrefix(dir, "sqlite:///") {
		return nil, usagef("--from %s: the address of a server must begin with http:// or https://, not %s://", withoutUser(dir), scheme)
	}
	_, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) && isHostPort(dir) {
		return nil, usagef("--from %s: the address of a server must begin with http:// or https://", withoutUser(dir))
	}
	below := filepath.Join(dir, "mlruns")
	if info, err := os.Stat(below); err == nil && info.IsDir() {
		dir = below
	}
	return migrate.Folder(dir)
}

// isHostPort reports whether a text looks like the address of a server without its scheme.
func isHostPort(text string) bool {
	host, _, _ := strings.Cut(text, "/")
	_, port, ok := strings.Cut(host[strings.LastIndex(host, "@")+1:], ":")
	_, err := strconv.ParseUint(port, 10, 16)
	return ok && err == nil || strings.Contains(host, "@")
}

// withoutUser is an address without what may be a password in it or after it; a path is itself.
func withoutUser(from string) string {
	scheme, rest, ok := strings.Cut(from, "://")
	if ok {
		scheme += "://"
	} else {
		scheme, rest = "", from
	}
	if at := strings.LastIndex(rest, "@"); at >= 0 && (ok || isHostPort(from)) {
		rest = "…@" + rest[at+1:]
	}
	if end := strings.IndexAny(rest, "?#"); ok && end >= 0 {
		rest = rest[:end+1] + "…"
	}
	return scheme + rest
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
				name := oneLine(e.Name)
				if s.out.tty {
					name = clip(name, 40)
				}
				t.add(cell{name, ""}, cell{fmt.Sprint(e.Runs), ""}, cell{fmt.Sprint(e.Models), ""}, cell{fmt.Sprint(e.Points), ""}, cell{size(e.PointBytes), ""},
					cell{fmt.Sprint(e.Files), ""}, cell{size(e.FileBytes), ""})
			}
			return s.printRows(t)
		},
	}
	s.format.flags(cmd)
	return cmd
}
