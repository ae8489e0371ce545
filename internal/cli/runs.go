package cli

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// runFlags choose runs.
type runFlags struct {
	client.RunQuery
	experiment string
	all        bool // also in deleted experiments
}

func (q *runFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&q.Filter, "filter", "", "conditions in MLflow's filter syntax, joined by AND")
	f.StringArrayVar(&q.OrderBy, "order-by", nil, "what to sort by, with ASC or DESC; may be repeated")
	f.StringVar(&q.experiment, "experiment", "", "only runs of this experiment")
}

// find finds the experiments that are looked through.
func (q *runFlags) find(ctx context.Context, c *client.Client) error {
	if q.experiment == "" {
		if q.Within = client.ViewActive; q.all {
			q.Within = client.ViewAll
		}
		return nil
	}
	e, err := c.ExperimentNamed(ctx, q.experiment)
	switch {
	case berth.CodeOf(err) == berth.NotFound:
		all, err := c.ListExperiments(ctx, client.ViewAll)
		if err != nil {
			return err
		}
		return noExperiment(q.experiment, all)
	case err != nil:
		return err
	case e.Stage == experimentDeleted && !q.all:
		return berth.Errorf(berth.NotFound, "experiment %s was deleted; `berth runs --deleted --experiment %s` lists its runs, and `berth runs experiments restore %s` brings them back",
			e.Name, quote(e.Name), quote(e.Name))
	}
	q.Experiments = []string{e.ID}
	return nil
}

// namesOfExperiments adds the names of the experiments that runs are in, by their ids.
func namesOfExperiments(ctx context.Context, c *client.Client, runs []client.Run, names map[string]string) error {
	found, err := c.ExperimentsOf(ctx, runs)
	for _, e := range found {
		names[e.ID] = e.Name
	}
	return err
}

func runsCommand(s *session) *cobra.Command {
	q := runFlags{}
	var columns []string
	var deleted bool
	cmd := &cobra.Command{
		Use:   "runs [--filter TEXT] [--order-by FIELD] [--columns LIST]",
		Short: "List the runs of jobs and notebooks with their metrics and parameters",
		Long: "Lists the runs of the workspace's MLflow server, newest first. Filters and orders are MLflow's.\n\n" +
			"  berth runs --filter \"metrics.acc > 0.9 AND params.model = 'tree'\"\n" +
			"  berth runs --order-by 'metrics.loss ASC' -r 1      # the best one\n" +
			"  berth runs --columns run,status,metrics.acc,params.lr\n" +
			"  berth runs show RUN\n" +
			"  berth runs compare RUN RUN\n" +
			"  berth runs download RUN model\n" +
			"  berth runs export > runs.csv",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("`berth runs` lists runs; for one run: `berth runs show %s`", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f := strings.ToLower(s.format.name); f == "csv" || f == "jsonl" {
				return usagef("-o %s: to write runs with all of their values, use `berth runs export --format %s`", f, f)
			}
			if err := s.format.check(); err != nil {
				return err
			}
			if deleted {
				q.View, q.all = client.ViewDeleted, true
			}
			if q.Limit < 0 {
				return usagef("--max-results %d: give how many runs to show, or 0 for all", q.Limit)
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			names := map[string]string{}
			chosen, err := runColumns(columns, names)
			if err != nil {
				return err
			}
			if err := q.find(cmd.Context(), c); err != nil {
				return err
			}
			switch {
			case len(chosen) > 0:
				q.MetricKeys = metricsOfColumns(columns)
			case !s.format.chosen():
				most := shownValues
				q.MaxMetrics = &most
			}
			shown := q.Limit
			if !cmd.Flags().Changed("max-results") {
				q.Limit++ // to know whether there are more
			}
			runs, err := c.Runs(cmd.Context(), q.RunQuery)
			if err != nil {
				return err
			}
			if shown > 0 && len(runs) > shown {
				runs = runs[:shown]
				defer s.hint("only the first %d runs are shown; -r 0 shows all", shown)
			}
			if err := namesOfExperiments(cmd.Context(), c, runs, names); err != nil {
				return err
			}
			switch {
			case len(chosen) > 0 && (s.format.chosen() || len(runs) > 0):
				s.sayLacking(runs, chosen)
				return s.printRunColumns(runs, chosen)
			case s.format.name == "tsv" && s.format.query == "": // runs have no values of their own, only objects
				return s.print(runRows(runs, names))
			case s.format.chosen():
				return s.print(runs)
			case len(runs) == 0 && q.Filter != "":
				s.say("no runs match the filter; one with a metric, parameter or tag that no run has matches none")
				return nil
			case len(runs) == 0:
				s.say("no runs")
				return nil
			}
			return s.printRuns(runs, names, time.Now())
		},
	}
	q.flags(cmd)
	cmd.Flags().StringSliceVar(&columns, "columns", nil, "what to show, separated by commas: "+strings.Join(columnNames(plainColumns(nil)), ", ")+", metrics.KEY, params.KEY, tags.KEY")
	cmd.Flags().BoolVar(&deleted, "deleted", false, "list deleted runs instead, also those of deleted experiments")
	cmd.Flags().IntVarP(&q.Limit, "max-results", "r", 50, "at most this many; 0 is all")
	s.format.flags(cmd)
	cmd.AddCommand(
		showRunCommand(s), compareRunsCommand(s), exportRunsCommand(s), runArtifactsCommand(s), downloadRunCommand(s),
		deleteRunsCommand(s), restoreRunsCommand(s), experimentsCommand(s),
	)
	return cmd
}

var runStatuses = map[string]berth.JobStatus{"FINISHED": berth.Completed, "FAILED": berth.Failed, "KILLED": berth.Canceled, "RUNNING": berth.Running}

// runRows are runs as rows of values: id, name, status, experiment, start, metrics and parameters.
func runRows(runs []client.Run, names map[string]string) []any {
	rows := make([]any, 0, len(runs))
	for _, r := range runs {
		metrics, params := runValues(r, -1, func(v any) string { return fmt.Sprint(v) })
		rows = append(rows, []any{
			r.Info.ID, r.Info.Name, r.Info.Status, names[r.Info.Experiment], time.UnixMilli(r.Info.Start).UTC().Format(time.RFC3339), metrics, params,
		})
	}
	return rows
}

// rounded is the value of a metric with five digits.
func rounded(v any) string {
	text := fmt.Sprint(v)
	if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsInf(f, 0) {
		return number(f)
	}
	return text
}

// shownValues is how many metrics and parameters of a run a table of runs shows: one run may have
// hundreds of thousands, and every line of the table is as wide as the widest.
const shownValues = 20

// runValues are the metrics and the parameters of a run, each on one line: at most so many of each,
// or all where most is -1.
func runValues(r client.Run, most int, show func(metric any) string) (metrics, params string) {
	list := func(n, all int, value func(i int) string) string {
		shown := n
		if most >= 0 {
			shown = min(n, most)
		}
		var values []string
		for i := range shown {
			values = append(values, value(i))
		}
		if more := max(n, all) - shown; more > 0 {
			values = append(values, fmt.Sprintf("… and %d more", more))
		}
		return strings.Join(values, " ")
	}
	d := r.Data
	return list(len(d.Metrics), d.AllMetrics, func(i int) string { return oneLine(d.Metrics[i].Key) + "=" + show(d.Metrics[i].Value) }),
		list(len(d.Params), 0, func(i int) string { return oneLine(d.Params[i].Key) + "=" + oneLine(d.Params[i].Value) })
}

func (s *session) printRuns(runs []client.Run, names map[string]string, now time.Time) error {
	ids := s.shownIDs(runs)
	t := table{
		header: []string{"RUN", "PARENT", "NAME", "STATUS", "EXPERIMENT", "STARTED", "METRICS", "PARAMETERS"},
		flex:   [][]flexible{{{column: 4, least: 6}, {column: 6, least: 8}, {column: 7, least: 8}}, {{column: 0, least: 8}, {column: 1, least: 8}, {column: 2, least: 8}}},
	}
	named, nested := !s.out.tty, false
	for i, r := range runs {
		metrics, params := runValues(r, shownValues, rounded)
		name := r.Info.Name
		if s.out.tty && name == r.Info.ID {
			name = ""
		}
		named = named || name != ""
		started := ""
		if r.Info.Start > 0 {
			started = ago(now.Sub(time.UnixMilli(r.Info.Start)))
		}
		parent := pairOf(r.Data.Tags, parentTag)
		nested = nested || parent != ""
		t.add(cell{ids[i], ""}, cell{s.shownParent(parent, runs, ids), dim}, cell{oneLine(name), ""}, cell{r.Info.Status, statusColor(runStatuses[r.Info.Status])},
			cell{oneLine(names[r.Info.Experiment]), ""}, cell{started, dim}, cell{metrics, ""}, cell{params, ""})
	}
	if !named {
		t.drop(2)
	}
	if !nested {
		t.drop(1)
	}
	return s.printRows(t)
}

// parentTag is the tag of a nested run with the id of the run that it is nested in.
const parentTag = "mlflow.parentRunId"

// shownParent returns the id of a run's parent for a table: as the list has it, if it does.
func (s *session) shownParent(parent string, runs []client.Run, ids []string) string {
	if i := slices.IndexFunc(runs, func(r client.Run) bool { return r.Info.ID == parent }); i >= 0 {
		return ids[i]
	}
	if s.out.tty && isMade(parent) {
		return parent[:shortID]
	}
	return oneLine(parent)
}

// shownIDs returns the ids of runs for a table: on a terminal, what tells those that clients made
// from the others of the list.
func (s *session) shownIDs(runs []client.Run) []string {
	ids := make([]string, len(runs))
	for i := range runs {
		ids[i] = runs[i].Info.ID
	}
	if s.out.tty {
		return shortIDs(ids)
	}
	return ids
}

// shortID is the least number of characters of an id that is shortened.
const shortID = 8

// isMade reports whether an id is one that MLflow gives a run.
func isMade(id string) bool { return len(id) == 32 && strings.Trim(id, "0123456789abcdef") == "" }

// shortIDs shortens ids of runs to their beginnings, as far as these are unique among them. The
// names of jobs stay.
func shortIDs(ids []string) []string {
	sorted := slices.Sorted(slices.Values(ids))
	out := make([]string, len(ids))
	for i, id := range ids {
		if out[i] = id; !isMade(id) {
			continue
		}
		n := shortID
		at, _ := slices.BinarySearch(sorted, id)
		for _, k := range []int{at - 1, at + 1} {
			if k >= 0 && k < len(sorted) {
				n = max(n, shared(id, sorted[k])+1)
			}
		}
		out[i] = id[:min(n, len(id))]
	}
	return out
}

// shared is the number of bytes that two texts begin with.
func shared(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
