package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
)

func versionCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			if s.format.chosen() {
				return s.print(map[string]string{"version": berth.Version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH})
			}
			_, err := s.out.WriteString(versionLine())
			return err
		},
	}
	s.format.flags(cmd)
	return cmd
}

// versionLine is what `berth version` and `berth --version` print.
func versionLine() string {
	return fmt.Sprintf("berth %s (%s, %s/%s)\n", berth.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
