package cli

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/berthml/berth/client"
)

func compareRunsCommand(s *session) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "compare RUN RUN…",
		Short: "Show runs side by side: the parameters that differ, and the metrics",
		Long: "Shows runs side by side: the parameters that differ, and the latest values of metrics. A run is named by its id, by the beginning of one,\n" +
			"or as `last`, your newest job. With -o json, runs has the ids, and params and metrics have the values of the runs by key.\n\n" +
			"  berth runs compare last 3f2a",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef("name two runs or more; `berth runs` lists them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, ids []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			runs, err := s.runsNamed(cmd.Context(), c, ids)
			if err != nil {
				return err
			}
			x := compareRuns(runs, all)
			switch {
			case s.format.name == "tsv" && s.format.query == "":
				rows := []any{}
				table, _ := x.rows(runs, -1)
				for _, r := range table {
					rows = append(rows, append([]any{r.name}, names(r.values, func(v string) any { return v })...))
				}
				return s.print(rows)
			case s.format.chosen():
				return s.print(x)
			}
			return s.printComparison(runs, x)
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "include parameters that are the same")
	s.format.flags(cmd)
	return cmd
}

// A comparison is runs side by side, as `berth runs compare -o json` prints them. Each key has the
// values of the runs in their order, nil where a run has none.
type comparison struct {
	Runs    []string         `json:"runs"`
	Params  map[string][]any `json:"params"`
	Metrics map[string][]any `json:"metrics"`
}

// compareRuns compares runs. Parameters that are the same are left out unless all are wanted.
func compareRuns(runs []*client.Run, all bool) comparison {
	x := comparison{Params: map[string][]any{}, Metrics: map[string][]any{}}
	for _, r := range runs {
		x.Runs = append(x.Runs, r.Info.ID)
	}
	params, metrics := pairsByKey(runs, paramsOf), metricsByKey(runs)
	for _, key := range keysOf(runs, paramKeys) {
		row := rowOf(params, key)
		if all || slices.ContainsFunc(row, func(v any) bool { return v != row[0] }) {
			x.Params[key] = row
		}
	}
	for _, key := range keysOf(runs, metricKeys) {
		x.Metrics[key] = rowOf(metrics, key)
	}
	return x
}

// metricsByKey is the latest values of the metrics of each run.
func metricsByKey(runs []*client.Run) []map[string]any {
	return names(runs, func(r *client.Run) map[string]any {
		values := make(map[string]any, len(r.Data.Metrics))
		for _, m := range r.Data.Metrics {
			values[m.Key] = m.Value
		}
		return values
	})
}

// pairsByKey is the parameters or the tags of each run.
func pairsByKey(runs []*client.Run, of func(*client.Run) []client.Pair) []map[string]any {
	return names(runs, func(r *client.Run) map[string]any {
		values := make(map[string]any, len(of(r)))
		for _, p := range of(r) {
			values[p.Key] = p.Value
		}
		return values
	})
}

// rowOf is what each run has under a key, nil where it has nothing.
func rowOf(values []map[string]any, key string) []any {
	return names(values, func(of map[string]any) any { return of[key] })
}

// A comparedRow is a row of the table of a comparison.
type comparedRow struct {
	name, color string
	values      []string
}

// rows are the rows of a comparison, with at most so many parameters and metrics, or all where most
// is -1, and how many are left out.
func (x comparison) rows(runs []*client.Run, most int) (rows []comparedRow, left int) {
	shown := func(v any) string {
		if v == nil {
			return ""
		}
		return oneLine(fmt.Sprint(v))
	}
	rows = []comparedRow{
		{"run", dim, x.Runs},
		{"status", dim, names(runs, func(r *client.Run) string { return r.Info.Status })},
	}
	add := func(what, color string, of map[string][]any) {
		for i, key := range sortedKeys(of) {
			if i == most {
				left += len(of) - i
				return
			}
			rows = append(rows, comparedRow{what + oneLine(key), color, names(of[key], shown)})
		}
	}
	add("param ", "", x.Params)
	add("metric ", cyan, x.Metrics)
	return rows, left
}

func (s *session) printComparison(runs []*client.Run, x comparison) error {
	rows, left := x.rows(runs, shownMetrics)
	if left > 0 {
		defer s.say("… and %d more parameters and metrics, all of which `-o json` gives", left)
	}
	t := comparisonTable(runs, rows)
	widths := t.fit(s.out.width())
	if slices.ContainsFunc(t.rows[0], func(c cell) bool { return len(c.text) > slices.Max(widths[1:]) }) {
		rows[0].values = shortIDs(x.Runs)
		t = comparisonTable(runs, rows)
		widths = t.fit(s.out.width())
	}
	for i, row := range t.rows {
		texts := names(row[1:], func(c cell) string { return c.text })
		for k, text := range clipApart(texts, widths[1:]) {
			t.rows[i][k+1].text = text
		}
	}
	return s.printRows(t)
}

// comparisonTable returns a table in which the columns of runs are shortened before that of names.
func comparisonTable(runs []*client.Run, rows []comparedRow) table {
	t := table{header: []string{""}, flex: make([][]flexible, 2)}
	t.flex[1] = []flexible{{least: 12}}
	for i, r := range runs {
		t.header = append(t.header, legible(oneLine(r.Info.Name)))
		t.flex[0] = append(t.flex[0], flexible{column: i + 1, least: 12})
	}
	for _, r := range rows {
		t.add(append([]cell{{r.name, r.color}}, names(r.values, func(v string) cell { return cell{v, ""} })...)...)
	}
	return t
}

// clipApart shortens texts to widths. Of those that differ only behind the cut, it keeps the part
// where they differ.
func clipApart(texts []string, widths []int) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = clip(text, widths[i])
	}
	for i, text := range texts {
		same := -1 // characters that it shares with one of which the same is shown
		for k, other := range texts {
			if other != text && clip(other, widths[k]) == clip(text, widths[i]) {
				same = max(same, utf8.RuneCountInString(text[:shared(text, other)]))
			}
		}
		all := []rune(text)
		before := min(same-widths[i]/3, len(all)-widths[i]+1) // the end is shown whole if it fits
		if same >= 0 && before > 0 {
			out[i] = clip("…"+string(all[before:]), widths[i])
		}
	}
	return out
}

// names is what a function makes of each element.
func names[T, N any](list []T, name func(T) N) []N {
	out := make([]N, len(list))
	for i, x := range list {
		out[i] = name(x)
	}
	return out
}

// keysOf is the names that any of the runs has, sorted.
func keysOf(runs []*client.Run, of func(*client.Run) []string) []string {
	var keys []string
	for _, r := range runs {
		keys = append(keys, of(r)...)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func pairOf(pairs []client.Pair, key string) string {
	text, _ := pairValue(pairs, key).(string)
	return text
}

// pairValue returns the value of a parameter or tag, or nil.
func pairValue(pairs []client.Pair, key string) any {
	for _, p := range pairs {
		if p.Key == key {
			return p.Value
		}
	}
	return nil
}

func paramsOf(r *client.Run) []client.Pair { return r.Data.Params }

func tagsOf(r *client.Run) []client.Pair { return r.Data.Tags }

func paramKeys(r *client.Run) []string {
	return names(r.Data.Params, func(p client.Pair) string { return p.Key })
}

func metricOf(r *client.Run, key string) string {
	if v := metricValue(r, key); v != nil {
		return fmt.Sprint(v)
	}
	return ""
}

// metricValue returns the latest value of a metric: a number, NaN or an infinity as text, or nil.
func metricValue(r *client.Run, key string) any {
	for _, m := range r.Data.Metrics {
		if m.Key == key {
			return m.Value
		}
	}
	return nil
}
