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

// endpointNouns are online endpoints and their deployments.
func endpointNouns(thing []verb) []noun {
	return []noun{
		{
			word: "online-endpoint", collection: "onlineEndpoints", tracked: true, short: "Online endpoints: where models answer requests",
			verbs: append(localVerbs(append(slices.Clone(thing), invokeVerb)...), credentialsVerb, regenerateVerb),
			options: []option{
				{flag: "auth-mode", field: "auth_mode"},
				{flag: "traffic", field: "traffic", kind: sharesOption, update: true},
				{flag: "mirror-traffic", field: "mirror_traffic", kind: sharesOption, update: true},
				description, tags,
			},
			columns: []string{"name", "auth_mode", "traffic", "scoring_uri", "description"},
			table:   []column{{"name", "name"}, {"auth mode", "auth_mode"}, {"state", "provisioning_state"}},
		},
		{
			word: "online-deployment", collection: "onlineEndpoints", child: "deployments", tracked: true, short: "Deployments of online endpoints",
			verbs:   localVerbs(append(slices.Clone(thing), deploymentLogsVerb)...),
			options: []option{{flag: "instance-count", field: "instance_count", update: true}, {flag: "instance-type", field: "instance_type"}, description, tags},
			columns: []string{"name", "endpoint_name", "provisioning_state", "instance_count", "model"},
			table:   []column{{"name", "name"}, {"endpoint", "endpoint_name"}, {"state", "provisioning_state"}},
		},
	}
}

// invokeVerb is online-endpoint invoke.
func invokeVerb(s *session, n noun) *cobra.Command {
	var file, deployment string
	cmd := s.about(n, "invoke", "Send a request to an endpoint", func(ctx context.Context, c *client.Client, t *target) error {
		if file == "" {
			return usagef("give the request with --request-file FILE")
		}
		body, err := readGiven(file, "--request-file")
		if err != nil {
			return err
		}
		return s.invoke(ctx, c, t, n, deployment, body)
	})
	f := cmd.Flags()
	f.StringVarP(&file, "request-file", "r", "", "file with the request, JSON")
	f.StringVarP(&deployment, "deployment-name", "d", "", "this deployment, whatever the traffic")
	return cmd
}

func (s *session) invoke(ctx context.Context, c *client.Client, t *target, n noun, deployment string, body []byte) error {
	d, err := t.read(ctx, c, n)
	if err != nil {
		return err
	}
	got, err := c.Score(ctx, d, deployment, body)
	if err != nil {
		return err
	}
	if got.Status/100 != 2 {
		return berth.Errorf(berth.Invalid, "endpoint %s answered %d: %s", t.name, got.Status, strings.TrimSpace(string(got.Body)))
	}
	if s.format.az {
		return s.print(string(got.Body)) // az prints it as one JSON text
	}
	_, err = fmt.Fprintln(s.out, string(got.Body))
	return err
}

// credentialsVerb is online-endpoint get-credentials.
func credentialsVerb(s *session, n noun) *cobra.Command {
	return s.about(n, "get-credentials", "Show the keys or a token of an endpoint", func(ctx context.Context, c *client.Client, t *target) error {
		d, err := t.read(ctx, c, n)
		if err != nil {
			return err
		}
		action := "token"
		if mode, _ := d.Properties()["authMode"].(string); strings.EqualFold(mode, "key") {
			action = "listKeys"
		}
		keys := map[string]any{}
		if err := c.Post(ctx, map[string]any{}, &keys, n.collection, t.name, action); err != nil {
			return err
		}
		return s.print(keys)
	})
}

// regenerateVerb is online-endpoint regenerate-keys.
func regenerateVerb(s *session, n noun) *cobra.Command {
	which := ""
	cmd := s.about(n, "regenerate-keys", "Replace a key of an endpoint", func(ctx context.Context, c *client.Client, t *target) error {
		return c.Post(ctx, map[string]any{"keyType": which}, nil, n.collection, t.name, "regenerateKeys")
	})
	cmd.Flags().StringVar(&which, "key-type", "primary", "primary or secondary")
	ignored(cmd, "no-wait?")
	return cmd
}

// deploymentLogsVerb is online-deployment get-logs.
func deploymentLogsVerb(s *session, n noun) *cobra.Command {
	lines, container := 0, ""
	cmd := s.about(n, "get-logs", "Show the last lines of a deployment's log", func(ctx context.Context, c *client.Client, t *target) error {
		ask := map[string]any{}
		if lines > 0 {
			ask["tail"] = lines
		}
		if strings.EqualFold(container, "storage-initializer") {
			ask["containerType"] = "StorageInitializer"
		}
		var got struct{ Content string }
		if err := c.Post(ctx, ask, &got, append(t.path(n), "getLogs")...); err != nil {
			return err
		}
		if s.format.az {
			return s.print(got.Content)
		}
		_, err := fmt.Fprintln(s.out, got.Content)
		return err
	})
	cmd.Flags().IntVarP(&lines, "lines", "l", 0, "at most so many lines")
	cmd.Flags().StringVarP(&container, "container", "c", "", "inference-server or storage-initializer")
	return cmd
}

// allTraffic gives a deployment all the traffic of its endpoint, in one step.
func allTraffic(ctx context.Context, c *client.Client, endpoint, deployment string) error {
	d, err := c.Get(ctx, "onlineEndpoints", endpoint)
	if err != nil {
		return err
	}
	d.Properties()["traffic"] = map[string]int{deployment: 100}
	_, err = c.Put(ctx, d, "onlineEndpoints", endpoint)
	return err
}
