package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// noun is a row of the table of resources: everything that tells one from another on the command
// line.
type noun struct {
	word       string // on the command line
	kind       string // of its YAML; the word when empty
	collection string // in the API; "" is the workspace itself
	child      string // of what is below another: its collection there
	versioned  bool
	tracked    bool // tags are at the top of the document
	short      string
	verbs      []verb
	// options are the flags of create and update that stand for a field of the YAML.
	options []option
	// columns of a list for people, as paths in the entity.
	columns []string
	// table is the columns of -o table, those of az.
	table []column
	// unserved are the verbs of az ml that this server cannot serve, and why not.
	unserved map[string]string
}

// a is a word with its article.
func a(word string) string {
	if word == "data" {
		word = "data asset"
	}
	if word != "" && strings.ContainsAny(word[:1], "aeiou") {
		return "an " + word
	}
	return "a " + word
}

// plurals is more than one of what a noun names.
func plurals(word string) string {
	switch {
	case word == "data":
		return "data assets"
	case strings.HasSuffix(word, "y"):
		return strings.TrimSuffix(word, "y") + "ies"
	}
	return word + "s"
}

// yaml is the kind of the noun's YAML.
func (n noun) yaml() string {
	if n.kind != "" {
		return n.kind
	}
	return n.word
}

// inStore reports whether az keeps the noun in a feature store, which is a workspace here.
func (n noun) inStore() bool { return strings.HasPrefix(n.word, "feature-") }

// verb makes the command of one verb of a noun.
type verb func(s *session, n noun) *cobra.Command

// nouns is every resource. Adding one is adding a row.
func nouns() []noun {
	asset := []verb{createVerb, listVerb, showVerb, updateVerb, archiveVerb, restoreVerb, validateVerb}
	thing := []verb{createVerb, listVerb, showVerb, updateVerb, deleteVerb}
	and := func(verbs []verb, more ...verb) []verb { return append(verbs[:len(verbs):len(verbs)], more...) }
	registry := map[string]string{"share": noRegistry}
	return append(append(endpointNouns(thing), batchNouns(thing)...), []noun{
		{
			word: "job", collection: "jobs", short: "Jobs",
			verbs: []verb{
				createVerb, listVerb, showVerb, updateVerb, archiveVerb, restoreVerb, deleteVerb, downloadVerb, cancelVerb, streamVerb, validateVerb,
				showServicesVerb,
			},
			table: []column{
				{"name", "name"},
				{"status", "status"},
				{"experiment", "experiment_name"},
				{"compute target", "compute"},
				{"job type", "type"},
				{"created on", "creation_context.created_at"},
			},
			unserved: map[string]string{"connect-ssh": "there is no ssh into a job; a compute instance has one"},
		},
		{
			word: "compute", collection: "computes", tracked: true, short: "Clusters, instances and machines that run jobs", options: computeOptions,
			verbs: append(and(
				thing,
				attachVerb,
				detachVerb,
				listNodesVerb,
				evictVerb,
				listSizesVerb,
				listUsageVerb,
			), instanceVerbs()...),
			columns:  []string{"name", "type", "provisioning_state", "description"},
			table:    []column{{"name", "name"}, {"compute type", "type"}, {"state", "state|provisioning_state"}, {"instance type", "size"}},
			unserved: map[string]string{"enable-sso": "it has no single sign-on to turn on or off"},
		},
		{
			word: "environment", collection: "environments", versioned: true, short: "Environments that jobs run in", verbs: asset, options: environmentOptions,
			columns:  []string{"name", "version", "latest_version", "description"},
			table:    []column{{"name", "name"}, {"latest version", "latest_version|latest version"}, {"version", "version"}},
			unserved: registry,
		},
		{
			word: "data", collection: "data", versioned: true, short: "Data assets", verbs: and(asset, downloadVerb), options: dataOptions,
			columns: []string{"name", "version", "latest_version", "type", "description"},
			table:   []column{{"name", "name"}, {"latest version", "latest_version"}, {"version", "version"}, {"data type", "version&type"}, {"path", "path"}},
			unserved: map[string]string{
				"share": noRegistry, "mount": noMount, "import": "it cannot import from databases and other clouds' stores",
				"list-materialization-status": "it imports no data, so there is nothing to list",
			},
		},
		{
			word: "datastore", collection: "datastores", short: "Where data is stored", verbs: and(thing, validateVerb),
			columns:  []string{"name", "type", "container_name", "is_default", "description"},
			table:    []column{{"name", "name"}, {"storage type", "type"}, {"storage account name", "account_name"}},
			unserved: map[string]string{"mount": noMount},
		},
		{
			word: "model", collection: "models", versioned: true, short: "Models", verbs: and(asset, downloadVerb), options: modelOptions,
			columns: []string{"name", "version", "latest_version", "type", "description"},
			table: []column{
				{"name", "name"},
				{"stage", "stage"},
				{"description", "description"},
				{"latest version", "latest_version|latest version"},
				{"version", "version"},
				{"model type", "version&type|model type"},
				{"path", "path"},
				{"resourceGroup", "resourceGroup"},
			},
			unserved: map[string]string{"share": noRegistry, "package": "it builds no model packages"},
		},
		{
			word: "component", collection: "components", versioned: true, short: "Reusable pipeline steps", verbs: asset,
			columns:  []string{"name", "version", "latest_version", "type", "description"},
			table:    []column{{"name", "name"}, {"latest version", "latest_version"}, {"version", "version"}, {"component type", "version&type"}},
			unserved: map[string]string{"prepare-for-sign": "it signs no components"},
		},
		{
			word: "workspace", collection: "", tracked: true, short: "Workspaces", verbs: and(thing, listKeysVerb, diagnoseVerb), options: workspaceOptions,
			columns: []string{"name", "resource_group", "location", "description"},
			table:   []column{{"name", "name"}, {"location", "location"}, {"description", "description"}},
			unserved: map[string]string{
				"sync-keys": "its workspaces have no keys of other services to copy", "provision-network": "it makes no managed networks", "outbound-rule": "it makes no managed networks",
			},
		},
		{
			word: "connection", collection: "connections", short: "Connections to other services, with credentials", verbs: thing,
			columns: []string{"name", "type", "target"}, table: []column{{"name", "name"}, {"target", "target"}},
		},
		{
			word: "feature-set", kind: "feature_set", collection: "featuresets", versioned: true, short: "Feature sets (stored as documents)", verbs: asset, options: featureSetOptions,
			columns: []string{"name", "version", "latest_version", "stage", "description"}, table: []column{{"name", "name"}, {"version", "version"}},
			unserved: map[string]string{
				"backfill": "it computes no features", "get-feature": "it computes no features", "show-feature": "it computes no features", "list-features": "it computes no features",
				"list-materialization-operation": "it computes no features",
			},
		},
		{
			word: "feature-store-entity", kind: "feature_store_entity", collection: "featurestoreEntities", versioned: true, short: "Feature store entities (stored as documents)", verbs: asset,
			options: []option{{flag: "description", short: "d", field: "description"}},
			columns: []string{"name", "version", "latest_version", "stage", "description"}, table: []column{{"name", "name"}, {"version", "version"}},
		},
	}...)
}

const (
	noRegistry = "it has no registries"
	noMount    = "it mounts no data here; `download` copies it"
)

// unserved are the nouns of az ml that this server does not serve, and what it lacks. A row goes
// when the server can.
var unserved = map[string]string{
	"serverless-endpoint":      "serverless endpoints",
	"marketplace-subscription": "a marketplace",
	"schedule":                 "schedules",
	"registry":                 "registries",
	"feature-store":            "feature stores of their own; `feature-set` and `feature-store-entity` keep documents in a workspace",
	"capability-host":          "capability hosts",
	"deployment-template":      "deployment templates",
	"azure-openai-deployment":  "Azure OpenAI",
	"index":                    "commands for index assets; the Python SDK's are served",
	"virtual-cluster":          "virtual clusters",
}

// unservedCommand stands for a noun that is not served: whatever is asked of it, it says so.
func unservedCommand(word, lacks string) *cobra.Command {
	return &cobra.Command{
		Use: word, Hidden: true, Args: cobra.ArbitraryArgs, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return usagef("%s is not served by this server yet: it has no %s", word, lacks)
		},
	}
}

func nounCommand(s *session, n noun, verbs bool) *cobra.Command {
	cmd := &cobra.Command{Use: n.word, Short: n.short, Args: cobra.ArbitraryArgs, RunE: group, FParseErrWhitelist: anyFlags}
	if n.inStore() {
		cmd.PersistentFlags().StringVar(&s.cfg.Workspace.Name, "feature-store-name", "", "the workspace, as az names the flag")
	}
	if verbs {
		for _, v := range n.verbs {
			c := v(s, n)
			if strings.Contains(c.Use, "[NAME") {
				c.ValidArgsFunction = first(s.completeNoun(n))
			}
			if c.Flags().Lookup("name") != nil && c.Name() != "create" {
				_ = c.RegisterFlagCompletionFunc("name", s.completeNoun(n)) // of a flag that is there
			}
			cmd.AddCommand(c)
		}
		for word, why := range n.unserved {
			cmd.AddCommand(&cobra.Command{
				Use: word, Hidden: true, Args: cobra.ArbitraryArgs, DisableFlagParsing: true,
				RunE: func(*cobra.Command, []string) error {
					return usagef("%s %s is not served by this server: %s", n.word, word, why)
				},
			})
		}
	}
	return cmd
}

// target is what -n, -v and -l name.
type target struct {
	name, version, label string
	registry             string // az's; there are none here
	parent               string // the endpoint of a deployment
}

func (t *target) flags(cmd *cobra.Command, n noun) {
	cmd.Flags().StringVarP(&t.name, "name", "n", "", "name of the "+n.word)
	if n.child != "" {
		cmd.Flags().StringVarP(&t.parent, "endpoint-name", "e", "", "its endpoint")
	}
	if n.versioned {
		cmd.Flags().StringVarP(&t.version, "version", "v", "", "version")
		cmd.Flags().StringVarP(&t.label, "label", "l", "", "label, for example latest")
		registryFlag(cmd, &t.registry)
	}
}

// registryFlag adds --registry-name, which az has where assets are named.
func registryFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "registry-name", "", "a registry; this server has none")
	cmd.Flags().Lookup("registry-name").Hidden = true
}

// noRegistries refuses the name of a registry.
func noRegistries(name string) error {
	if name == "" {
		return nil
	}
	return usagef("--registry-name %s: this server has no registries", name)
}

// need takes the name from an argument when -n gave none, and NAME:VERSION or NAME@LABEL apart.
func (t *target) need(n noun, args []string) error {
	if err := noRegistries(t.registry); err != nil {
		return err
	}
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
	if n.child != "" && t.parent == "" {
		return usagef("give the endpoint of the %s with --endpoint-name", n.word)
	}
	if t.version != "" && t.label != "" {
		return latef("give a version or a label, not both")
	}
	return nil
}

// path is where the target is in the API. An asset that names no version is its newest.
func (t *target) path(n noun) []string {
	switch {
	case n.collection == "":
		return nil
	case n.child != "":
		return []string{n.collection, t.parent, n.child, t.name}
	case n.versioned && t.version != "":
		return []string{n.collection, t.name, "versions", t.version}
	case n.versioned && t.label != "":
		return []string{n.collection, t.name, "labels", t.label}
	case n.versioned:
		return []string{n.collection, t.name, "labels", "latest"}
	}
	return []string{n.collection, t.name}
}

// resolve opens the client and finds the target: a job may be named by a prefix, of the user's own
// jobs when mine is set; a workspace is its own client.
func (s *session) resolve(ctx context.Context, n noun, t *target, mine bool) (*client.Client, error) {
	c, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	switch n.word {
	case "job":
		j, err := s.findJob(ctx, c, t.name, mine)
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

// read is the document of the target, which then knows its version.
func (t *target) read(ctx context.Context, c *client.Client, n noun) (client.Document, error) {
	d, err := c.Get(ctx, t.path(n)...)
	if unnamed := n.word == "model" && t.label == "latest"; t.label != "" && !unnamed && berth.CodeOf(err) == berth.NotFound {
		err = noLabel{err} // which az finds out by itself, but for the latest of models
	}
	if err == nil && n.versioned {
		if ref, err := berth.ParseRef(d.ID(), n.collection); err == nil && ref.Version != "" {
			t.version, t.label = ref.Version, "" // what the label meant
		}
	}
	return d, err
}
