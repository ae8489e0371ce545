package cli

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/spec"
)

// updateVerb is NOUN update: --set, --add and --remove on the resource as `show` prints it, or a
// whole file.
func updateVerb(s *session, n noun) *cobra.Command {
	var (
		file   string
		e      edits
		noWait bool
		web    *bool
		secret *bool
		cmd    *cobra.Command
	)
	options := updatable(n.options)
	cmd = s.about(n, "update", "Change "+a(n.word), func(ctx context.Context, c *client.Client, t *target) error {
		for _, o := range options {
			if (o.kind == tagsOption || o.kind == sharesOption) && cmd.Flags().Changed(o.flag) {
				e.list = append(e.list, change{"set", []string{o.field + "={}"}}) // they take the place of those there are
			}
		}
		for _, set := range optionSets(cmd, options) {
			e.list = append(e.list, change{"flag", []string{set}})
		}
		switch n.word {
		case "data", "model", "environment", "workspace": // of others az takes text alone
			e.python = s.format.az
		}
		if len(e.list) == 0 && !s.format.az { // to az nothing is a change too
			return usagef("say what to change: --set FIELD=VALUE, --add LIST VALUE, --remove FIELD, or -f FILE")
		}
		d, err := t.read(ctx, c, n)
		if err != nil {
			return err
		}
		text := d.Text()
		was, want, err := s.edit(ctx, c, n, t, d, &e)
		if err != nil {
			return err
		}
		if n.word == "job" {
			s.web(*web, t.name)
		}
		if d, err = c.Put(ctx, d, t.path(n)...); err != nil {
			return err
		}
		if err := stayed(n, was, want, d); err != nil {
			return s.undo(ctx, c, err, text, t.path(n))
		}
		if !noWait && n.tracked {
			if d, err = settled(ctx, c, t.path(n)); err != nil {
				return err
			}
			if err := s.broken(n, d); err != nil {
				s.warn("%v", err)
			}
		}
		if d, err = withSecrets(ctx, c, d, secret); err != nil {
			return err
		}
		return s.print(s.entity(n, d))
	})
	byName := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if file == "" {
			return byName(cmd, args)
		}
		return s.updateByFile(cmd, n, file, &e, optionSets(cmd, options), !noWait && n.tracked)
	}
	cmd.Use = "update [NAME] --set FIELD=VALUE"
	f := cmd.Flags()
	f.StringVarP(&file, "file", "f", "", "YAML file")
	f.BoolVar(&noWait, "no-wait", false, "do not wait until it is ready")
	e.flags(cmd)
	optionFlags(cmd, options)
	switch n.word {
	case "job":
		web = s.webFlag(cmd)
	case "connection":
		secret = secretsFlag(cmd)
	case "workspace":
		ignored(cmd, "update-dependent-resources?/u")
		cmd.Flags().Var(refusal("ignored: this server has no network rules"), "network-acls", "az's flag; not supported")
		cmd.Flags().Lookup("network-acls").Hidden = true
	}
	return cmd
}

// undo takes back the part of a change that the server made when it did not make all of it.
func (s *session) undo(ctx context.Context, c *client.Client, why error, text []byte, path []string) error {
	var was client.Document
	if err := json.Unmarshal(text, &was); err != nil {
		return errors.Join(why, err)
	}
	if _, err := c.Put(ctx, was, path...); err != nil {
		return errors.Join(why, err)
	}
	return why
}

// updateByFile puts what a file says in the place of what is there.
func (s *session) updateByFile(cmd *cobra.Command, n noun, file string, e *edits, sets []string, wait bool) error {
	if err := s.format.check(); err != nil {
		return err
	}
	for _, c := range e.list {
		if c.op != "set" {
			return usagef("--%s changes what is there, and -f replaces it; use one of them", c.op)
		}
		sets = append(sets, c.words...)
	}
	ctx := cmd.Context()
	c, err := s.open(ctx)
	if err != nil {
		return err
	}
	name, _ := cmd.Flags().GetString("name")
	version := ""
	if n.versioned {
		version, _ = cmd.Flags().GetString("version")
	}
	r, err := s.load(c, n.yaml(), file, sets, name, version)
	if err != nil {
		return err
	}
	d, err := s.apply(ctx, c, r)
	if err == nil && wait {
		path := []string{n.collection, d.Name()}
		if n.child != "" {
			path = []string{n.collection, r.Main().Parent, n.child, d.Name()}
		}
		if d, err = settled(ctx, c, path); err == nil {
			err = s.broken(n, d)
		}
	}
	if err != nil {
		return err
	}
	return s.print(s.entity(n, d))
}

// edit changes a document by changing what is shown of it. Both forms, before and after, are read
// as files are; what differs between the two bodies is what changes in the document, and everything
// no file can say stays as it is. It returns what was shown and what should be.
func (s *session) edit(ctx context.Context, c *client.Client, n noun, t *target, d client.Document, e *edits) (was, m map[string]any, err error) {
	if was, err = shown(n, d); err != nil {
		return nil, nil, err
	}
	whole := d
	if n.word == "connection" { // no file may leave out its secrets, and they are shown only when asked for
		yes := true
		if whole, err = withSecrets(ctx, c, d, &yes); err != nil {
			return nil, nil, err
		}
	}
	if m, err = shown(n, whole); err != nil { // a copy: it will be written to
		return nil, nil, err
	}
	twins := pair(n, m)
	for k, v := range m {
		if v == "" {
			delete(m, k) // nothing, which some fields of a file may not be
		}
	}
	credentials, kept := m["credentials"]
	if n.word == "datastore" {
		delete(m, "credentials") // they are shown without their secrets, and no file may leave those out
	}
	before, err := s.reread(ctx, c, n, t, m)
	if err != nil {
		return nil, nil, err
	}
	if kept && e.mentions("credentials") {
		m["credentials"] = credentials
	}
	name, version := m["name"], m["version"]
	if err := e.apply(m); err != nil {
		return nil, nil, err
	}
	if m["name"] != name || m["version"] != version {
		return nil, nil, berth.Errorf(berth.Invalid, "the name and version of a %s cannot be changed", n.word)
	}
	twins()
	after, err := s.reread(ctx, c, n, t, m)
	if err != nil {
		return nil, nil, err
	}
	overlay(d.Members, before, after)
	if n.versioned || n.word == "job" {
		erase(d, before, after)
	}
	return was, m, nil
}

// shown is what `show` prints of a document, for changing.
func shown(n noun, d client.Document) (map[string]any, error) {
	b, err := json.Marshal(entity(n, d))
	if err != nil {
		return nil, err
	}
	v, err := plain(json.RawMessage(b))
	m, _ := v.(map[string]any)
	return m, err
}

// reread is the body an entity becomes.
func (s *session) reread(ctx context.Context, c *client.Client, n noun, t *target, shown any) (map[string]any, error) {
	text, err := json.Marshal(shown)
	if err != nil {
		return nil, err
	}
	r, err := spec.LoadBytes(text, withTypes(spec.Options{Kind: n.yaml(), Workspace: c.Workspace, Name: t.name, Version: t.version, Bare: true, Links: followLinks()}))
	if bad, ok := err.(spec.Errors); ok {
		for i := range bad {
			bad[i].File, bad[i].Line, bad[i].Col = "", 0, 0 // nobody wrote this file; the field is the place
		}
		return nil, bad
	}
	if err != nil {
		return nil, err
	}
	for i := range r.Resources[:len(r.Resources)-1] { // what the change needs
		res := &r.Resources[i]
		body, err := s.fill(ctx, c, res)
		if err != nil {
			return nil, err
		}
		if _, err := s.put(ctx, c, res, body); err != nil {
			return nil, err
		}
	}
	body, err := s.fill(ctx, c, r.Main())
	if err != nil {
		return nil, err
	}
	v, err := plain(body)
	m, _ := v.(map[string]any)
	return m, err
}

// overlay makes the changes from before to after in d.
func overlay(d, before, after map[string]any) {
	for k, now := range after {
		then, was := before[k]
		if was && reflect.DeepEqual(then, now) {
			continue
		}
		inner, ok := now.(map[string]any)
		old, too := d[k].(map[string]any)
		if ok && too {
			then, _ := then.(map[string]any)
			overlay(old, then, inner)
			continue
		}
		d[k] = now
	}
	for k := range before {
		if _, still := after[k]; !still {
			delete(d, k)
		}
	}
}
