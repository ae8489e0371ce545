package cli

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// metricRow is a metric as `berth metrics -o json` prints it.
type metricRow struct {
	Key    string         `json:"key"`
	Latest any            `json:"latest"`
	Step   int64          `json:"step"`
	Points []client.Point `json:"points"`
}

const (
	sparkWidth  = 40
	chartPoints = 1000
	chartHeight = 16
)

func metricsCommand(s *session) *cobra.Command {
	var keys []string
	var watch bool
	cmd := &cobra.Command{
		Use:   "metrics RUN [RUN…]",
		Short: "Show the metrics of a job or run, with their trends",
		Long: "Shows the metrics that a job or another run logged to the workspace's MLflow server. With --metric, draws a chart of one run\n" +
			"or several. With --watch, prints values as they are logged until the run ends. With -o csv or -o jsonl, writes every point, one per line.\n\n" +
			"  berth metrics JOB\n" +
			"  berth metrics JOB --metric loss\n" +
			"  berth metrics JOB --watch\n" +
			"  berth metrics JOB OTHER -o csv > points.csv",
		Args: atLeastOne,
		RunE: func(cmd *cobra.Command, runs []string) error {
			export := strings.ToLower(s.format.name)
			switch {
			case export != "csv" && export != "jsonl":
				export = ""
				if err := s.format.check(); err != nil {
					return err
				}
			case watch || s.format.query != "":
				return usagef("-o %s writes every point: it takes neither --watch nor --query", export)
			}
			c, err := s.open(cmd.Context())
			if err == nil {
				runs, err = s.runIDs(cmd.Context(), c, runs)
			}
			switch {
			case err != nil:
				return err
			case export != "":
				return s.exportMetrics(cmd.Context(), c, runs, keys, export)
			case watch && len(runs) > 1:
				return berth.Errorf(berth.Invalid, "--watch takes one run")
			case watch:
				return s.watchMetrics(cmd.Context(), c, runs[0], keys)
			case len(keys) > 0 && !s.format.chosen():
				return s.drawMetrics(cmd.Context(), c, runs, keys)
			case len(runs) > 1:
				return berth.Errorf(berth.Invalid, "several runs are shown in a chart: say which with --metric, or use `berth runs compare`")
			}
			return s.listMetrics(cmd.Context(), c, runs[0], keys)
		},
	}
	cmd.Flags().StringArrayVarP(&keys, "metric", "m", nil, "a metric to draw or write; may be repeated")
	cmd.Flags().BoolVar(&watch, "watch", false, "print values as they are logged, until the run ends")
	s.format.flags(cmd)
	cmd.Flags().Lookup("output").Usage += "; csv or jsonl for every point"
	return cmd
}

func atLeastOne(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return berth.Errorf(berth.Invalid, "name a job or run; `berth runs` lists them")
	}
	return nil
}

// runIDs finds runs by their ids or the beginning of one, and those of jobs also as `last`.
func (s *session) runIDs(ctx context.Context, c *client.Client, names []string) ([]string, error) {
	ids := make([]string, len(names))
	for i, name := range names {
		ids[i] = name
		if name != "last" {
			_, err := c.Run(ctx, name)
			if err == nil {
				continue
			}
			if berth.CodeOf(err) != berth.NotFound {
				return nil, err
			}
		}
		j, err := s.job(ctx, c, name)
		if berth.CodeOf(err) == berth.NotFound && name != "last" {
			if ids[i], err = runOfPrefix(ctx, c, name, err); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		ids[i] = j.Name
	}
	return ids, nil
}

// runOfPrefix is the one run whose id begins with a text; without one the error is none.
func runOfPrefix(ctx context.Context, c *client.Client, prefix string, none error) (string, error) {
	if strings.ContainsAny(prefix, `'"%\`) {
		return "", none
	}
	q := runFlags{RunQuery: client.RunQuery{Filter: "attributes.run_id LIKE '" + prefix + "%'", Limit: 1000}}
	if _, err := q.find(ctx, c); err != nil {
		return "", err
	}
	runs, err := c.Runs(ctx, q.RunQuery)
	if err != nil {
		return "", err
	}
	var found []string
	for _, r := range runs {
		if strings.HasPrefix(r.Info.ID, prefix) { // _ stands for any character in the filter
			found = append(found, r.Info.ID)
		}
	}
	switch len(found) {
	case 0:
		return "", none
	case 1:
		return found[0], nil
	}
	return "", berth.Errorf(berth.Invalid, "%d runs begin with %q: %s; give more of the id", len(found), prefix, strings.Join(found[:min(3, len(found))], ", "))
}

func wanted(keys []string, key string) bool {
	for _, k := range keys {
		if k == key {
			return true
		}
	}
	return len(keys) == 0
}

func (s *session) listMetrics(ctx context.Context, c *client.Client, id string, keys []string) error {
	r, err := c.Run(ctx, id)
	if err != nil {
		return err
	}
	var rows []metricRow
	for _, m := range r.Data.Metrics {
		if !wanted(keys, m.Key) {
			continue
		}
		p, err := c.Chart(ctx, []string{r.Info.ID}, m.Key, chartPoints)
		if err != nil {
			return err
		}
		rows = append(rows, metricRow{m.Key, m.Value, m.Step, p})
	}
	switch {
	case s.format.chosen():
		return s.print(rows)
	case len(rows) == 0:
		s.say("run %s has logged no metrics", id)
		return nil
	}
	return s.printMetrics(rows)
}

func (s *session) printMetrics(rows []metricRow) error {
	t := table{
		header: []string{"METRIC", "LATEST", "STEP", "LEAST", "GREATEST", "TREND"},
		flex:   [][]flexible{{{column: 5, least: 10}}, {{column: 0, least: 10}}},
	}
	values := make([][]float64, len(rows))
	for i, row := range rows {
		for _, p := range row.Points {
			values[i] = append(values[i], p.Float())
		}
		least, greatest := "", ""
		if low, high, ok := extent(values[i]); ok {
			least, greatest = number(low), number(high)
		}
		t.add(cell{oneLine(row.Key), ""}, cell{rounded(row.Latest), cyan}, cell{fmt.Sprint(row.Step), dim}, cell{least, ""}, cell{greatest, ""},
			cell{spark(means(values[i], sparkWidth)), ""})
	}
	room := t.fit(s.out.width())[5] // narrow lines are drawn again, so that none loses its end
	for i := range rows {
		t.rows[i][5].text = spark(means(values[i], min(room, sparkWidth)))
	}
	return s.printRows(t)
}

// means is values in at most n, of which each is the mean of as many.
func means(values []float64, n int) []float64 {
	if len(values) <= n {
		return values
	}
	out := make([]float64, n)
	for i := range out {
		sum, count := 0.0, 0
		for _, v := range values[i*len(values)/n : (i+1)*len(values)/n] {
			if finite(v) {
				sum, count = sum+v, count+1
			}
		}
		if out[i] = math.NaN(); count > 0 {
			out[i] = sum / float64(count)
		}
	}
	return out
}

func (s *session) drawMetrics(ctx context.Context, c *client.Client, runs, keys []string) error {
	width := s.out.width()
	if width == 0 {
		width = 100
	}
	for _, key := range keys {
		p, err := c.Chart(ctx, runs, key, chartPoints)
		if err != nil {
			return err
		}
		curves := make([]curve, len(runs))
		for i, id := range runs {
			curves[i].name = id
			for _, q := range p {
				if q.Run == id {
					curves[i].points = append(curves[i].points, q)
				}
			}
		}
		odd := 0
		for _, q := range p {
			if !finite(q.Float()) {
				odd++
			}
		}
		switch {
		case len(p) == 0:
			s.say("nothing was logged as %s", key)
			continue
		case odd == len(p):
			s.say("%s has no finite values: there is nothing to draw", legible(key))
			continue
		}
		if _, err := fmt.Fprintf(s.out, "%s\n%s", s.paint(s.out, bold, legible(key)), chart(curves, width, chartHeight)); err != nil {
			return err
		}
		if odd > 0 {
			fmt.Fprintf(s.out, "%d of %d %spoints are not finite\n", odd, len(p), sampled(p))
		}
	}
	return nil
}

// sampled says whether a chart of points may leave some out.
func sampled(points []client.Point) string {
	of := map[string]int{}
	for _, p := range points {
		if of[p.Run]++; of[p.Run] >= chartPoints {
			return "sampled "
		}
	}
	return ""
}

// watchMetrics prints the points of a run as they come, until it has ended.
func (s *session) watchMetrics(ctx context.Context, c *client.Client, id string, keys []string) error {
	status, err := c.WatchMetrics(ctx, id, func(p client.Point) error {
		if !wanted(keys, p.Key) {
			return nil
		}
		_, err := fmt.Fprintf(s.out, "%s  step %d  %v\n", legible(p.Key), p.Step, p.Value)
		return err
	})
	if err == nil {
		s.say("run %s: %s", id, status)
	}
	return err
}
