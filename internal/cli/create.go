package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/spec"
)

// createVerb is NOUN create: from a YAML file, or from flags for what needs no file.
func createVerb(s *session, n noun) *cobra.Command {
	var (
		t                   target
		file                string
		set                 []string
		stream, noWait, web bool
		fields              = map[string]*string{}
	)
	cmd := &cobra.Command{
		Use:   "create [-f FILE]",
		Short: "Create a " + n.word,
		Args:  maxArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			if t.name == "" && len(args) > 0 {
				t.name = args[0]
			}
			for _, flag := range sortedKeys(fields) {
				if cmd.Flags().Changed(flag) {
					set = append(set, n.fields[flag]+"="+*fields[flag])
				}
			}
			if file == "" && (n.word == "job" || len(set) == 0 && n.word != "workspace") {
				return usagef("give a file: `berth %s create -f %s.yml`", n.word, n.word)
			}
			c, err := s.open(ctx)
			if err != nil {
				return err
			}
			r, err := s.document(c, n, file, set, t)
			if err != nil {
				return err
			}
			return s.create(ctx, c, n, r, stream)
		},
	}
	f := cmd.Flags()
	t.flags(cmd, n)
	f.StringVarP(&file, "file", "f", "", "YAML file")
	f.StringArrayVar(&set, "set", nil, "a.b=value: override a field of the file; may be repeated")
	f.BoolVar(&noWait, "no-wait", false, "do not wait until it is ready")
	if n.word == "job" {
		f.BoolVarP(&stream, "stream", "s", false, "stream its output and end with its exit code")
		f.BoolVar(&web, "web", false, "print the address of its page")
		f.Lookup("web").Hidden = true
	}
	for _, flag := range sortedKeys(n.fields) {
		fields[flag] = f.String(flag, "", n.fields[flag]+" of the "+n.word)
	}
	s.format.flags(cmd)
	return cmd
}

// document is what a file, or flags alone, become.
func (s *session) document(c *client.Client, n noun, file string, set []string, t target) (*spec.Result, error) {
	if file != "" {
		return s.load(c, n.word, file, set, t.name, t.version)
	}
	if t.name != "" {
		set = append([]string{"name=" + t.name}, set...)
	}
	return spec.LoadBytes([]byte("{}"), spec.Options{
		Kind: n.word, Set: set, Workspace: c.Workspace, Name: t.name, Version: t.version, File: "the command line",
	})
}

func (s *session) create(ctx context.Context, c *client.Client, n noun, r *spec.Result, stream bool) error {
	d, rev, err := s.applyRev(ctx, c, r)
	if err != nil {
		if interrupted(ctx, err) {
			return exitError(exitInterrupted)
		}
		return err
	}
	if n.word != "job" {
		return s.print(entity(n, d))
	}
	name := d.Name()
	if !stream {
		if s.format.chosen() {
			return s.print(entity(n, d))
		}
		_, err := fmt.Fprintln(s.out, name)
		s.nextSteps(name)
		return err
	}
	s.say("submitted %s", s.paint(s.err, bold, name))
	s.nextSteps(name)
	if err := s.followTo(ctx, c, name, rev, nil); err != nil {
		return err
	}
	if !s.format.chosen() {
		return nil
	}
	if d, err = c.Get(ctx, "jobs", name); err != nil {
		return err
	}
	return s.print(entity(n, d))
}

// validateVerb is NOUN validate: everything that can be checked without a server.
func validateVerb(s *session, n noun) *cobra.Command {
	var file string
	var set []string
	cmd := &cobra.Command{
		Use:   "validate -f FILE",
		Short: "Check a YAML file without creating anything",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			if file == "" {
				return usagef("give a file: `berth %s validate -f %s.yml`", n.word, n.word)
			}
			r, err := spec.Load(file, spec.Options{Kind: n.word, Set: set})
			if err != nil {
				return err
			}
			for _, w := range r.Warnings {
				s.warn("%v", w)
			}
			if s.format.chosen() {
				return s.print(map[string]any{"result": "Succeeded", "errors": []any{}})
			}
			s.say("%s is valid", file)
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "YAML file")
	cmd.Flags().StringArrayVar(&set, "set", nil, "a.b=value: override a field of the file; may be repeated")
	s.format.flags(cmd)
	return cmd
}
