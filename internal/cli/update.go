package cli

import (
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth/client"
)

// updateVerb is NOUN update: --set, --add and --remove on the resource as `show` prints it, or a whole file.
func updateVerb(s *session, n noun) *cobra.Command {
	var t target
	var file string
	var set, remove []string
	cmd := &cobra.Command{
		Use: "update [NAME] --set FIELD=VALUE", Short: "Change a " + n.word, Args: maxArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if file != "" {
				c, err := s.open(ctx)
				if err != nil {
					return err
				}
				r, err := s.load(c, n.word, file, set, t.name, t.version)
				if err != nil {
					return err
				}
				d, err := s.apply(ctx, c, r)
				if err != nil {
					return err
				}
				return s.print(entity(n, d))
			}
			if err := s.need(n, &t, args); err != nil {
				return err
			}
			if len(set)+len(remove) == 0 {
				return usagef("say what to change: --set FIELD=VALUE, --remove FIELD, or -f FILE")
			}
			c, d, err := s.read(ctx, n, &t)
			if err != nil {
				return err
			}
			for _, kv := range set {
				field, value, ok := strings.Cut(kv, "=")
				if !ok {
					return usagef("--set %s: give FIELD=VALUE", kv)
				}
				assign(d, wirePath(n, field), parseValue(value))
			}
			for _, field := range remove {
				assign(d, wirePath(n, field), nil)
			}
			if d, err = c.Put(ctx, d, t.path(n)...); err != nil {
				return err
			}
			return s.print(entity(n, d))
		},
	}
	t.flags(cmd, n)
	f := cmd.Flags()
	f.StringVarP(&file, "file", "f", "", "YAML file")
	f.StringArrayVar(&set, "set", nil, "FIELD=VALUE, for example tags.owner=ann; may be repeated")
	f.StringArrayVar(&remove, "remove", nil, "FIELD to remove; may be repeated")
	s.format.flags(cmd)
	return cmd
}

// wirePath is where a field of the entity is in the document.
func wirePath(n noun, field string) []string {
	p := strings.Split(field, ".")
	switch p[0] {
	case "tags":
		if n.tracked {
			return p
		}
		return append([]string{"properties"}, p...)
	case "properties":
		return append([]string{"properties"}, p...)
	case "display_name":
		if n.word == "workspace" {
			return []string{"properties", "friendlyName"}
		}
	}
	for i := range p {
		p[i] = camel(p[i])
	}
	return append([]string{"properties"}, p...)
}

// parseValue reads JSON where it is JSON and text where it is not.
func parseValue(text string) any {
	var v any
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if dec.Decode(&v) != nil || dec.More() {
		return text
	}
	if _, number := v.(json.Number); number {
		return text // versions and tags are text; the server turns text into numbers where it wants them
	}
	return v
}

// assign sets a value deep in a document; nil removes it.
func assign(d client.Document, path []string, v any) {
	m := map[string]any(d)
	for _, k := range path[:len(path)-1] {
		next, ok := m[k].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[k] = next
		}
		m = next
	}
	if last := path[len(path)-1]; v == nil {
		delete(m, last)
	} else {
		m[last] = v
	}
}

func camel(s string) string {
	parts := strings.Split(s, "_")
	for i := 1; i < len(parts); i++ {
		if parts[i] != "" {
			parts[i] = strings.ToUpper(parts[i][:1]) + parts[i][1:]
		}
	}
	return strings.Join(parts, "")
}
