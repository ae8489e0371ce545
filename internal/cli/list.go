package cli

import (
	"context"
	"iter"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// listing is what a list command was asked for.
type listing struct {
	name                 string // versions of this asset
	limit                int
	archived, everything bool
	all                  bool
	status               string
}

// jobLimit is how many jobs a list has unless it is told otherwise, as in az.
const jobLimit = 50

// listVerb is NOUN list.
func listVerb(s *session, n noun) *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List them, newest first",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			if n.word == "job" && l.limit == 0 && !l.all {
				l.limit = jobLimit
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			if n.word == "job" && !s.format.chosen() {
				return s.listJobs(cmd.Context(), c, l)
			}
			docs, err := collect(l.docs(cmd.Context(), c, n), l.limit)
			if err != nil {
				return err
			}
			items := make([]any, len(docs))
			for i, d := range docs {
				items[i] = entity(n, d)
			}
			if s.format.chosen() {
				return s.print(items)
			}
			return s.printRows(columns(n, items))
		},
	}
	f := cmd.Flags()
	f.IntVarP(&l.limit, "max-results", "r", 0, "at most this many")
	if n.versioned {
		f.StringVarP(&l.name, "name", "n", "", "list the versions of this one")
	}
	if n.versioned || n.word == "job" {
		f.BoolVar(&l.archived, "archived-only", false, "only archived ones")
		f.BoolVar(&l.everything, "include-archived", false, "archived ones too")
	}
	if n.word == "job" {
		f.BoolVar(&l.all, "all-results", false, "every job, not only the newest 50")
		f.StringVar(&l.status, "status", "", "only jobs in this status; several with commas between")
	}
	s.format.flags(cmd)
	return cmd
}

func (s *session) listJobs(ctx context.Context, c *client.Client, l listing) error {
	q := client.JobQuery{View: l.view(), Max: l.limit}
	if l.status != "" {
		for _, st := range strings.Split(l.status, ",") {
			q.Status = append(q.Status, berth.JobStatus(st))
		}
	}
	jobs, err := collect(c.Jobs(ctx, q), l.limit)
	if err != nil {
		return err
	}
	if err := s.printJobs(jobs, time.Now()); err != nil {
		return err
	}
	if len(jobs) == jobLimit && l.limit == jobLimit {
		s.hint("these are the newest %d; --all-results lists every job", jobLimit)
	}
	return nil
}

func (l listing) view() string {
	switch {
	case l.archived:
		return "ArchivedOnly"
	case l.everything:
		return "All"
	}
	return "ActiveOnly"
}

func (l listing) docs(ctx context.Context, c *client.Client, n noun) iter.Seq2[client.Document, error] {
	q := url.Values{}
	if n.versioned || n.word == "job" {
		q.Set("listViewType", l.view())
	}
	if l.limit > 0 && l.limit <= 200 {
		q.Set("$top", strconv.Itoa(l.limit))
	}
	if l.status != "" {
		q.Set("status", l.status)
	}
	switch {
	case n.collection == "":
		return c.Workspaces(ctx, true)
	case n.versioned && l.name != "":
		return c.List(ctx, q, n.collection, l.name, "versions")
	}
	return c.List(ctx, q, n.collection)
}

// columns is a table of entities with the noun's own columns.
func columns(n noun, items []any) table {
	var t table
	var keep []string
	for _, col := range n.columns {
		used := col == "name"
		for _, it := range items {
			used = used || scalar(it.(map[string]any)[col]) != ""
		}
		if used {
			keep = append(keep, col)
			t.header = append(t.header, upper(col))
		}
	}
	for _, it := range items {
		row := make([]cell, len(keep))
		for i, col := range keep {
			row[i].text = oneLine(scalar(it.(map[string]any)[col]))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

func upper(word string) string {
	b := []byte(word)
	for i, c := range b {
		switch {
		case c == '_':
			b[i] = ' '
		case c >= 'a' && c <= 'z':
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}
