package cli

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/berthml/berth/internal/spec"
)

func renderCommand(s *session) *cobra.Command {
	var o spec.Options
	var file string
	var set wordGroups
	cmd := &cobra.Command{
		Use:   "render -f FILE",
		Short: "Print the REST documents a YAML file becomes, without a server",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			if file == "" {
				return usagef("give a file: `berth render -f job.yml`")
			}
			dir, err := filepath.Abs(".")
			if err != nil {
				return err
			}
			if o.Set, err = setsOf(&set); err != nil {
				return err
			}
			o.Experiment, o.Links = filepath.Base(dir), followLinks()
			return spec.Render(s.out, file, withTypes(o))
		},
	}
	f := cmd.Flags()
	f.StringVarP(&file, "file", "f", "", "YAML file")
	setFlag(cmd, &set)
	f.StringVar(&o.Kind, "kind", "", "what the file describes (default: detected)")
	return cmd
}
