package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth/client"
)

// shownFiles is how many files and folders `berth runs show` names.
const shownFiles = 20

func showRunCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show RUN",
		Short: "Show a run: parameters, metrics, tags, datasets, models and artifacts",
		Long: "Shows what a job or another run logged to the workspace's MLflow server. A run is named by its id, by the beginning of one, or as\n" +
			"`last`, your newest job.\n\n" +
			"  berth runs show 3f2a\n" +
			"  berth runs show last -o json",
		Args: oneRun,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			runs, err := s.runsNamed(cmd.Context(), c, names)
			if err != nil {
				return err
			}
			r, err := c.RunDetails(cmd.Context(), runs[0].Info.ID)
			if err != nil {
				return err
			}
			if s.format.chosen() {
				return s.print(r)
			}
			experiments, err := c.ExperimentsOf(cmd.Context(), []client.Run{r.Run})
			if err != nil {
				return err
			}
			_, err = s.out.WriteString(s.runText(r, experiments, time.Now()))
			return err
		},
	}
	s.format.flags(cmd)
	return cmd
}

func oneRun(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("name one job or run; `berth runs` lists them")
	}
	return nil
}

// A runSection is a heading with rows of a name and a value.
type runSection struct {
	title string
	rows  [][2]string
}

func (x *runSection) add(name, value string) {
	x.rows = append(x.rows, [2]string{legible(oneLine(name)), legible(oneLine(value))})
}

// runText is a run for people.
func (s *session) runText(r *client.RunDetails, experiments []client.Experiment, now time.Time) string {
	var b strings.Builder
	for _, x := range runSections(r, experiments, now) {
		if len(x.rows) == 0 {
			continue
		}
		indent := ""
		if x.title != "" {
			fmt.Fprintf(&b, "\n%s\n", s.paint(s.out, bold, x.title))
			indent = "  "
		}
		width := 0
		for _, row := range x.rows {
			width = max(width, len([]rune(row[0])))
		}
		for _, row := range x.rows {
			line := fmt.Sprintf("%s%s%s  %s", indent, row[0], strings.Repeat(" ", width-len([]rune(row[0]))), row[1])
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
	return b.String()
}

// runSections are the parts of a run's description; those without rows are left out.
func runSections(r *client.RunDetails, experiments []client.Experiment, now time.Time) []runSection {
	var about runSection
	about.add("run", r.Info.ID)
	about.add("name", r.Info.Name)
	experiment := r.Info.Experiment
	for _, e := range experiments {
		if e.ID == r.Info.Experiment {
			experiment = e.Name
		}
	}
	about.add("experiment", experiment)
	status := r.Info.Status
	if r.Info.Stage == "deleted" {
		status += ", deleted; `berth runs restore " + r.Info.ID + "` shows it again"
	}
	about.add("status", status)
	if r.Info.User != "" {
		about.add("user", r.Info.User)
	}
	if r.Info.Start > 0 {
		start := time.UnixMilli(r.Info.Start)
		about.add("started", isoTime(r.Info.Start)+", "+ago(now.Sub(start)))
		if r.Info.End > 0 {
			about.add("ended", isoTime(r.Info.End)+", after "+time.UnixMilli(r.Info.End).Sub(start).Round(time.Millisecond).String())
		}
	}
	params, metrics, tags := runSection{title: "parameters"}, runSection{title: "metrics"}, runSection{title: "tags"}
	for _, p := range r.Data.Params {
		params.add(p.Key, p.Value)
	}
	for i, m := range r.Data.Metrics {
		if i == shownMetrics {
			metrics.add("…", fmt.Sprintf("and %d more; `-o json` has all", len(r.Data.Metrics)-i))
			break
		}
		metrics.add(m.Key, fmt.Sprintf("%v  at step %d", m.Value, m.Step))
	}
	for _, t := range r.Data.Tags {
		switch {
		case t.Key == parentTag:
			about.add("parent", t.Value)
		case !strings.HasPrefix(t.Key, "mlflow."): // those that clients write for themselves
			tags.add(t.Key, t.Value)
		}
	}
	inputs, models := runSection{title: "inputs"}, runSection{title: "models"}
	for _, d := range r.Inputs.Datasets {
		text := d.Dataset.Name + " (" + d.Dataset.Digest + ")"
		if use := pairOf(d.Tags, "mlflow.data.context"); use != "" {
			text += " for " + use
		}
		inputs.add("dataset", text)
	}
	for _, m := range r.Inputs.Models {
		inputs.add("model", m.ID)
	}
	for _, m := range r.Models {
		models.add(m.ID, strings.TrimSpace(m.Name+"  "+strings.TrimPrefix(m.Status, "LOGGED_MODEL_")))
	}
	for _, v := range r.Registered {
		text := "registered"
		if len(v.Aliases) > 0 {
			text += " as " + strings.Join(v.Aliases, ", ")
		}
		if stage := v.StageName(); stage != "" {
			text += ", in stage " + stage
		}
		models.add(v.Name+":"+v.Version, text)
	}
	files := runSection{title: "artifacts"}
	for i, f := range r.Artifacts {
		if i == shownFiles {
			files.add("…", fmt.Sprintf("%d more; `berth runs artifacts %s` lists all", len(r.Artifacts)-i, r.Info.ID))
			break
		}
		files.add(fileText(f))
	}
	return []runSection{about, params, metrics, tags, inputs, models, files}
}

// fileText is a file with its size, or a folder with a slash.
func fileText(f client.RunFile) (name, of string) {
	if f.Dir {
		return f.Path + "/", ""
	}
	return f.Path, size(f.Size)
}
