package cli

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// azDeployment is az deployment: templates that are deployed into resource groups.
func azDeployment(s *session) *cobra.Command {
	d := &templates{s: s}
	whatIf := refusedCommand("what-if", func(cmd *cobra.Command) string {
		return "what-if is not supported: `" + cmd.Parent().CommandPath() + " validate` checks a template and lists the resources it would make"
	})
	group := azGroupOf("group", "Deployments in a resource group", d.create(), d.validate(), d.show(), d.list(), d.remove(), whatIf)
	all := []*cobra.Command{group}
	for word, what := range map[string]string{"sub": "subscriptions", "mg": "management groups", "tenant": "tenants"} {
		all = append(all, refusedCommand(word, func(cmd *cobra.Command) string {
			return "there are no deployments into " + what + " here: use `" + cmd.Parent().CommandPath() + " group create`, which deploys into a resource group"
		}))
	}
	return azGroupOf("deployment", "Deploy Azure Resource Manager templates", all...)
}

// refusedCommand is a command of az that is not possible here, whatever words come after it.
func refusedCommand(word string, why func(*cobra.Command) string) *cobra.Command {
	return &cobra.Command{
		Use: word, Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return berth.Errorf(berth.Unsupported, "%s", why(cmd)) },
	}
}

// templates makes the verbs of az deployment group. One of them runs.
type templates struct {
	s          *session
	name, file string
	parameters wordGroups
}

// deploymentColumns are those of a table.
var deploymentColumns = []column{{"name", "name"}, {"state", "properties.provisioningState"}, {"timestamp", "properties.timestamp"}}

func (d *templates) path(c *client.Client) string {
	p := "/subscriptions/" + c.Workspace.Subscription + "/resourceGroups/" + c.Workspace.Group + "/providers/Microsoft.Resources/deployments"
	if d.name != "" {
		p += "/" + d.name
	}
	return p
}

// verb is one verb; sends says that it sends a template.
func (d *templates) verb(word, short string, sends bool, run func(ctx context.Context, c *client.Client) (any, error)) *cobra.Command {
	cmd := d.s.azTable(word, short, deploymentColumns, func(ctx context.Context) (any, error) {
		if sends && d.file == "" {
			return nil, usagef("give the template with --template-file")
		}
		if sends && d.name == "" {
			d.name = strings.TrimSuffix(filepath.Base(d.file), filepath.Ext(d.file))
		}
		if d.name == "" && word != "list" {
			return nil, usagef("give the deployment with --name")
		}
		c, err := d.s.open(ctx)
		if err != nil {
			return nil, err
		}
		return run(ctx, c)
	})
	f := cmd.Flags()
	if word != "list" {
		f.StringVarP(&d.name, "name", "n", "", "the deployment; the name of the template's file unless given")
	}
	if sends {
		f.StringVarP(&d.file, "template-file", "f", "", "the template, a JSON file")
		f.VarP(&d.parameters, "parameters", "p", "KEY=VALUE …, a file of parameters, or JSON")
		takesMany(f.Lookup("parameters"), many)
		f.String("mode", "Incremental", "only Incremental is possible")
		for name, why := range map[string]refusal{
			"template-uri":  "--template-uri: templates are not fetched from elsewhere; download it and give it with --template-file",
			"template-spec": "--template-spec: there are no template specs; give the template with --template-file",
		} {
			f.Var(why, name, string(why))
			f.Lookup(name).Hidden = true
		}
		ignored(cmd, "no-prompt", "handle-extended-json-format?/j", "validation-level", "rollback-on-error")
	}
	return cmd
}

func (d *templates) create() *cobra.Command {
	var noWait, whatIf bool
	cmd := d.verb("create", "Deploy a template into the resource group", true, func(ctx context.Context, c *client.Client) (any, error) {
		if whatIf {
			return nil, berth.Errorf(berth.Unsupported, "what-if is not supported; use `berth deployment group validate`")
		}
		body, err := d.body()
		if err != nil {
			return nil, err
		}
		got, err := c.TreePut(ctx, body, d.path(c))
		if err != nil || noWait {
			return got.Members, err
		}
		return d.settle(ctx, c, got)
	})
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait until the resources are there")
	cmd.Flags().BoolVar(&whatIf, "what-if", false, "not supported")
	cmd.Flags().BoolVar(&whatIf, "confirm-with-what-if", false, "not supported")
	cmd.Flags().Lookup("what-if").Hidden, cmd.Flags().Lookup("confirm-with-what-if").Hidden = true, true
	return cmd
}

// settle waits until a deployment has ended.
func (d *templates) settle(ctx context.Context, c *client.Client, got client.Document) (any, error) {
	for {
		props, _ := got.Members["properties"].(map[string]any)
		switch props["provisioningState"] {
		case "Running", "Accepted":
		case "Failed":
			why, _ := props["error"].(map[string]any)
			text, _ := why["message"].(string)
			return nil, berth.Errorf(berth.Invalid, "deployment %s failed: %s", d.name, text)
		default:
			ours, _ := props["berth"].(map[string]any)
			notes, _ := ours["notes"].([]any)
			for _, n := range notes {
				if text, ok := n.(string); ok {
					d.s.hint("%s", text)
				}
			}
			return got.Members, nil
		}
		t := time.NewTimer(500 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		}
		var err error
		if got, err = c.TreeGet(ctx, d.path(c)); err != nil {
			return nil, err
		}
	}
}

func (d *templates) validate() *cobra.Command {
	return d.verb("validate", "Check a template without deploying it", true, func(ctx context.Context, c *client.Client) (any, error) {
		body, err := d.body()
		if err != nil {
			return nil, err
		}
		got, err := c.TreePost(ctx, body, d.path(c)+"/validate")
		return got.Members, err
	})
}

func (d *templates) show() *cobra.Command {
	return d.verb("show", "Show a deployment", false, func(ctx context.Context, c *client.Client) (any, error) {
		got, err := c.TreeGet(ctx, d.path(c))
		return got.Members, err
	})
}

func (d *templates) list() *cobra.Command {
	return d.verb("list", "List the deployments of the resource group", false, func(ctx context.Context, c *client.Client) (any, error) {
		docs, err := collect(c.Tree(ctx, d.path(c)), 0)
		out := []any{}
		for _, doc := range docs {
			out = append(out, doc.Members)
		}
		return out, err
	})
}

func (d *templates) remove() *cobra.Command {
	return ignored(d.verb("delete", "Delete the record of a deployment; its resources stay", false, func(ctx context.Context, c *client.Client) (any, error) {
		if !d.s.format.az { // az says nothing of one that is not there
			if _, err := c.TreeGet(ctx, d.path(c)); err != nil {
				return nil, err
			}
		}
		return nil, c.TreeDelete(ctx, d.path(c))
	}), "no-wait?", "yes?/y")
}

// body is what is sent: the template and its parameters.
func (d *templates) body() (any, error) {
	template, err := readTemplate(d.file)
	if err != nil {
		return nil, err
	}
	declared, _ := template["parameters"].(map[string]any)
	given := map[string]any{}
	for _, words := range d.parameters.groups {
		for _, word := range words {
			if err := addParameter(given, declared, word); err != nil {
				return nil, err
			}
		}
	}
	return map[string]any{"properties": map[string]any{"mode": "Incremental", "template": template, "parameters": given}}, nil
}

// readTemplate reads a JSON file, which may have comments.
func readTemplate(path string) (map[string]any, error) {
	if strings.EqualFold(filepath.Ext(path), ".bicep") || strings.EqualFold(filepath.Ext(path), ".bicepparam") {
		return nil, berth.Errorf(berth.Unsupported, "%s: Bicep is not compiled here; run `bicep build` and give the JSON file", path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, berth.Errorf(berth.Invalid, "there is no file %s", path)
		}
		return nil, err
	}
	var out map[string]any
	if err := json.Unmarshal(stripComments(b), &out); err != nil {
		return nil, berth.Errorf(berth.Invalid, "%s is not JSON: %w", path, err)
	}
	if out == nil {
		return nil, berth.Errorf(berth.Invalid, "%s is not a JSON object", path)
	}
	return out, nil
}

// stripComments replaces // and /* */ outside of strings by spaces, so that places in errors stay.
func stripComments(b []byte) []byte {
	out := append([]byte{}, b...)
	for i := 0; i < len(out); i++ {
		switch {
		case out[i] == '"':
			for i++; i < len(out) && out[i] != '"'; i++ {
				if out[i] == '\\' {
					i++
				}
			}
		case out[i] == '/' && i+1 < len(out) && out[i+1] == '/':
			for ; i < len(out) && out[i] != '\n'; i++ {
				out[i] = ' '
			}
		case out[i] == '/' && i+1 < len(out) && out[i+1] == '*':
			end := strings.Index(string(out[i+2:]), "*/")
			if end < 0 {
				return out
			}
			for stop := i + 2 + end + 2; i < stop; i++ {
				if out[i] != '\n' {
					out[i] = ' '
				}
			}
			i--
		}
	}
	return out
}

// addParameter takes up one word after --parameters.
func addParameter(given, declared map[string]any, word string) error {
	key, text, isPair := strings.Cut(word, "=")
	switch {
	case strings.HasPrefix(strings.TrimSpace(word), "{"):
		return addParameters(given, []byte(word), "--parameters")
	case !isPair || strings.HasPrefix(word, "@") || strings.ContainsAny(key, "/\\"):
		path := strings.TrimPrefix(word, "@")
		m, err := readTemplate(path)
		if err != nil {
			return err
		}
		b, err := json.Marshal(m)
		if err != nil {
			return err
		}
		return addParameters(given, b, path)
	}
	spec, _ := declared[key].(map[string]any)
	typ, _ := spec["type"].(string)
	if strings.HasPrefix(text, "@") {
		b, err := os.ReadFile(text[1:])
		if err != nil {
			return berth.Errorf(berth.Invalid, "--parameters %s: %w", key, err)
		}
		text = string(b)
	}
	var value any = text
	if !strings.HasSuffix(strings.ToLower(typ), "string") {
		var v any
		if json.Unmarshal([]byte(text), &v) == nil {
			value = v
		} else if l := strings.ToLower(text); typ != "" && (l == "true" || l == "false") {
			value = l == "true"
		}
	}
	given[key] = map[string]any{"value": value}
	return nil
}

// addParameters takes up the parameters of a file, or of JSON on the command line.
func addParameters(given map[string]any, b []byte, from string) error {
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		return berth.Errorf(berth.Invalid, "%s: the parameters are not JSON: %w", from, err)
	}
	if inner, ok := m["parameters"].(map[string]any); ok && (m["$schema"] != nil || m["contentVersion"] != nil || len(m) == 1) {
		m = inner
	}
	for k, v := range m {
		given[k] = v
	}
	return nil
}
