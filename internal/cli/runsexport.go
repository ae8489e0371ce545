package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth/client"
)

func exportRunsCommand(s *session) *cobra.Command {
	q := runFlags{}
	format := ""
	cmd := &cobra.Command{
		Use:   "export [--filter TEXT] [--format csv|jsonl]",
		Short: "Write all runs that match a filter as CSV or JSON lines",
		Long: "Writes runs to standard output, one per line. In CSV, parameters, tags and the latest values of metrics are columns named params.KEY,\n" +
			"tags.KEY and metrics.KEY.\n\n" +
			"  berth runs export --experiment iris > runs.csv",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "csv" && format != "jsonl" {
				return usagef("--format %s: the formats are csv and jsonl", format)
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			if err := q.find(cmd.Context(), c); err != nil {
				return err
			}
			if format == "jsonl" {
				e := json.NewEncoder(s.out)
				return c.EachRun(cmd.Context(), q.RunQuery, func(r *client.Run) error { return e.Encode(r) })
			}
			runs, err := c.Runs(cmd.Context(), q.RunQuery)
			if err != nil {
				return err
			}
			var all []*client.Run
			for i := range runs {
				all = append(all, &runs[i])
			}
			experiments := map[string]string{}
			if err := namesOfExperiments(cmd.Context(), c, runs, experiments); err != nil {
				return err
			}
			return s.writeCSV(all, experiments)
		},
	}
	q.flags(cmd)
	cmd.Flags().StringVar(&format, "format", "csv", "csv or jsonl")
	return cmd
}

func (s *session) writeCSV(runs []*client.Run, experiments map[string]string) error {
	params := keysOf(runs, paramKeys)
	tags := keysOf(runs, func(r *client.Run) []string { return names(r.Data.Tags, func(p client.Pair) string { return p.Key }) })
	metrics := keysOf(runs, metricKeys)
	w := csv.NewWriter(s.out)
	head := []string{"run_id", "run_name", "experiment", "user", "status", "start_time", "end_time"}
	for prefix, keys := range [][]string{metrics, params, tags} {
		for _, k := range keys {
			head = append(head, []string{"metrics.", "params.", "tags."}[prefix]+k)
		}
	}
	if err := w.Write(head); err != nil {
		return err
	}
	values := [][]map[string]any{metricsByKey(runs), pairsByKey(runs, paramsOf), pairsByKey(runs, tagsOf)}
	for i, r := range runs {
		row := []string{r.Info.ID, r.Info.Name, experiments[r.Info.Experiment], r.Info.User, r.Info.Status, isoTime(r.Info.Start), isoTime(r.Info.End)}
		for kind, keys := range [][]string{metrics, params, tags} {
			for _, k := range keys {
				text := ""
				if v := values[kind][i][k]; v != nil {
					text = fmt.Sprint(v)
				}
				row = append(row, text)
			}
		}
		if err := w.Write(row); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

func isoTime(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}
