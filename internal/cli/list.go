package cli

import (
	"context"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth/client"
)

// listing is what a list command was asked for.
type listing struct {
	name                 string // versions of this asset
	limit                int
	archived, everything bool
	all                  bool
	stage                string
	kind                 string // of computes and connections
	parent               string // of jobs
	registry             string
	secrets              *bool     // of connections
	endpoint             string    // of deployments
	group                bool      // only the workspaces of the resource group that was named
	jobs                 jobFilter // of a list of jobs
	curated              bool      // environments that are always there
}

// jobLimit is how many jobs a list has unless it is told otherwise, as in az.
const jobLimit = 50

// listVerb is NOUN list.
func listVerb(s *session, n noun) *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List " + plurals(n.word),
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			if n.word == "environment" && strings.HasPrefix(strings.ToLower(l.registry), "azureml") {
				l.registry, l.curated = "", true
			}
			if err := l.check(); err != nil {
				return err
			}
			if n.word == "job" && !cmd.Flags().Changed("max-results") && !l.all {
				l.limit = jobLimit
			}
			if n.child != "" && l.endpoint == "" {
				return usagef("give the endpoint with --endpoint-name")
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			if l.curated {
				return s.listCurated(cmd.Context(), c, n, l)
			}
			l.group = cmd.Flags().Changed("resource-group") || s.format.az && s.cfg.Workspace.Group != ""
			if n.word == "job" && s.format.plainly() {
				return s.listJobs(cmd.Context(), c, l)
			}
			all, err := l.docs(cmd.Context(), c, n)
			if err != nil {
				return err
			}
			docs, err := collect(all, l.limit)
			if err != nil {
				return err
			}
			if len(docs) == 0 && l.name != "" && !s.format.az { // az shows an empty list
				if _, err := c.Get(cmd.Context(), n.collection, l.name); err != nil {
					return err
				}
			}
			items := make([]any, 0, len(docs))
			var kept []client.Document
			for _, d := range docs {
				if d, err = withSecrets(cmd.Context(), c, d, l.secrets); err != nil {
					return err
				}
				shown := s.entity(n, d)
				if n.word == "job" && s.format.name == "table" && !s.format.az && shown["compute"] == nil {
					shown["compute"] = at(d.Properties(), "berth.compute") // where it went that named none
				}
				if l.wants(n, d, shown) {
					items = append(items, s.azList(n, shown))
					kept = append(kept, d)
				}
			}
			if n.word == "job" && s.format.az && l.limit > 0 {
				s.say("Displaying top %d results from the list command.", l.limit)
			}
			if n.word == "compute" && s.format.plainly() {
				t, err := s.computeTable(cmd.Context(), c, kept)
				if err != nil {
					return err
				}
				return s.printRows(t)
			}
			if n.word == "environment" && l.name == "" && s.format.plainly() {
				defer s.hint("the curated environments, which are always there: `berth environment list --curated`")
			}
			return s.printList(n, items)
		},
	}
	f := cmd.Flags()
	f.IntVarP(&l.limit, "max-results", "r", 0, "at most this many")
	if n.child != "" {
		f.StringVarP(&l.endpoint, "endpoint-name", "e", "", "their endpoint")
	}
	if n.versioned {
		f.StringVarP(&l.name, "name", "n", "", "list the versions of this one")
		registryFlag(cmd, &l.registry)
	}
	if n.versioned || n.word == "job" {
		f.BoolVar(&l.archived, "archived-only", false, "only archived ones")
		f.BoolVar(&l.everything, "include-archived", false, "include archived ones")
	}
	switch n.word {
	case "job":
		f.BoolVar(&l.all, "all-results", false, "every job, not only the newest 50")
		f.StringVarP(&l.parent, "parent-job-name", "p", "", "only the children of this job")
		l.jobs.flags(cmd)
	case "environment":
		f.BoolVar(&l.curated, "curated", false, "the curated environments, which are always there")
	case "model":
		f.StringVarP(&l.stage, "stage", "s", "", "only those in this stage")
	case "compute", "connection":
		f.StringVarP(&l.kind, "type", "t", "", "only those of this type")
	case "workspace":
		f.StringVar(&l.kind, "filtered-kinds", "", "only workspaces of these kinds, separated by commas: default, hub, project")
	}
	if n.word == "connection" {
		l.secrets = secretsFlag(cmd)
	}
	s.format.flags(cmd)
	return cmd
}

// printList prints a list of resources, for people or in the format that was asked for.
func (s *session) printList(n noun, items []any) error {
	if s.format.plainly() {
		return s.printRows(columns(n.columns, items))
	}
	return s.printAs(items, n.table)
}

// listCurated lists the environments that are always there.
func (s *session) listCurated(ctx context.Context, c *client.Client, n noun, l listing) error {
	names, err := c.CuratedEnvironments(ctx)
	if err != nil {
		return err
	}
	items := []any{}
	for _, name := range names {
		if l.name == "" || l.name == name {
			items = append(items, s.azList(n, map[string]any{"name": name, "latest_version": "1"}))
		}
	}
	if l.limit > 0 {
		items = items[:min(l.limit, len(items))]
	}
	return s.printList(n, items)
}

// check refuses what cannot be listed.
func (l listing) check() error {
	switch {
	case l.archived && l.everything:
		return latef("give --archived-only or --include-archived, not both")
	case l.limit < 0:
		return latef("--max-results %d: give a number above 0", l.limit)
	}
	return noRegistries(l.registry)
}

// wants reports whether an item is of the kind that was asked for.
func (l listing) wants(n noun, d client.Document, shown map[string]any) bool {
	if l.kind == "" {
		return true
	}
	if n.word != "workspace" {
		return strings.EqualFold(fmt.Sprint(shown["type"]), l.kind)
	}
	kind, _ := d.Members["kind"].(string)
	return slices.ContainsFunc(strings.Split(l.kind, ","), func(k string) bool { return strings.EqualFold(k, kind) })
}

// azList is an item of a list in the form az gives it there: of environments it keeps only names
// and versions, of models it renames some.
func (s *session) azList(n noun, shown map[string]any) map[string]any {
	if !s.format.az || n.word != "environment" && n.word != "model" {
		return shown
	}
	latest, version := shown["latest_version"], shown["version"]
	if n.word == "environment" {
		shown = map[string]any{"name": shown["name"]}
	} else {
		kind := shown["type"]
		for k, v := range map[string]any{"stage": nil, "description": "", "tags": map[string]any{}, "properties": map[string]any{}} {
			if shown[k] == nil {
				shown[k] = v
			}
		}
		for k := range shown {
			if !slices.Contains(azModel, k) {
				delete(shown, k)
			}
		}
		if version != nil {
			shown["model type"] = kind
		}
	}
	if latest != nil {
		shown["latest version"] = latest
	}
	if version != nil {
		shown["version"] = version
	}
	return shown
}

// azModel are the members of a model that az keeps in lists.
var azModel = []string{"name", "tags", "stage", "id", "properties", "description", "creation_context", "path"}

func (s *session) listJobs(ctx context.Context, c *client.Client, l listing) error {
	q, err := l.jobs.query(time.Now())
	if err != nil {
		return err
	}
	q.View, q.Max = l.view(), l.limit
	all := c.Jobs(ctx, q)
	if l.parent != "" {
		all = childJobs(ctx, c, l.parent)
	}
	jobs, err := collect(all, l.limit)
	if err != nil {
		return err
	}
	steps, err := stepJobs(ctx, c, jobs)
	if err != nil {
		return err
	}
	if err := s.printJobs(jobs, steps, nil, time.Now()); err != nil {
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

func (l listing) docs(ctx context.Context, c *client.Client, n noun) (iter.Seq2[client.Document, error], error) {
	q := url.Values{}
	var since time.Time
	if n.word == "job" {
		jobs, err := l.jobs.query(time.Now())
		if err != nil {
			return nil, err
		}
		q, since = jobs.Values(), jobs.Since
	}
	if n.versioned || n.word == "job" {
		q.Set("listViewType", l.view())
	}
	if l.limit > 0 && l.limit <= 200 {
		q.Set("$top", strconv.Itoa(l.limit))
	}
	if l.stage != "" {
		q.Set("stage", l.stage)
	}
	switch {
	case n.collection == "":
		return c.Workspaces(ctx, !l.group), nil
	case n.child != "":
		return c.List(ctx, q, n.collection, l.endpoint, n.child), nil
	case l.parent != "":
		return children(ctx, c, l.parent), nil
	case n.versioned && l.name != "":
		return c.List(ctx, q, n.collection, l.name, "versions"), nil
	}
	return createdSince(c.List(ctx, q, n.collection), since), nil
}

// createdSince is the beginning of a list, newest first, up to what was created earlier.
func createdSince(all iter.Seq2[client.Document, error], since time.Time) iter.Seq2[client.Document, error] {
	if since.IsZero() {
		return all
	}
	return func(yield func(client.Document, error) bool) {
		for d, err := range all {
			at, bad := time.Parse(time.RFC3339, fmt.Sprint(at(d.Members, "systemData.createdAt")))
			if err == nil && bad == nil && at.Before(since) || !yield(d, err) {
				return
			}
		}
	}
}

// children goes through the documents of the children of a job.
func children(ctx context.Context, c *client.Client, parent string) iter.Seq2[client.Document, error] {
	return ofChildren(ctx, c, parent, func(name string) (client.Document, error) { return c.Get(ctx, "jobs", name) })
}

// childJobs goes through the children of a job.
func childJobs(ctx context.Context, c *client.Client, parent string) iter.Seq2[*client.Job, error] {
	return ofChildren(ctx, c, parent, func(name string) (*client.Job, error) { return c.Job(ctx, name) })
}

func ofChildren[T any](ctx context.Context, c *client.Client, parent string, get func(name string) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for name, err := range c.Children(ctx, parent) {
			var v T
			if err == nil {
				v, err = get(name)
			}
			if !yield(v, err) {
				return
			}
		}
	}
}

// columns is a table of entities with these columns, as far as anything stands in them.
func columns(names []string, items []any) table {
	var t table
	var keep []string
	for _, col := range names {
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
