package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// about makes a command about one resource: named by -n, and -v or -l for an asset, or by an
// argument. It opens the client, finds the resource and hands over.
func (s *session) about(n noun, word, short string, run func(ctx context.Context, c *client.Client, t *target) error) *cobra.Command {
	t := &target{}
	cmd := &cobra.Command{
		Use: word + " [NAME]", Short: short, Args: maxArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			if n.word != "workspace" || t.name != "" || len(args) > 0 || word == "delete" {
				if err := t.need(n, args); err != nil {
					return err
				}
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			c, err := s.resolve(ctx, n, t, slices.Contains(changing, word))
			if err != nil {
				return err
			}
			return run(ctx, c, t)
		},
	}
	t.flags(cmd, n)
	s.format.flags(cmd)
	return cmd
}

// changing are the verbs of jobs for which the beginning of a name means the user's own jobs only.
var changing = []string{"cancel", "archive", "restore", "update"}

// webFlag adds --web, for az's sake: there are no pages to show yet.
func (s *session) webFlag(cmd *cobra.Command) *bool {
	web := new(bool)
	cmd.Flags().BoolVarP(web, "web", "e", false, "show its page in a browser")
	return web
}

func (s *session) web(asked bool, name string) {
	if asked {
		s.say("this server has no web pages to show; `berth logs -f %s` and `berth explain %s` tell of the job", name, name)
	}
}

// showVerb is NOUN show.
func showVerb(s *session, n noun) *cobra.Command {
	var web, secrets *bool
	cmd := s.about(n, "show", "Show "+a(n.word), func(ctx context.Context, c *client.Client, t *target) error {
		d, err := t.read(ctx, c, n)
		if err != nil {
			return err
		}
		if n.word == "job" {
			s.web(*web, t.name)
		}
		if d, err = withSecrets(ctx, c, d, secrets); err != nil {
			return err
		}
		if n.word == "compute" && s.format.plainly() {
			defer s.describeInstance(d)
		}
		if n.word == "job" && !s.format.chosen() {
			defer s.warnOfJob(ctx, c, t.name)
		}
		out := s.entity(n, d)
		if n.word == "model" && !s.format.az {
			if err := addRegistered(ctx, c, d, out); err != nil {
				return err
			}
		}
		return s.print(out)
	})
	switch n.word {
	case "job":
		web = s.webFlag(cmd)
	case "connection":
		secrets = secretsFlag(cmd)
	}
	return cmd
}

// addRegistered adds what only MLflow's registry says of a version of a model: its aliases and its
// stage there.
func addRegistered(ctx context.Context, c *client.Client, d client.Document, out map[string]any) error {
	ref, err := berth.ParseRef(d.ID(), "models")
	if err != nil {
		return err
	}
	if _, err := strconv.Atoi(ref.Version); err != nil {
		return nil //nolint:nilerr // the registry has numbers only
	}
	v, err := c.ModelVersion(ctx, ref.Name, ref.Version)
	if berth.CodeOf(err) == berth.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if len(v.Aliases) > 0 {
		out["aliases"] = v.Aliases
	}
	if stage := v.StageName(); stage != "" {
		out["mlflow_stage"] = stage
	}
	return nil
}

func secretsFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().BoolP("populate-secrets", "p", false, "with its credentials")
}

// withSecrets is a connection with its credentials, where they were asked for.
func withSecrets(ctx context.Context, c *client.Client, d client.Document, asked *bool) (client.Document, error) {
	if asked == nil || !*asked {
		return d, nil
	}
	var full client.Document
	err := c.Post(ctx, nil, &full, "connections", d.Name(), "listsecrets")
	return full, err
}

func archiveVerb(s *session, n noun) *cobra.Command {
	return archiving(s, n, "archive", "Hide "+a(n.word)+" from lists", true)
}

func restoreVerb(s *session, n noun) *cobra.Command {
	return archiving(s, n, "restore", "Show "+a(n.word)+" in lists again", false)
}

// archiving is NOUN archive and NOUN restore. Without a version an asset is archived as a whole.
func archiving(s *session, n noun, word, short string, archived bool) *cobra.Command {
	cmd := s.about(n, word, short, func(ctx context.Context, c *client.Client, t *target) error {
		path := []string{n.collection, t.name}
		if t.version != "" || t.label != "" {
			if _, err := t.read(ctx, c, n); err != nil { // what a label means
				return err
			}
			path = t.path(n)
		}
		d, err := c.Get(ctx, path...)
		if err != nil {
			return err
		}
		d.Properties()["isArchived"] = archived
		_, err = c.Put(ctx, d, path...)
		return err
	})
	if n.inStore() {
		ignored(cmd, "yes?/y") // nothing is lost, so nobody is asked
	}
	return cmd
}

// deleteVerb is NOUN delete.
func deleteVerb(s *session, n noun) *cobra.Command {
	return deleting(s, n, "delete", "Delete "+a(n.word))
}

func deleting(s *session, n noun, word, short string) *cobra.Command {
	var yes, noWait bool
	cmd := s.about(n, word, short, func(ctx context.Context, c *client.Client, t *target) error {
		// az asks about what can be lost for good; a datastore is only a name for a place.
		if !yes && !(s.format.az && n.word == "datastore") {
			if err := s.confirm(fmt.Sprintf("%s %s %s?", word, n.word, t.name)); err != nil {
				return err
			}
		}
		path := t.path(n)
		remove := c.Delete
		switch {
		case word == "detach":
			remove = func(ctx context.Context, segments ...string) error { return c.Detach(ctx, yes, segments...) }
		case yes && n.word == "compute":
			remove = c.Drain
		}
		err := remove(ctx, path...)
		if s.format.az && n.word != "workspace" && berth.CodeOf(err) == berth.NotFound {
			return nil // as Azure says of it: it is not there, so it is done
		}
		if err != nil || noWait {
			return err
		}
		if _, err = settled(ctx, c, path); berth.CodeOf(err) == berth.NotFound {
			return nil
		}
		return err
	})
	f := cmd.Flags()
	f.BoolVarP(&yes, "yes", "y", false, "do not ask")
	f.BoolVar(&noWait, "no-wait", false, "do not wait until it is deleted")
	if n.word == "workspace" {
		f.Bool("all-resources", false, "Azure's: with what belongs to it; here that is always so")
		f.BoolP("permanently-delete", "p", false, "Azure's: for good; here that is always so")
	}
	return cmd
}

// confirm asks a person; a script has to say --yes.
func (s *session) confirm(question string) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return latef("%s standard input is not a terminal, so this cannot be confirmed; use --yes", question)
	}
	fmt.Fprintf(s.err, "%s [y/N] ", question)
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if errors.Is(err, io.EOF) { // Ctrl-D
		s.say("")
	} else if err != nil {
		return err
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		s.say("nothing was done")
		return exitError(exitFailed)
	}
	return nil
}

// inProgress are the states of what the server has not finished making, changing or deleting.
var inProgress = map[string]bool{"creating": true, "updating": true, "deleting": true, "provisioning": true, "accepted": true, "scaling": true}

// settled waits until the server has finished with a resource, and is the resource then.
func settled(ctx context.Context, c *client.Client, path []string) (client.Document, error) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		d, err := c.Get(ctx, path...)
		if err != nil {
			return client.Document{}, err
		}
		state, _ := d.Properties()["provisioningState"].(string)
		if !inProgress[strings.ToLower(state)] {
			return d, nil
		}
		select {
		case <-ctx.Done():
			return client.Document{}, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// broken is why a resource that is there is of no use, nil when it is.
func (s *session) broken(n noun, d client.Document) error {
	p := d.Properties()
	if state, _ := p["provisioningState"].(string); !strings.EqualFold(state, "failed") {
		return nil
	}
	why := ""
	if text, _ := at(p, "berth.error").(string); text != "" {
		why = ": " + text
	}
	if all, _ := p["provisioningErrors"].([]any); len(all) > 0 {
		first, _ := all[0].(map[string]any)
		inner, _ := first["error"].(map[string]any)
		if text, _ := inner["message"].(string); text != "" {
			why = ": " + text
		}
	}
	show := n.word + " show -n " + d.Name()
	if id := strings.Split(d.ID(), "/"); len(id) > 3 && id[len(id)-2] == "deployments" {
		show += " -e " + id[len(id)-3]
	}
	return berth.Errorf(berth.Invalid, "%s %s is there, but it has failed%s\n`%s %s` tells more", n.word, d.Name(), why, s.self(), show)
}

// streamVerb is job stream: the log so far and as it grows, and the job's exit code.
func streamVerb(s *session, n noun) *cobra.Command {
	return s.about(n, "stream", "Stream a job's output and end with its exit code", func(ctx context.Context, c *client.Client, t *target) error {
		j, err := c.Job(ctx, t.name)
		if err != nil {
			return err
		}
		err = s.followLog(ctx, c, j, client.LogOptions{}, true)
		if interrupted(ctx, err) {
			return s.detached(j.Name)
		}
		return err
	})
}

// downloadVerb is NOUN download: what a job left, or the files of an asset.
func downloadVerb(s *session, n noun) *cobra.Command {
	var dir, output string
	var all bool
	cmd := s.about(n, "download", "Copy the files of "+a(n.word)+" here", func(ctx context.Context, c *client.Client, t *target) error {
		if n.word == "job" {
			return s.downloadJob(ctx, c, t.name, output, dir, all)
		}
		d, err := t.read(ctx, c, n)
		if err != nil {
			return err
		}
		uri, _ := d.Properties()[n.word+"Uri"].(string)
		to := filepath.Join(dir, t.name)
		if s.format.az && n.word == "model" { // a folder stays one, by its own name
			folder, err := c.Folder(ctx, uri)
			if err != nil {
				return err
			}
			to = filepath.Join(to, folder)
		}
		return s.fetch(ctx, c, t.name, uri, to)
	})
	f := cmd.Flags()
	f.StringVarP(&dir, "download-path", "p", ".", "folder to copy to")
	if n.word == "job" {
		f.StringVar(&output, "output-name", "", "only this output; NAME=PATH copies it to PATH, as berth run --output does")
		f.BoolVar(&all, "all", false, "every output, and logs and artifacts")
		one := cmd.RunE
		cmd.Use, cmd.Args = "download [NAME…]", cobra.ArbitraryArgs
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return one(cmd, args)
			}
			if f.Changed("name") || strings.Contains(output, "=") {
				return usagef("several jobs are named as arguments, without -n, and each is copied to a folder of its own, without --output-name NAME=PATH")
			}
			return s.downloadJobs(cmd.Context(), n, args, output, dir, all)
		}
	}
	return cmd
}

// downloadJobs copies what several jobs left, each to its own folder in dir.
func (s *session) downloadJobs(ctx context.Context, n noun, names []string, output, dir string, all bool) error {
	if err := s.format.check(); err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	for _, name := range names {
		t := &target{name: name}
		if err := t.need(n, nil); err != nil {
			return err
		}
		c, err := s.resolve(ctx, n, t, false)
		if err != nil {
			return err
		}
		if err := s.downloadJob(ctx, c, t.name, output, filepath.Join(dir, t.name), all); err != nil {
			return err
		}
	}
	return nil
}

// showServicesVerb is job show-services: where the job's own services answer.
func showServicesVerb(s *session, n noun) *cobra.Command {
	var node int
	cmd := s.about(n, "show-services", "Show the services of a job", func(ctx context.Context, c *client.Client, t *target) error {
		d, err := t.read(ctx, c, n)
		if err != nil {
			return err
		}
		services, _ := entity(n, d)["services"].(map[string]any)
		shown := map[string]any{}
		for name, v := range services {
			if name != "Studio" && name != "Tracking" { // the server's, not the job's
				shown[name] = v
			}
		}
		if s.format.az && len(shown) == 0 {
			return nil
		}
		if len(shown) == 0 && (s.format.plainly() || s.format.name == "table") {
			s.say("job %s has no services of its own", t.name)
			return nil
		}
		return s.print(shown)
	})
	cmd.Flags().IntVarP(&node, "node-index", "i", 0, "for this node")
	return cmd
}

// listNodesVerb is compute list-nodes.
func listNodesVerb(s *session, n noun) *cobra.Command {
	return s.about(n, "list-nodes", "List the nodes of a compute", func(ctx context.Context, c *client.Client, t *target) error {
		var p struct{ Nodes []map[string]any }
		if err := c.Post(ctx, nil, &p, n.collection, t.name, "listNodes"); err != nil {
			return err
		}
		nodes := make([]any, len(p.Nodes))
		for i, node := range p.Nodes {
			nodes[i] = snakeKeys(node)
		}
		if s.format.plainly() {
			return s.printRows(columns([]string{"node_id", "node_state", "private_ip_address", "port", "run_id"}, nodes))
		}
		return s.print(nodes)
	})
}

// detachVerb is compute detach: the compute is forgotten, what is behind it stays.
func detachVerb(s *session, n noun) *cobra.Command {
	return deleting(s, n, "detach", "Forget a compute that was attached")
}

// listKeysVerb is workspace list-keys.
func listKeysVerb(s *session, n noun) *cobra.Command {
	return s.about(n, "list-keys", "List the keys of what belongs to a workspace", func(ctx context.Context, c *client.Client, _ *target) error {
		keys := map[string]any{} // az shows these, with or without a value
		for _, k := range []string{"appInsightsInstrumentationKey", "containerRegistryCredentials", "notebookAccessKeys", "userStorageKey", "userStorageResourceId"} {
			keys[k] = nil
		}
		if err := c.Post(ctx, nil, &keys, "listKeys"); err != nil {
			return err
		}
		return s.print(keys)
	})
}

// diagnoseVerb is workspace diagnose.
func diagnoseVerb(s *session, n noun) *cobra.Command {
	cmd := s.about(n, "diagnose", "Look for what is wrong with a workspace", func(ctx context.Context, c *client.Client, _ *target) error {
		var found struct{ Value map[string]any }
		if err := c.Post(ctx, map[string]any{"value": map[string]any{}}, &found, "diagnose"); err != nil {
			return err
		}
		return s.print(found.Value)
	})
	cmd.Flags().Bool("no-wait", false, "do not wait; this command never does")
	return cmd
}

// snakeKeys is an object with its members under snake_case names, at every level.
func snakeKeys(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		if inner, ok := v.(map[string]any); ok {
			v = snakeKeys(inner)
		}
		out[snake(k)] = v
	}
	return out
}
