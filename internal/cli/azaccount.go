package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// azAccount is az account: the subscriptions of this server, which are no more than the beginnings
// of names.
func azAccount(s *session) *cobra.Command {
	show := ignored(s.azCommand("show", "Show the subscription in use", func(ctx context.Context) (any, error) {
		all, err := s.accounts(ctx)
		if err != nil {
			return nil, err
		}
		for _, a := range all {
			if a["isDefault"] == true {
				return a, nil
			}
		}
		return nil, berth.Errorf(berth.NotFound, "there is no subscription")
	}), "name/n", "sdk-auth?")
	show.Flags().StringVarP(&s.cfg.Workspace.Subscription, "subscription", "s", "", "id of the subscription")
	list := ignored(s.azTable("list", "List subscriptions", []column{
		{"name", "name"},
		{"cloudName", "environmentName"},
		{"subscriptionId", "id"},
		{"tenantId", "tenantId"},
		{"state", "state"},
		{"isDefault", "isDefault"},
	}, func(ctx context.Context) (any, error) { return s.accounts(ctx) }), "all?", "refresh?")
	set := ignored(s.azCommand("set", "Choose a subscription", func(ctx context.Context) (any, error) { return nil, s.setAccount(ctx) }), "name/n")
	set.Flags().StringVarP(&s.cfg.Workspace.Subscription, "subscription", "s", "", "id or name of the subscription")
	places := ignored(s.azCommand("list-locations", "List the locations", func(ctx context.Context) (any, error) {
		c, err := s.open(ctx)
		if err != nil {
			return nil, err
		}
		a, err := c.About(ctx)
		return []any{map[string]any{"name": a.Location, "displayName": a.Location, "regionalDisplayName": a.Location, "type": "Region"}}, err
	}), "include-extended-locations")
	return azGroupOf("account", "Subscriptions", show, list, set, places, azAccessToken(s), ignored(s.azCommand("clear", "Do nothing", func(context.Context) (any, error) {
		s.say("this is Berth: there is no login to forget")
		return nil, nil
	})))
}

// accounts is the subscriptions in az's form, the one in use marked.
func (s *session) accounts(ctx context.Context) ([]map[string]any, error) {
	c, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	about, err := c.About(ctx)
	if err != nil {
		return nil, err
	}
	subs, err := collect(c.Tree(ctx, "/subscriptions"), 0)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(subs, func(a, b client.Document) int { return strings.Compare(a.ID(), b.ID()) })
	out := []map[string]any{}
	chosen := false
	add := func(id, name, tenant string) {
		mine := strings.EqualFold(id, c.Workspace.Subscription)
		chosen = chosen || mine
		out = append(out, map[string]any{
			"environmentName": "Berth", "homeTenantId": tenant, "id": id, "isDefault": mine, "managedByTenants": []any{}, "name": name,
			"state": "Enabled", "tenantId": tenant, "user": map[string]any{"name": about.User, "type": "user"},
		})
	}
	tenant := ""
	for _, d := range subs {
		id, _ := d.Members["subscriptionId"].(string)
		name, _ := d.Members["displayName"].(string)
		tenant, _ = d.Members["tenantId"].(string)
		add(id, name, tenant)
	}
	if !chosen {
		add(c.Workspace.Subscription, "berth", tenant) // one that was set and holds nothing yet
	}
	return out, nil
}

// setAccount keeps the subscription that --subscription names. Any id will do: a subscription here
// is the beginning of a name.
func (s *session) setAccount(ctx context.Context) error {
	want := s.cfg.Workspace.Subscription
	if want == "" {
		return usagef("give the subscription with --subscription")
	}
	s.cfg.Workspace.Subscription = ""
	id := want
	if !isGUID(want) {
		all, err := s.accounts(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(a map[string]any) bool { return a["id"] == want || strings.EqualFold(a["name"].(string), want) })
		if i < 0 {
			return berth.Errorf(berth.Invalid, "The subscription of '%s' doesn't exist in cloud 'Berth'.", want)
		}
		id = all[i]["id"].(string)
	}
	cfg, err := s.config()
	if err != nil {
		return err
	}
	kept, err := readSettings(cfg.Home)
	if err != nil {
		return err
	}
	kept.set("berth", "subscription", id)
	return kept.write()
}

func isGUID(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i, c := range text {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (c == '-') || !dash && !strings.ContainsRune("0123456789abcdefABCDEF", c) {
			return false
		}
	}
	return true
}

// azAccessToken is az account get-access-token: a token of this server for those who call it with
// curl.
func azAccessToken(s *session) *cobra.Command {
	var resource, scope string
	cmd := s.azCommand("get-access-token", "Get a token for calling the server", func(ctx context.Context) (any, error) {
		c, err := s.open(ctx)
		if err != nil {
			return nil, err
		}
		about, err := c.About(ctx)
		if err != nil {
			return nil, err
		}
		env, err := s.azureEnv(c, about)
		if err != nil {
			return nil, err
		}
		if resource == "" {
			resource = strings.TrimSuffix(scope, "/.default")
		}
		if resource == "" {
			resource = about.URL
		}
		t, err := c.AccessToken(ctx, env.Token, resource)
		if err != nil {
			return nil, err
		}
		all, err := s.accounts(ctx)
		if err != nil {
			return nil, err
		}
		return map[string]any{
			"accessToken": t.Token, "expiresOn": t.Expires.Local().Format("2006-01-02 15:04:05.000000"), "expires_on": t.Expires.Unix(),
			"subscription": c.Workspace.Subscription, "tenant": all[0]["tenantId"], "tokenType": "Bearer",
		}, nil
	})
	cmd.Flags().StringVar(&resource, "resource", "", "resource that the token is for")
	cmd.Flags().StringVar(&scope, "scope", "", "resource that the token is for, with /.default")
	return ignored(cmd, "resource-type", "tenant/t", "name/n")
}
