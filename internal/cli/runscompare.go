package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/berthml/berth/client"
)

func compareRunsCommand(s *session) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "compare RUN RUN…",
		Short: "Show runs side by side: the parameters that differ, and the metrics",
		Long: "Shows runs side by side: the parameters that differ, and the latest values of metrics. A run is named by its id, by the beginning of one,\n" +
			"or as `last`, your newest job.\n\n" +
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
			if s.format.chosen() {
				return s.print(runs)
			}
			return s.printComparison(runs, all)
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "include parameters that are the same")
	s.format.flags(cmd)
	return cmd
}

func (s *session) printComparison(runs []*client.Run, all bool) error {
	t := table{header: []string{""}, whole: true}
	for _, r := range runs {
		t.header = append(t.header, legible(clip(r.Info.Name, 24)))
	}
	row := func(name, color string, value func(*client.Run) string) {
		cells := []cell{{name, color}}
		for _, r := range runs {
			cells = append(cells, cell{clip(oneLine(value(r)), 24), ""})
		}
		t.add(cells...)
	}
	ids := []cell{{"run", dim}}
	for _, r := range runs {
		ids = append(ids, cell{r.Info.ID, ""})
	}
	t.add(ids...)
	row("status", dim, func(r *client.Run) string { return r.Info.Status })
	for _, key := range keysOf(runs, func(r *client.Run) []string { return names(r.Data.Params, func(p client.Pair) string { return p.Key }) }) {
		value := func(r *client.Run) string { return pairOf(r.Data.Params, key) }
		if all || slices.ContainsFunc(runs, func(r *client.Run) bool { return value(r) != value(runs[0]) }) {
			row("param "+key, "", value)
		}
	}
	for _, key := range keysOf(runs, metricKeys) {
		row("metric "+key, cyan, func(r *client.Run) string { return metricOf(r, key) })
	}
	return s.printRows(t)
}

func names[T any](list []T, name func(T) string) []string {
	out := make([]string, len(list))
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
	for _, p := range pairs {
		if p.Key == key {
			return p.Value
		}
	}
	return ""
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
