package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth/client"
)

// A runColumn is something that `berth runs --columns` shows of a run.
type runColumn struct {
	name   string
	of     func(r *client.Run) string
	number func(r *client.Run) any // for JSON and YAML; nil for what is text
}

// value returns a column as JSON has it: null for what a run does not have.
func (c runColumn) value(r *client.Run) any {
	text := c.of(r)
	switch {
	case text == "":
		return nil
	case c.number != nil:
		return c.number(r)
	}
	return text
}

// plainColumns are the columns that every run has. experiments has names by id.
func plainColumns(experiments map[string]string) []runColumn {
	return []runColumn{
		{name: "run", of: func(r *client.Run) string { return r.Info.ID }},
		{name: "name", of: func(r *client.Run) string { return r.Info.Name }},
		{name: "status", of: func(r *client.Run) string { return r.Info.Status }},
		{name: "experiment", of: func(r *client.Run) string { return experiments[r.Info.Experiment] }},
		{name: "parent", of: func(r *client.Run) string { return pairOf(r.Data.Tags, parentTag) }},
		{name: "user", of: func(r *client.Run) string { return r.Info.User }},
		{name: "started", of: func(r *client.Run) string { return isoTime(r.Info.Start) }},
		{name: "ended", of: func(r *client.Run) string { return isoTime(r.Info.End) }},
		{name: "duration", of: func(r *client.Run) string {
			if r.Info.End == 0 {
				return ""
			}
			return fmt.Sprint(time.Duration(r.Info.End-r.Info.Start) * time.Millisecond)
		}, number: func(r *client.Run) any { return float64(r.Info.End-r.Info.Start) / 1000 }},
	}
}

func columnNames(columns []runColumn) (names []string) {
	for _, c := range columns {
		names = append(names, c.name)
	}
	return names
}

// runColumns reads --columns: names of plain columns, and metrics.KEY, params.KEY and tags.KEY.
func runColumns(names []string, experiments map[string]string) ([]runColumn, error) {
	plain := plainColumns(experiments)
	out := make([]runColumn, 0, len(names))
	for _, name := range names {
		name = strings.TrimSpace(name)
		kind, key, dotted := strings.Cut(name, ".")
		var of func(*client.Run) string
		var number func(*client.Run) any
		i := slices.IndexFunc(plain, func(c runColumn) bool { return c.name == name })
		switch {
		case i >= 0:
			of, number = plain[i].of, plain[i].number
		case dotted && key == "":
			of = nil
		case dotted && kind == "metrics":
			of, number = func(r *client.Run) string { return metricOf(r, key) }, func(r *client.Run) any { return metricValue(r, key) }
		case dotted && kind == "params":
			of = func(r *client.Run) string { return pairOf(r.Data.Params, key) }
		case dotted && kind == "tags":
			of = func(r *client.Run) string { return pairOf(r.Data.Tags, key) }
		}
		if of == nil {
			known := columnNames(plain)
			return nil, usagef("--columns %s: the columns are %s, metrics.KEY, params.KEY and tags.KEY", name, strings.Join(known, ", "))
		}
		out = append(out, runColumn{name, of, number})
	}
	return out, nil
}

// sayLacking names the columns that no run has: their keys may be misspelt.
func (s *session) sayLacking(runs []client.Run, columns []runColumn) {
	for _, c := range columns {
		if strings.Contains(c.name, ".") && len(runs) > 0 && !slices.ContainsFunc(runs, func(r client.Run) bool { return c.of(&r) != "" }) {
			s.say("none of these runs has %s", legible(c.name))
		}
	}
}

// mostMetricKeys is how many metrics a server looks for in each run.
const mostMetricKeys = 100

// metricsOfColumns are the metrics that columns show, nil where they are more than can be asked
// for.
func metricsOfColumns(columns []string) []string {
	keys := []string{}
	for _, name := range columns {
		if key, ok := strings.CutPrefix(strings.TrimSpace(name), "metrics."); ok {
			keys = append(keys, key)
		}
	}
	if len(keys) > mostMetricKeys {
		return nil
	}
	return keys
}

// printRunColumns prints chosen columns of runs: as a table, as lines of values, or as objects.
func (s *session) printRunColumns(runs []client.Run, columns []runColumn) error {
	if s.format.chosen() {
		rows := make([]any, len(runs))
		for i := range runs {
			values, object := make([]any, len(columns)), map[string]any{}
			for k, c := range columns {
				values[k], object[c.name] = c.of(&runs[i]), c.value(&runs[i])
			}
			if rows[i] = any(object); s.format.name == "tsv" && s.format.query == "" {
				rows[i] = values
			}
		}
		return s.print(rows)
	}
	t, ids := table{flex: make([][]flexible, 2)}, s.shownIDs(runs)
	for k, c := range columns {
		group := 0
		if c.name == "run" {
			group = 1
		}
		t.header = append(t.header, legible(strings.ToUpper(c.name)))
		t.flex[group] = append(t.flex[group], flexible{column: k, least: 8})
	}
	for i := range runs {
		cells := make([]cell, len(columns))
		for k, c := range columns {
			if cells[k].text = oneLine(c.of(&runs[i])); c.name == "run" {
				cells[k].text = ids[i]
			}
		}
		t.add(cells...)
	}
	return s.printRows(t)
}
