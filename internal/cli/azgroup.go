package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// azGroup is az group: resource groups, which hold workspaces.
func azGroup(s *session) *cobra.Command {
	g := &groups{s: s}
	show := g.verb("show", "Show a resource group", g.get)
	return azGroupOf("group", "Resource groups", g.create(), show, g.exists(), g.list(), g.remove(), g.wait())
}

// groups makes the verbs of az group. One of them runs.
type groups struct {
	s    *session
	name string
}

func (g *groups) path(c *client.Client) string {
	return "/subscriptions/" + c.Workspace.Subscription + "/resourceGroups/" + g.name
}

// verb is one verb: run finds the group named.
func (g *groups) verb(word, short string, run func(ctx context.Context, c *client.Client) (any, error)) *cobra.Command {
	var columns []column
	if word == "list" {
		columns = []column{{"name", "name"}, {"location", "location"}, {"status", "properties.provisioningState"}}
	}
	cmd := g.s.azTable(word, short, columns, func(ctx context.Context) (any, error) {
		if g.name == "" { // az takes -g too
			g.name = g.s.cfg.Workspace.Group
		}
		if g.name == "" && word != "list" && word != "show" {
			return nil, usagef("give the resource group with --name")
		}
		c, err := g.s.open(ctx)
		if err != nil {
			return nil, err
		}
		if g.name == "" {
			g.name = c.Workspace.Group // the default one
		}
		return run(ctx, c)
	})
	if word != "list" {
		cmd.Flags().StringVarP(&g.name, "name", "n", "", "the resource group")
	}
	return cmd
}

func (g *groups) get(ctx context.Context, c *client.Client) (any, error) {
	d, err := c.TreeGet(ctx, g.path(c))
	if berth.CodeOf(err) == berth.NotFound {
		return nil, berth.Errorf(berth.NotFound, "(ResourceGroupNotFound) Resource group '%s' could not be found.", g.name)
	}
	return groupForm(d), err
}

func (g *groups) create() *cobra.Command {
	var place string
	var tags wordGroups
	cmd := g.verb("create", "Create a resource group", func(ctx context.Context, c *client.Client) (any, error) {
		if place == "" {
			place = g.s.location(g.s.cfg.Home)
		}
		body := map[string]any{}
		if place != "" {
			body["location"] = place
		}
		if len(tags.groups) > 0 {
			m := map[string]any{}
			for _, group := range tags.groups {
				for _, word := range group {
					key, value, _ := strings.Cut(word, "=")
					m[key] = value
				}
			}
			body["tags"] = m
		}
		d, err := c.TreePut(ctx, body, g.path(c))
		return groupForm(d), err
	})
	cmd.Flags().StringVarP(&place, "location", "l", "", "ignored: the server has one location")
	cmd.Flags().Var(&tags, "tags", "KEY=VALUE …: tags")
	takesMany(cmd.Flags().Lookup("tags"), many)
	return cmd
}

func (g *groups) exists() *cobra.Command {
	return g.verb("exists", "Report whether a resource group exists", func(ctx context.Context, c *client.Client) (any, error) {
		_, err := c.TreeGet(ctx, g.path(c))
		if berth.CodeOf(err) == berth.NotFound {
			return false, nil
		}
		return true, err
	})
}

func (g *groups) list() *cobra.Command {
	var tag string
	cmd := g.verb("list", "List resource groups", func(ctx context.Context, c *client.Client) (any, error) {
		docs, err := collect(c.Tree(ctx, "/subscriptions/"+c.Workspace.Subscription+"/resourceGroups"), 0)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(docs, func(a, b client.Document) int { return strings.Compare(a.Name(), b.Name()) })
		out := []any{}
		key, value, hasValue := strings.Cut(tag, "=")
		for _, d := range docs {
			have, _ := d.Members["tags"].(map[string]any)
			got, there := have[key]
			if tag == "" || there && (!hasValue || fmt.Sprint(got) == value) {
				out = append(out, groupForm(d))
			}
		}
		return out, nil
	})
	cmd.Flags().StringVar(&tag, "tag", "", "only those with this tag: KEY or KEY=VALUE")
	return cmd
}

func (g *groups) remove() *cobra.Command {
	var yes bool
	cmd := ignored(g.verb("delete", "Delete a resource group and the workspaces in it", func(ctx context.Context, c *client.Client) (any, error) {
		return nil, g.delete(ctx, c, yes)
	}), "no-wait?", "force-deletion-types/f")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (g *groups) wait() *cobra.Command {
	var gone bool
	cmd := ignored(g.verb("wait", "Wait for a resource group; it is there, or gone, at once", func(ctx context.Context, c *client.Client) (any, error) {
		v, err := g.get(ctx, c)
		if gone && berth.CodeOf(err) == berth.NotFound {
			return nil, nil
		}
		return v, err
	}), "created?", "exists?", "updated?", "timeout", "interval", "custom")
	cmd.Flags().BoolVar(&gone, "deleted", false, "wait until it is deleted")
	return cmd
}

// groupForm is a resource group as az prints it.
func groupForm(d client.Document) map[string]any {
	if d.Members == nil {
		return nil
	}
	out := map[string]any{"managedBy": nil}
	for _, k := range []string{"id", "location", "name", "properties", "tags", "type"} {
		out[k] = d.Members[k]
	}
	return out
}

// delete deletes a resource group with everything in it, as Azure does.
func (g *groups) delete(ctx context.Context, c *client.Client, yes bool) error {
	if _, err := g.get(ctx, c); err != nil {
		return err
	}
	ws := c.Workspace
	ws.Group = g.name
	in, err := collect(c.In(ws).Workspaces(ctx, false), 0)
	if err != nil {
		return err
	}
	if !yes {
		question := "delete resource group " + g.name + "?"
		if len(in) > 0 {
			question = fmt.Sprintf("delete resource group %s with %d %s in it?", g.name, len(in), plural(len(in), "workspace"))
		}
		if err := g.s.confirm(question); err != nil {
			return err
		}
	}
	for _, d := range in {
		ws.Name = d.Name()
		if err := c.In(ws).Delete(ctx); err != nil && berth.CodeOf(err) != berth.NotFound {
			return err
		}
	}
	return c.TreeDelete(ctx, g.path(c))
}
