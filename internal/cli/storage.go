package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
)

func storageCommand(s *session) *cobra.Command {
	var by []string
	cmd := &cobra.Command{
		Use: "storage", Short: "Show what takes space, and delete the files of old jobs", Args: noArgs,
		Long: "Shows what takes space in the workspace's own storage. Identical content is stored once: OWN counts only what no other line has.\n\n" +
			"  berth storage --by user,kind\n" +
			"  berth storage --by workspace                        in all workspaces\n" +
			"  berth storage clean --older 30d --kind outputs      show what would be deleted; --yes deletes it",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			use, err := c.StorageUse(cmd.Context(), by)
			if err != nil {
				return err
			}
			if s.format.chosen() {
				return s.print(use)
			}
			return s.printStorage(use)
		},
	}
	cmd.Flags().StringSliceVar(&by, "by", []string{"kind"}, "what to group by: kind, user, job, age, workspace")
	s.format.flags(cmd)
	cmd.AddCommand(storageClean(s))
	return cmd
}

func (s *session) printStorage(use *berth.StorageUse) error {
	var t table
	for _, k := range append(slices.Clone(use.By), "files", "size", "own") {
		t.header = append(t.header, strings.ToUpper(k))
	}
	row := func(l berth.StorageLine, empty string) {
		var cells []cell
		for _, k := range use.By {
			text := map[string]string{"kind": l.Kind, "user": l.User, "job": l.Job, "age": l.Age, "workspace": l.Workspace}[k]
			cells = append(cells, cell{text: cmp.Or(text, empty)})
			if empty == "total" {
				empty = " "
			}
		}
		t.add(append(cells, cell{text: strconv.FormatInt(l.Files, 10)}, cell{text: size(l.Bytes)}, cell{text: size(l.OwnBytes)})...)
	}
	for _, l := range use.Groups {
		row(l, "-")
	}
	if len(use.By) > 0 {
		row(use.Total, "total")
	}
	if err := s.printRows(t); err != nil || use.Limit == 0 {
		return err
	}
	s.say("%s of the limit of %s, %d %%", size(use.Total.Bytes), size(use.Limit), 100*use.Total.Bytes/use.Limit)
	return nil
}

func storageClean(s *session) *cobra.Command {
	var kinds []string
	var older string
	var everyone, yes bool
	cmd := &cobra.Command{
		Use: "clean --older TIME", Short: "Delete the files of jobs that ended long ago; without --yes, only show them", Args: noArgs,
		Long: "Deletes files of jobs that ended before the given time: their outputs, artifacts or logs. The jobs are still listed.\n" +
			"Files of registered data and models are kept, and so are files used by a job that has not ended, and all files of jobs with the\n" +
			"tag " + berth.KeepTag + ": \"true\". With --kind code, models or environments, deletes old versions that nothing refers to, with their files.\n" +
			"With --kind metrics, permanently removes runs and logged models that were deleted before the given time, with their points and files.\n" +
			"The space is freed within a day.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			for _, k := range kinds {
				if !slices.Contains(berth.StorageKinds, k) {
					return usagef("%q cannot be deleted by age; kinds are %s", k, strings.Join(berth.StorageKinds, ", "))
				}
			}
			if older == "" {
				return usagef("give how old it must be with --older, such as 30d")
			}
			before, err := moment("--older", older, time.Now())
			if err != nil {
				return err
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			got, err := c.CleanStorage(cmd.Context(), berth.CleanStorage{Kinds: kinds, Before: before, Everyone: everyone, DryRun: !yes})
			if err != nil {
				return err
			}
			if s.format.chosen() {
				return s.print(got)
			}
			word := "deleted"
			if got.DryRun {
				word = "would be deleted"
			}
			fmt.Fprintf(s.out, "%d %s of %s, %s, %s\n", got.Files, plural(got.Files, "file"), cleanedOf(*got, kinds), size(got.Bytes), word)
			for _, k := range got.Kept {
				if k.Runs > 0 {
					fmt.Fprintf(s.out, "%d deleted %s kept: %s\n", k.Runs, plural(k.Runs, "run"), k.Reason)
					continue
				}
				if k.Versions > 0 {
					fmt.Fprintf(s.out, "%d %s kept: %s\n", k.Versions, plural(k.Versions, "version"), k.Reason)
					continue
				}
				fmt.Fprintf(s.out, "%d %s of %d %s kept: %s\n", k.Files, plural(k.Files, "file"), k.Jobs, plural(k.Jobs, "job"), k.Reason)
			}
			if got.DryRun && (got.Files > 0 || got.Versions > 0 || got.Runs > 0) {
				s.hint("nothing was deleted yet: --yes deletes it")
			}
			if got.DryRun && got.Runs > 0 {
				s.hint("`berth runs --deleted` lists deleted runs; what is removed cannot be restored")
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&kinds, "kind", []string{berth.StorageOutputs}, "what to delete: "+strings.Join(berth.StorageKinds, ", "))
	f.StringVar(&older, "older", "", "jobs that ended longer ago than this, such as 12h, 30d or 8w, or before this date")
	f.BoolVar(&everyone, "everyone", false, "for the jobs of all users (administrators only; default: your own)")
	f.BoolVarP(&yes, "yes", "y", false, "delete it")
	s.format.flags(cmd)
	return cmd
}

// cleanedOf says what the files that were deleted belonged to: jobs, versions and runs, as far as
// they were asked for.
func cleanedOf(got berth.CleanedStorage, kinds []string) string {
	var of []string
	add := func(n int64, word string, asked bool) {
		if n > 0 || asked {
			of = append(of, count(n, word))
		}
	}
	runs := slices.Contains(kinds, berth.StorageMetrics)
	versions := slices.ContainsFunc(kinds, func(k string) bool {
		return k == berth.StorageCode || k == berth.StorageModels || k == berth.StorageEnvironments
	})
	jobs := slices.ContainsFunc(kinds, func(k string) bool {
		return k == berth.StorageOutputs || k == berth.StorageArtifacts || k == berth.StorageLogs
	})
	add(got.Jobs, "job", jobs)
	add(got.Versions, "version", versions)
	add(got.Runs, "deleted run", runs)
	return strings.Join(of, " and ")
}
