package cli

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// metricRow is a metric as `berth metrics -o json` prints it.
type metricRow struct {
	Run    string         `json:"run_id"`
	Key    string         `json:"key"`
	Latest any            `json:"latest"`
	Step   int64          `json:"step"`
	Points []client.Point `json:"points"`
}

const (
	sparkWidth  = 40
	chartPoints = 1000
	chartHeight = 16
	// shownMetrics is how many metrics a table shows, each of which is a request for its trend: a
	// run may have hundreds of thousands.
	shownMetrics = 200
)

func metricsCommand(s *session) *cobra.Command {
	var keys []string
	var watch, log bool
	cmd := &cobra.Command{
		Use:   "metrics RUN [RUN…]",
		Short: "Show the metrics of a job or run, with their trends",
		Long: "Shows the metrics that a job or another run logged to the workspace's MLflow server. With --metric, draws a chart of one run\n" +
			"or several. With --watch, prints values as they are logged until the run ends, with -o jsonl as JSON lines. Without it, -o csv and\n" +
			"-o jsonl write every point, one per line; other formats have up to 1000 points of each metric.\n\n" +
			"  berth metrics JOB\n" +
			"  berth metrics JOB --metric loss --log\n" +
			"  berth metrics JOB --watch\n" +
			"  berth metrics JOB OTHER -o csv > points.csv",
		Args: atLeastOne,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := s.checkMetrics(names, keys, watch); err != nil {
				return err
			}
			heightOf := linear
			switch draws := len(keys) > 0 && !watch && !s.exports() && !s.format.chosen(); {
			case log && !draws:
				return usagef("--log is for charts: name the metric to draw with --metric, and leave out --watch and --output")
			case log:
				heightOf = logarithm
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			runs, err := s.runsNamed(cmd.Context(), c, names)
			if err != nil {
				return err
			}
			if !watch || runs[0].Info.End != 0 {
				if err := logged(runs, keys); err != nil {
					return err
				}
			}
			switch {
			case watch:
				return s.watchMetrics(cmd.Context(), c, runs[0], keys)
			case s.exports():
				return s.exportMetrics(cmd.Context(), c, runs, keys)
			case len(keys) > 0 && !s.format.chosen():
				return s.drawMetrics(cmd.Context(), c, runs, keys, heightOf)
			}
			return s.listMetrics(cmd.Context(), c, runs, keys)
		},
	}
	cmd.Flags().StringArrayVarP(&keys, "metric", "m", nil, "a metric to draw or write; may be repeated")
	cmd.Flags().BoolVar(&watch, "watch", false, "print values as they are logged, until the run ends")
	cmd.Flags().BoolVar(&log, "log", false, "draw charts with a logarithmic scale")
	s.format.flags(cmd)
	cmd.Flags().Lookup("output").Usage += "; csv or jsonl for every point"
	return cmd
}

func atLeastOne(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("name a job or run; `berth runs` lists them")
	}
	return nil
}

// exports reports whether every point is to be written, in a format that other commands do not
// have.
func (s *session) exports() bool { return s.format.name == "csv" || s.format.name == "jsonl" }

// checkMetrics refuses what does not go together.
func (s *session) checkMetrics(runs, keys []string, watch bool) error {
	s.format.name = strings.ToLower(s.format.name)
	switch lines := s.format.name == "jsonl" && s.format.query == ""; {
	case watch && len(runs) > 1:
		return usagef("--watch follows one run; %d are named", len(runs))
	case watch && !lines && (s.exports() || s.format.chosen()):
		return usagef("--watch writes text, or JSON lines with -o jsonl; leave out other formats and --query")
	case s.exports() && s.format.query != "":
		return usagef("-o %s writes every point; leave out --query", s.format.name)
	case s.exports():
		return nil
	case len(runs) > 1 && len(keys) == 0 && !s.format.chosen():
		return usagef("several runs are shown in a chart: say which metric with --metric, or use `berth runs compare`")
	}
	return s.format.check()
}

// logged refuses keys that none of the runs has.
func logged(runs []*client.Run, keys []string) error {
	known := keysOf(runs, metricKeys)
	for _, key := range keys {
		if slices.Contains(known, key) {
			continue
		}
		who := "none of these runs has logged"
		if len(runs) == 1 {
			who = "run " + runs[0].Info.ID + " has logged no"
		}
		near := ""
		if n := nearest(key, known); n != "" {
			near = fmt.Sprintf("; did you mean %q?", n)
		}
		return berth.Errorf(berth.NotFound, "%s metric %q%s", who, key, near)
	}
	return nil
}

// runsNamed finds runs by their ids or the beginning of one, and those of jobs also as `last`.
func (s *session) runsNamed(ctx context.Context, c *client.Client, names []string) ([]*client.Run, error) {
	runs := make([]*client.Run, len(names))
	for i, name := range names {
		var err error
		if name != "last" {
			runs[i], err = c.Run(ctx, name)
		}
		if name == "last" || berth.CodeOf(err) == berth.NotFound {
			var id string
			if id, err = s.runID(ctx, c, name); err == nil {
				runs[i], err = c.Run(ctx, id)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// runID finds the id of a run by its beginning, or as `last`.
func (s *session) runID(ctx context.Context, c *client.Client, name string) (string, error) {
	j, err := s.job(ctx, c, name)
	switch {
	case err == nil:
		return j.Name, nil
	case berth.CodeOf(err) != berth.NotFound:
		return "", err
	case name == "last":
		return "", berth.Errorf(berth.NotFound, "you have no job in workspace %s, and `last` is the newest; give the beginning of a run's id, which `berth runs` lists",
			c.Workspace.Name)
	}
	none := berth.Errorf(berth.NotFound, "there is no job or run %q in workspace %s; `berth runs` lists them", name, c.Workspace.Name)
	return runOfPrefix(ctx, c, name, none)
}

// runOfPrefix is the one run whose id begins with a text, a deleted one if no other does; without
// one the error is none.
func runOfPrefix(ctx context.Context, c *client.Client, prefix string, none error) (string, error) {
	if strings.ContainsAny(prefix, `'"%\`) {
		return "", none
	}
	q := runFlags{all: true, RunQuery: client.RunQuery{Filter: "attributes.run_id LIKE '" + prefix + "%'", Limit: 1000, MetricKeys: []string{}}}
	if err := q.find(ctx, c); err != nil {
		return "", err
	}
	var found []string
	for _, view := range []client.View{client.ViewActive, client.ViewDeleted} {
		q.View = view
		runs, err := c.Runs(ctx, q.RunQuery)
		if err != nil {
			return "", err
		}
		for _, r := range runs {
			if strings.HasPrefix(r.Info.ID, prefix) { // _ stands for any character in the filter
				found = append(found, r.Info.ID)
			}
		}
		if len(found) > 0 {
			break
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

func metricKeys(r *client.Run) []string {
	return names(r.Data.Metrics, func(m client.Metric) string { return m.Key })
}

func wanted(keys []string, key string) bool { return len(keys) == 0 || slices.Contains(keys, key) }

func (s *session) listMetrics(ctx context.Context, c *client.Client, runs []*client.Run, keys []string) error {
	have := map[string][]string{} // by key, the runs
	rows := []metricRow{}
	left := 0
	for _, r := range runs {
		for _, m := range r.Data.Metrics {
			if !wanted(keys, m.Key) {
				continue
			}
			if !s.format.chosen() && len(rows) == shownMetrics {
				left++
				continue
			}
			rows = append(rows, metricRow{r.Info.ID, m.Key, m.Value, m.Step, nil})
			if !slices.Contains(have[m.Key], r.Info.ID) {
				have[m.Key] = append(have[m.Key], r.Info.ID)
			}
		}
	}
	points := map[[2]string][]client.Point{} // by run and key
	for key, ids := range have {
		chart, err := c.Chart(ctx, ids, key, chartPoints)
		if err != nil {
			return err
		}
		for _, p := range chart {
			points[[2]string{p.Run, key}] = append(points[[2]string{p.Run, key}], p)
		}
	}
	for i, row := range rows {
		rows[i].Points = points[[2]string{row.Run, row.Key}]
	}
	switch {
	case s.format.chosen():
		return s.print(rows)
	case len(rows) == 0:
		s.say("run %s has logged no metrics", runs[0].Info.ID)
		return nil
	}
	if left > 0 {
		defer s.say("… and %d more metrics: `-m KEY` draws one, `-o csv` writes the points of all", left)
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

func (s *session) drawMetrics(ctx context.Context, c *client.Client, runs []*client.Run, keys []string, heightOf func(float64) float64) error {
	ids := names(runs, func(r *client.Run) string { return r.Info.ID })
	width := s.out.width()
	if width == 0 {
		width = 100
	}
	for _, key := range keys {
		p, err := c.Chart(ctx, ids, key, chartPoints)
		if err != nil {
			return err
		}
		curves := make([]curve, len(ids))
		for i, id := range ids {
			curves[i].name = id
			for _, q := range p {
				if q.Run == id {
					curves[i].points = append(curves[i].points, q)
				}
			}
		}
		odd, low := 0, 0
		for _, q := range p {
			switch v := q.Float(); {
			case !finite(v):
				odd++
			case !finite(heightOf(v)):
				low++
			}
		}
		switch {
		case odd == len(p):
			s.say("%s has no finite values: there is nothing to draw", legible(key))
			continue
		case odd+low == len(p):
			s.say("%s has no values above 0: leave out --log to draw it", legible(key))
			continue
		}
		if _, err := fmt.Fprintf(s.out, "%s\n%s", s.paint(s.out, bold, legible(key)), chart(curves, width, chartHeight, heightOf)); err != nil {
			return err
		}
		if odd > 0 {
			fmt.Fprintf(s.out, "%d of %d %spoints are not finite\n", odd, len(p), sampled(p))
		}
		if low > 0 {
			fmt.Fprintf(s.out, "%d of %d %spoints are not above 0\n", low, len(p), sampled(p))
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
func (s *session) watchMetrics(ctx context.Context, c *client.Client, r *client.Run, keys []string) error {
	id := r.Info.ID
	if !slices.ContainsFunc(metricKeys(r), func(key string) bool { return wanted(keys, key) }) && r.Info.End == 0 {
		s.say("waiting for the first value")
	}
	status, err := c.WatchMetrics(ctx, id, func(p client.Point) error {
		if !wanted(keys, p.Key) {
			return nil
		}
		if s.exports() {
			p.Run = id
			return s.pointsAsJSON(p)
		}
		_, err := fmt.Fprintf(s.out, "%s  step %d  %v\n", legible(p.Key), p.Step, p.Value)
		return err
	})
	if err == nil {
		s.say("run %s: %s", id, status)
	}
	return err
}
