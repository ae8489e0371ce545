package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// endpointCommand is what people do with online endpoints.
func endpointCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "endpoint", Short: "Online endpoints: list, test, load, top, logs, explain, traffic, rollback",
		Args: cobra.ArbitraryArgs, RunE: group,
	}
	for _, make := range []func(*session) *cobra.Command{
		endpointList, endpointTest, endpointLoad, endpointTop, endpointLogs, endpointExplain, endpointTraffic, endpointRollback, endpointDelete,
	} {
		cmd.AddCommand(make(s))
	}
	return cmd
}

// ofEndpoint makes a command whose first argument is an endpoint.
func (s *session) ofEndpoint(use, short string, args cobra.PositionalArgs, run func(ctx context.Context, c *client.Client, args []string) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			c, err := s.open(ctx)
			if err != nil {
				return err
			}
			if err = run(ctx, c, args); interrupted(ctx, err) {
				return exitError(exitInterrupted)
			}
			return err
		},
	}
	s.format.flags(cmd)
	return cmd
}

// curl is a command that calls an endpoint.
func (s *session) curl(ctx context.Context, c *client.Client, endpoint client.Document, o *deployment) string {
	uri, _ := endpoint.Properties()["scoringUri"].(string)
	if o.command != "" {
		uri = strings.TrimSuffix(uri, "score")
	}
	words := []string{"curl"}
	ca := s.cfg.CA
	if own := filepath.Join(s.cfg.Home, "tls", "ca.pem"); ca == "" {
		if _, err := os.Stat(own); err == nil {
			ca = own
		}
	}
	if ca != "" {
		words = append(words, "--cacert", quote(ca))
	}
	query := map[string]string{"aml_token": "accessToken", "amltoken": "accessToken"}[strings.ToLower(fmt.Sprint(endpoint.Properties()["authMode"]))]
	if query == "" {
		query = "primaryKey"
	}
	key := "$(berth online-endpoint get-credentials -n " + endpoint.Name() + " --query " + query + " -o tsv)"
	if strings.EqualFold(fmt.Sprint(endpoint.Properties()["authMode"]), "AADToken") {
		key = "$BERTH_TOKEN"
	}
	words = append(words, `-H "Authorization: Bearer `+key+`"`)
	if o.command == "" {
		words = append(words, "-H 'Content-Type: application/json'", "-d", quote(s.example(ctx, c, endpoint, o)))
	}
	return strings.Join(append(words, quote(uri)), " ")
}

// example is a request for an endpoint: that of the model, that of its schema, or an empty one.
func (s *session) example(ctx context.Context, c *client.Client, endpoint client.Document, o *deployment) string {
	if b, err := os.ReadFile(filepath.Join(o.what, "serving_input_example.json")); err == nil && json.Valid(b) {
		return strings.TrimSpace(string(b))
	}
	scorer, err := c.Scorer(ctx, endpoint)
	if err == nil {
		var doc struct {
			Definitions struct {
				ServiceInput struct{ Example json.RawMessage }
			}
		}
		if got, err := scorer.Do(ctx, http.MethodGet, "swagger.json", o.deployment, nil); err == nil && got.Status == http.StatusOK && json.Unmarshal(got.Body, &doc) == nil {
			if e := doc.Definitions.ServiceInput.Example; len(e) > 0 && string(e) != "null" && string(e) != "{}" {
				return string(e)
			}
		}
	}
	return `{"data": []}`
}

func endpointList(s *session) *cobra.Command {
	return s.ofEndpoint("list", "List online endpoints with their traffic and replicas", noArgs, func(ctx context.Context, c *client.Client, _ []string) error {
		rows := []map[string]any{}
		t := table{header: []string{"NAME", "TRAFFIC", "REPLICAS", "REQUESTS", "ERRORS", "P50", "P99", "STATE", "ADDRESS"}}
		for d, err := range c.List(ctx, nil, "onlineEndpoints") {
			if err != nil {
				return err
			}
			all, err := c.EndpointMetrics(ctx, d.Name())
			if err != nil {
				return err
			}
			uri, _ := d.Properties()["scoringUri"].(string)
			rows = append(rows, map[string]any{"name": d.Name(), "scoring_uri": uri, "deployments": all})
			t.add(endpointRow(d.Name(), uri, all)...)
		}
		if s.format.chosen() {
			return s.print(rows)
		}
		if len(rows) == 0 {
			s.say("there are no online endpoints; `berth deploy MODEL` makes one")
			return nil
		}
		return s.printRows(t)
	})
}

// endpointRow sums the deployments of an endpoint up.
func endpointRow(name, uri string, all []berth.DeploymentMetrics) []cell {
	var shares []string
	var requests, errors int64
	ready, replicas := 0, 0
	state, p50, p99 := "no deployment", 0.0, 0.0
	for i, m := range all {
		if m.Traffic > 0 {
			shares = append(shares, m.Deployment+" "+strconv.Itoa(m.Traffic)+" %")
		}
		requests += m.Stats.Requests
		errors += m.Stats.Errors
		p50, p99 = max(p50, m.Stats.P50), max(p99, m.Stats.P99)
		for _, r := range m.Replicas {
			replicas++
			if r.State == berth.ReplicaReady {
				ready++
			}
		}
		if i == 0 || m.State != berth.DeploymentSucceeded {
			state = m.State
		}
	}
	color := green
	if state != berth.DeploymentSucceeded {
		color = yellow
	}
	if state == berth.DeploymentFailed {
		color = red
	}
	return []cell{
		{name, bold},
		{dash(strings.Join(shares, ", ")), ""},
		{fmt.Sprintf("%d/%d", ready, replicas), ""},
		{strconv.FormatInt(requests, 10), ""},
		{strconv.FormatInt(errors, 10), ""},
		{latency(p50), ""},
		{latency(p99), ""},
		{state, color},
		{uri, dim},
	}
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func latency(ms float64) string {
	if ms == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", ms)
}

func endpointTest(s *session) *cobra.Command {
	var data, deployment, path string
	cmd := s.ofEndpoint("test NAME [-d DATA]", "Send one request and show the answer and how long it took", oneArg("endpoint"), func(ctx context.Context, c *client.Client, args []string) error {
		d, err := c.Get(ctx, "onlineEndpoints", args[0])
		if err != nil {
			return err
		}
		body, err := requestData(data)
		if err != nil {
			return err
		}
		if body == nil {
			body = []byte(s.example(ctx, c, d, &request{deployment: deployment}))
		}
		scorer, err := c.Scorer(ctx, d)
		if err != nil {
			return err
		}
		began := time.Now()
		got, err := scorer.Do(ctx, http.MethodPost, path, deployment, body)
		if err != nil {
			return err
		}
		took := time.Since(began)
		s.say("%d from %s in %s, of which run took %s ms", got.Status, dash(got.Header.Get(berth.DeploymentHeader)), span(took), dash(got.Header.Get("X-Ms-Run-Fn-Exec-Ms")))
		if _, err := fmt.Fprintln(s.out, strings.TrimRight(string(got.Body), "\n")); err != nil {
			return err
		}
		if got.Status/100 != 2 {
			return exitError(exitFailed)
		}
		return nil
	})
	requestFlags(cmd, &data, &deployment, &path)
	return cmd
}

// request is a deployment of which only an example of a request is needed.
type request = deployment

func requestFlags(cmd *cobra.Command, data, deployment, path *string) {
	f := cmd.Flags()
	f.StringVarP(data, "data", "d", "", "the request, or @FILE")
	f.StringVar(deployment, "deployment", "", "this deployment, whatever the traffic")
	f.StringVar(path, "path", "score", "path below the endpoint")
}

// requestData is a request as given, or the content of @FILE.
func requestData(text string) ([]byte, error) {
	if file, ok := strings.CutPrefix(text, "@"); ok {
		return readGiven(file, "--data")
	}
	if text == "" {
		return nil, nil
	}
	return []byte(text), nil
}

// readGiven reads a file that an option names.
func readGiven(file, option string) ([]byte, error) {
	b, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, berth.Errorf(berth.Invalid, "there is no file %s, which %s names", file, option)
	case err != nil:
		return nil, berth.Errorf(berth.Invalid, "the file %s, which %s names, cannot be read: %w", file, option, err)
	}
	return b, nil
}

func endpointTraffic(s *session) *cobra.Command {
	return s.ofEndpoint("traffic NAME [DEPLOYMENT=PERCENT …]", "Show the traffic of an endpoint, or change it", someArgs("endpoint"), func(ctx context.Context, c *client.Client, args []string) error {
		d, err := c.Get(ctx, "onlineEndpoints", args[0])
		if err != nil {
			return err
		}
		if len(args) > 1 {
			shares := map[string]int{}
			for _, word := range args[1:] {
				name, text, ok := strings.Cut(word, "=")
				n, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
				if !ok || err != nil {
					return usagef("%s: write DEPLOYMENT=PERCENT, for example blue=90 green=10", word)
				}
				shares[name] = n
			}
			all, err := c.EndpointMetrics(ctx, args[0])
			if err != nil {
				return err
			}
			for name := range shares {
				if !slices.ContainsFunc(all, func(m berth.DeploymentMetrics) bool { return strings.EqualFold(m.Deployment, name) }) {
					return berth.Errorf(berth.NotFound, "endpoint %s has no deployment %s", d.Name(), name)
				}
			}
			d.Properties()["traffic"] = shares
			if d, err = c.Put(ctx, d, "onlineEndpoints", args[0]); err != nil {
				return err
			}
		}
		shares, _ := d.Properties()["traffic"].(map[string]any)
		if s.format.chosen() {
			return s.print(shares)
		}
		for _, name := range sortedKeys(shares) {
			if _, err := fmt.Fprintf(s.out, "%s %v %%\n", name, shares[name]); err != nil {
				return err
			}
		}
		return nil
	})
}

func someArgs(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("give one %s: `%s`", what, cmd.UseLine())
		}
		return nil
	}
}

// mainDeployment is the one that is named, or the one with the most traffic.
func mainDeployment(ctx context.Context, c *client.Client, args []string) (string, error) {
	if len(args) > 1 {
		return args[1], nil
	}
	all, err := c.EndpointMetrics(ctx, args[0])
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", berth.Errorf(berth.NotFound, "endpoint %s has no deployment", args[0])
	}
	return slices.MaxFunc(all, func(a, b berth.DeploymentMetrics) int { return a.Traffic - b.Traffic }).Deployment, nil
}

func endpointRollback(s *session) *cobra.Command {
	return s.ofEndpoint("rollback NAME [DEPLOYMENT]", "Undo the last change of a deployment", oneOrTwo, func(ctx context.Context, c *client.Client, args []string) error {
		deployment, err := mainDeployment(ctx, c, args)
		if err != nil {
			return err
		}
		path := []string{"onlineEndpoints", args[0], "deployments", deployment}
		if err := c.Post(ctx, map[string]any{}, nil, append(slices.Clone(path), "rollback")...); err != nil {
			return err
		}
		d, err := settled(ctx, c, path)
		if err == nil {
			err = s.broken(endpointNouns(nil)[1], d)
		}
		if err != nil {
			return err
		}
		s.say("deployment %s of endpoint %s is what it was before", deployment, args[0])
		if s.format.chosen() {
			return s.print(s.entity(endpointNouns(nil)[1], d))
		}
		return nil
	})
}

func oneOrTwo(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || len(args) > 2 {
		return usagef("give an endpoint, and a deployment if it has several: `%s`", cmd.UseLine())
	}
	return nil
}

func endpointDelete(s *session) *cobra.Command {
	yes := false
	cmd := s.ofEndpoint("delete NAME", "Delete an endpoint with all its deployments", oneArg("endpoint"), func(ctx context.Context, c *client.Client, args []string) error {
		all, err := c.EndpointMetrics(ctx, args[0])
		if err != nil {
			return err
		}
		if !yes {
			if err := s.confirm(fmt.Sprintf("delete endpoint %s with its %d deployments?", args[0], len(all))); err != nil {
				return err
			}
		}
		return c.Delete(ctx, "onlineEndpoints", args[0])
	})
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}
