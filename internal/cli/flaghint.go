package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// otherFlags are flags of other programs, with those of ours that do the same, on the commands that
// have them.
var otherFlags = map[string][]string{
	"compute": {"on"},
	"cluster": {"on"},
	"target":  {"on"},
	"env":     {"env-var", "environment"},
	"image":   {"environment"},
	"label":   {"tag"},
	"d":       {"no-wait"},
	"detach":  {"no-wait"},
	"t":       {"interactive"},
	"tty":     {"interactive"},
	"n":       {"tail", "max-results"},
	"lines":   {"tail"},
	"limit":   {"max-results"},
	"num":     {"max-results"},
	"max":     {"max-results"},
}

// otherWays are flags whose work another command does.
var otherWays = map[string]map[string]string{
	"run": {"f": jobFileHint, "file": jobFileHint},
}

const jobFileHint = "`berth job create -f FILE --stream` runs a job file"

// nearFlag is the flag that was probably meant.
func nearFlag(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	word := unknown.GetSpecifiedName()
	if way := otherWays[cmd.Name()][word]; way != "" {
		return "; " + way
	}
	meant := slices.DeleteFunc(slices.Clone(otherFlags[word]), func(f string) bool { return !slices.Contains(names, f) })
	if len(meant) > 0 {
		return "; did you mean --" + strings.Join(meant, " or --") + "?"
	}
	if near := nearest(word, names); near != "" {
		return "; did you mean --" + near + "?"
	}
	return ""
}

// alias lets flags go by other names too.
func alias(cmd *cobra.Command, names map[string]string) {
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if own := names[name]; own != "" {
			name = own
		}
		return pflag.NormalizedName(name)
	})
}
