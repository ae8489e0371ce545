package cli

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
)

// azConfigure is az configure --defaults KEY=VALUE … and az configure -l.
func azConfigure(s *session) *cobra.Command {
	var defaults wordGroups
	var show bool
	cmd := ignored(s.azCommand("configure", "Keep defaults", func(context.Context) (any, error) {
		kept, err := s.settings()
		if err != nil {
			return nil, err
		}
		switch {
		case len(defaults.groups) > 0:
			for _, group := range defaults.groups {
				for _, word := range group {
					key, value, ok := strings.Cut(word, "=")
					if !ok || key == "" {
						return nil, usagef("--defaults %s: give KEY=VALUE, for example group=berth workspace=default", word)
					}
					kept.set("defaults", key, strings.Trim(value, `'"`))
				}
			}
			return nil, kept.write()
		case show:
			return kept.in("defaults", ""), nil
		}
		return nil, usagef("interactive configuration is not supported; use --defaults KEY=VALUE or --list-defaults")
	}), "scope")
	cmd.Flags().VarP(&defaults, "defaults", "d", "KEY=VALUE …: defaults to store, for example group=berth workspace=default; an empty value removes one")
	takesMany(cmd.Flags().Lookup("defaults"), many)
	cmd.Flags().BoolVarP(&show, "list-defaults", "l", false, "list them")
	return cmd
}

// azConfig is az config set, get and unset.
func azConfig(s *session) *cobra.Command {
	edit := func(word, short string, change func(kept *settings, word string) error) *cobra.Command {
		cmd := ignored(s.azCommand(word, short, nil), "local?", "yes?/y")
		cmd.Args = cobra.MinimumNArgs(1)
		cmd.RunE = func(_ *cobra.Command, words []string) error {
			kept, err := s.settings()
			if err != nil {
				return err
			}
			for _, w := range words {
				if err := change(kept, w); err != nil {
					return err
				}
			}
			return kept.write()
		}
		return cmd
	}
	set := edit("set", "Keep settings: SECTION.KEY=VALUE …", func(kept *settings, word string) error {
		name, value, ok := strings.Cut(word, "=")
		section, key, named := strings.Cut(name, ".")
		if !ok || !named || section == "" || key == "" {
			return usagef("%s: give SECTION.KEY=VALUE, for example defaults.group=berth", word)
		}
		kept.set(section, key, value)
		return nil
	})
	unset := edit("unset", "Forget settings: SECTION.KEY …", func(kept *settings, word string) error {
		section, key, ok := strings.Cut(word, ".")
		if !ok {
			return usagef("%s: give SECTION.KEY, for example defaults.group", word)
		}
		kept.set(section, key, "")
		return nil
	})
	get := ignored(s.azCommand("get", "Show settings", nil), "local?")
	get.Args = maxArgs(1)
	get.RunE = func(_ *cobra.Command, words []string) error {
		if err := s.format.check(); err != nil {
			return err
		}
		kept, err := s.settings()
		if err != nil {
			return err
		}
		if len(words) == 0 {
			out := map[string]any{}
			all, _ := kept.all()
			for _, o := range all {
				out[o.section] = kept.in(o.section, "")
			}
			return s.print(out)
		}
		section, key, one := strings.Cut(words[0], ".")
		found := kept.in(section, key)
		if !one {
			return s.print(found)
		}
		if len(found) == 0 {
			return berth.Errorf(berth.Invalid, "Configuration '%s' is not set.", words[0])
		}
		return s.print(found[0])
	}
	return azGroupOf("config", "Settings", set, get, unset)
}

func (s *session) settings() (*settings, error) {
	cfg, err := s.config()
	if err != nil {
		return nil, err
	}
	return readSettings(cfg.Home)
}

// in is the settings of a section, or one of them, in az's form: first those that variables set,
// which have the say.
func (k *settings) in(section, key string) []any {
	out := []any{}
	seen := map[string]bool{}
	add := func(name, source, value string) {
		if (key == "" || name == key) && !seen[name] {
			seen[name] = true
			out = append(out, map[string]any{"name": name, "source": source, "value": value})
		}
	}
	prefix := "AZURE_" + strings.ToUpper(section) + "_"
	for _, v := range os.Environ() {
		variable, value, _ := strings.Cut(v, "=")
		if name, ok := strings.CutPrefix(variable, prefix); ok && name != "" && name == strings.ToUpper(name) {
			add(strings.ToLower(name), variable, value)
		}
	}
	all, _ := k.all()
	for _, o := range all {
		if o.section == section {
			add(o.key, k.path, o.value)
		}
	}
	return out
}
