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
	var name, place, tag string
	var tags wordGroups
	var yes bool
	path := func(c *client.Client) string {
		return "/subscriptions/" + c.Workspace.Subscription + "/resourceGroups/" + name
	}
	command := func(word, short string, run func(ctx context.Context, c *client.Client) (any, error)) *cobra.Command {
		var columns []column
		if word == "list" {
			columns = []column{{"name", "name"}, {"location", "location"}, {"status", "properties.provisioningState"}}
		}
		cmd := s.azTable(word, short, columns, func(ctx context.Context) (any, error) {
			if name == "" { // az takes -g too
				name = s.cfg.Workspace.Group
			}
			if name == "" && word != "list" && word != "show" {
				return nil, usagef("give the resource group with --name")
			}
			c, err := s.open(ctx)
			if err != nil {
				return nil, err
			}
			if name == "" {
				name = c.Workspace.Group // the default one
			}
			return run(ctx, c)
		})
		if word != "list" {
			cmd.Flags().StringVarP(&name, "name", "n", "", "the resource group")
		}
		return cmd
	}
	get := func(ctx context.Context, c *client.Client) (any, error) {
		d, err := c.TreeGet(ctx, path(c))
		if berth.CodeOf(err) == berth.NotFound {
			return nil, berth.Errorf(berth.NotFound, "(ResourceGroupNotFound) Resource group '%s' could not be found.", name)
		}
		return groupForm(d), err
	}
	create := command("create", "Make a resource group", func(ctx context.Context, c *client.Client) (any, error) {
		if place == "" {
			place = s.location(s.cfg.Home)
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
		d, err := c.TreePut(ctx, body, path(c))
		return groupForm(d), err
	})
	create.Flags().StringVarP(&place, "location", "l", "", "where; the server is in one place")
	create.Flags().Var(&tags, "tags", "KEY=VALUE …: tags")
	takesMany(create.Flags().Lookup("tags"), many)
	exists := command("exists", "Say whether a resource group is there", func(ctx context.Context, c *client.Client) (any, error) {
		_, err := c.TreeGet(ctx, path(c))
		if berth.CodeOf(err) == berth.NotFound {
			return false, nil
		}
		return true, err
	})
	list := command("list", "List resource groups", func(ctx context.Context, c *client.Client) (any, error) {
		docs, err := collect(c.Tree(ctx, "/subscriptions/"+c.Workspace.Subscription+"/resourceGroups"), 0)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(docs, func(a, b client.Document) int { return strings.Compare(a.Name(), b.Name()) })
		out := []any{}
		key, value, hasValue := strings.Cut(tag, "=")
		for _, d := range docs {
			have, _ := d["tags"].(map[string]any)
			got, there := have[key]
			if tag == "" || there && (!hasValue || fmt.Sprint(got) == value) {
				out = append(out, groupForm(d))
			}
		}
		return out, nil
	})
	list.Flags().StringVar(&tag, "tag", "", "only those with this KEY or KEY=VALUE")
	remove := ignored(command("delete", "Delete a resource group and the workspaces in it", func(ctx context.Context, c *client.Client) (any, error) {
		return nil, s.deleteGroup(ctx, c, name, path(c), yes)
	}), "no-wait?", "force-deletion-types/f")
	remove.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	var gone bool
	wait := ignored(command("wait", "Wait for a resource group; it is there, or gone, at once", func(ctx context.Context, c *client.Client) (any, error) {
		v, err := get(ctx, c)
		if gone && berth.CodeOf(err) == berth.NotFound {
			return nil, nil
		}
		return v, err
	}), "created?", "exists?", "updated?", "timeout", "interval", "custom")
	wait.Flags().BoolVar(&gone, "deleted", false, "until it is gone")
	return azGroupOf("group", "Resource groups", create, command("show", "Show a resource group", get), exists, list, remove, wait)
}

// groupForm is a resource group as az prints it.
func groupForm(d client.Document) map[string]any {
	if d == nil {
		return nil
	}
	out := map[string]any{"managedBy": nil}
	for _, k := range []string{"id", "location", "name", "properties", "tags", "type"} {
		out[k] = d[k]
	}
	if m, ok := out["tags"].(map[string]any); ok && len(m) == 0 {
		out["tags"] = nil
	}
	return out
}

// deleteGroup deletes a resource group with everything in it, as Azure does.
func (s *session) deleteGroup(ctx context.Context, c *client.Client, name, path string, yes bool) error {
	if _, err := c.TreeGet(ctx, path); err != nil {
		if berth.CodeOf(err) == berth.NotFound {
			return berth.Errorf(berth.NotFound, "(ResourceGroupNotFound) Resource group '%s' could not be found.", name)
		}
		return err
	}
	ws := c.Workspace
	ws.Group = name
	in, err := collect(c.In(ws).Workspaces(ctx, false), 0)
	if err != nil {
		return err
	}
	if !yes {
		question := "delete resource group " + name + "?"
		if len(in) > 0 {
			question = fmt.Sprintf("delete resource group %s with %d %s in it?", name, len(in), plural(len(in), "workspace"))
		}
		if err := s.confirm(question); err != nil {
			return err
		}
	}
	for _, d := range in {
		ws.Name = d.Name()
		if err := c.In(ws).Delete(ctx); err != nil && berth.CodeOf(err) != berth.NotFound {
			return err
		}
	}
	return c.TreeDelete(ctx, path)
}
