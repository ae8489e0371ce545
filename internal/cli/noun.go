package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// noun is a row of the table of resources: everything that tells one from another on the command line.
type noun struct {
	word       string // on the command line, and the kind of its YAML
	collection string // in the API; "" is the workspace itself
	versioned  bool
	tracked    bool // tags are at the top of the document
	short      string
	verbs      []verb
	// fields are those of the YAML that `create` also takes as flags, by flag.
	fields map[string]string
	// columns of a list, as paths in the entity.
	columns []string
}

// verb makes the command of one verb of a noun.
type verb func(s *session, n noun) *cobra.Command

// nouns is every resource. Adding one is adding a row.
func nouns() []noun {
	asset := []verb{createVerb, listVerb, showVerb, updateVerb, archiveVerb, restoreVerb, validateVerb}
	thing := []verb{createVerb, listVerb, showVerb, updateVerb, deleteVerb}
	return []noun{
		{
			word: "job", collection: "jobs", short: "Jobs",
			verbs: []verb{
				createVerb, listVerb, showVerb, updateVerb, archiveVerb, restoreVerb, deleteVerb, downloadVerb, cancelVerb, streamVerb, validateVerb,
			},
		},
		{
			word: "compute", collection: "computes", tracked: true, short: "Where jobs run", verbs: thing,
			fields: map[string]string{"type": "type", "size": "size", "description": "description"}, columns: []string{"name", "type", "provisioning_state", "description"},
		},
		{
			word: "environment", collection: "environments", versioned: true, short: "What jobs run in", verbs: asset,
			fields:  map[string]string{"image": "image", "conda-file": "conda_file", "build-context": "build.path", "dockerfile-path": "build.dockerfile_path", "description": "description"},
			columns: []string{"name", "version", "latest_version", "description"},
		},
		{
			word: "data", collection: "data", versioned: true, short: "Data assets", verbs: append(asset[:len(asset):len(asset)], downloadVerb),
			fields: map[string]string{"path": "path", "type": "type", "description": "description"}, columns: []string{"name", "version", "latest_version", "type", "description"},
		},
		{
			word: "datastore", collection: "datastores", short: "Where data is kept", verbs: append(thing[:len(thing):len(thing)], validateVerb),
			columns: []string{"name", "type", "container_name", "is_default", "description"},
		},
		{
			word: "model", collection: "models", versioned: true, short: "Models", verbs: append(asset[:len(asset):len(asset)], downloadVerb),
			fields: map[string]string{"path": "path", "type": "type", "description": "description", "stage": "stage"}, columns: []string{"name", "version", "latest_version", "type", "description"},
		},
		{word: "component", collection: "components", versioned: true, short: "Reusable steps", verbs: asset, columns: []string{"name", "version", "latest_version", "type", "description"}},
		{
			word: "workspace", collection: "", tracked: true, short: "Workspaces", verbs: thing,
			fields: map[string]string{"description": "description", "display-name": "display_name"}, columns: []string{"name", "resource_group", "location", "description"},
		},
		{word: "connection", collection: "connections", short: "Credentials of other services", verbs: thing, columns: []string{"name", "type", "target"}},
	}
}

func nounCommand(s *session, n noun, verbs bool) *cobra.Command {
	cmd := &cobra.Command{Use: n.word, Short: n.short, Args: cobra.ArbitraryArgs, RunE: group}
	if verbs {
		for _, v := range n.verbs {
			c := v(s, n)
			if n.word == "job" && strings.HasSuffix(c.Use, "[NAME]") {
				c.ValidArgsFunction = s.completeJob
			}
			cmd.AddCommand(c)
		}
	}
	return cmd
}

// target is what -n, -v and -l name.
type target struct{ name, version, label string }

func (t *target) flags(cmd *cobra.Command, n noun) {
	cmd.Flags().StringVarP(&t.name, "name", "n", "", "name of the "+n.word)
	if n.versioned {
		cmd.Flags().StringVarP(&t.version, "version", "v", "", "version")
		cmd.Flags().StringVarP(&t.label, "label", "l", "", "label, for example latest")
	}
}

// need takes the name from an argument when -n gave none, and NAME:VERSION or NAME@LABEL apart.
func (t *target) need(n noun, args []string) error {
	if t.name == "" && len(args) > 0 {
		t.name = args[0]
	}
	if n.versioned && t.version == "" && t.label == "" {
		if name, version, ok := strings.Cut(t.name, ":"); ok {
			t.name, t.version = name, version
		} else if name, label, ok := strings.Cut(t.name, "@"); ok {
			t.name, t.label = name, label
		}
	}
	if t.name == "" {
		return usagef("give the name of the %s with -n", n.word)
	}
	if t.version != "" && t.label != "" {
		return usagef("give a version or a label, not both")
	}
	return nil
}

// path is where the target is in the API. An asset that names no version is its newest.
func (t *target) path(n noun) []string {
	switch {
	case n.collection == "":
		return nil
	case n.versioned && t.version != "":
		return []string{n.collection, t.name, "versions", t.version}
	case n.versioned && t.label != "":
		return []string{n.collection, t.name, "labels", t.label}
	case n.versioned:
		return []string{n.collection, t.name, "labels", "latest"}
	}
	return []string{n.collection, t.name}
}

// resolve opens the client and finds the target: a job may be named by a prefix, a workspace is its own client.
func (s *session) resolve(ctx context.Context, n noun, t *target) (*client.Client, error) {
	c, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	switch n.word {
	case "job":
		j, err := s.job(ctx, c, t.name)
		if err != nil {
			return nil, err
		}
		t.name = j.Name
	case "workspace":
		if t.name != "" {
			ws := c.Workspace
			ws.Name = t.name
			c = c.In(ws)
		}
		t.name = c.Workspace.Name
	}
	return c, nil
}

// read is the document of a target.
func (s *session) read(ctx context.Context, n noun, t *target) (*client.Client, client.Document, error) {
	c, err := s.resolve(ctx, n, t)
	if err != nil {
		return nil, nil, err
	}
	d, err := c.Get(ctx, t.path(n)...)
	if err == nil && n.versioned {
		if ref, err := berth.ParseRef(d.ID(), n.collection); err == nil && ref.Version != "" {
			t.version, t.label = ref.Version, "" // what the label meant
		}
	}
	return c, d, err
}
