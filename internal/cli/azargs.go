package cli

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/spf13/pflag"

	"github.com/berthml/berth/internal/spec"
)

// What az's command line allows and ours does not by itself: several words after one flag, the
// beginning of a flag's name for the whole, true or false after a switch. The words are brought
// into the form that pflag knows before it sees them.

// arity says how many words a flag takes.
type arity string

const (
	many    arity = "many"    // KEY=VALUE …, as long as they have a =; by az's manners up to the next flag
	list    arity = "list"    // PATH VALUE …, up to the next flag
	indexed arity = "indexed" // PATH [INDEX]
)

const arityKey = "berth_arity"

// takesMany marks a flag that takes more than one word; its value is a wordGroups.
func takesMany(f *pflag.Flag, a arity) { f.Annotations = map[string][]string{arityKey: {string(a)}} }

// between separates the words of one flag; no argument of a program can contain it.
const between = "\x00"

// wordGroups is the value of a flag that takes several words: those of each time it was given.
type wordGroups struct {
	groups [][]string
	then   func(words []string) // told of each, to keep the order among several flags
}

func (w *wordGroups) String() string { return "" }
func (w *wordGroups) Type() string   { return "words" }

func (w *wordGroups) Set(text string) error {
	words := strings.Split(text, between)
	w.groups = append(w.groups, words)
	if w.then != nil {
		w.then(words)
	}
	return nil
}

// azWords brings the words of a command into pflag's form. Words it cannot place it leaves as they
// are, for pflag to refuse. Where strict is set no word is an argument of the command itself, so a
// flag that takes many takes all that follow.
func azWords(cmd *cobra.Command, words []string, strict bool) ([]string, error) {
	cmd.InitDefaultHelpFlag()
	cmd.InheritedFlags() // makes Flags complete
	flags := cmd.Flags()
	var out []string
	for i := 0; i < len(words); i++ {
		word := words[i]
		if word == "--" {
			return append(out, words[i:]...), nil
		}
		f, value, given, err := flagOf(flags, word)
		if err != nil {
			return nil, err
		}
		if f == nil {
			out = append(out, word)
			continue
		}
		rest := words[i+1:]
		// A flag where a value should be is what a script writes when its variable is empty.
		missing := len(rest) == 0 || isFlag(flags, rest[0])
		switch a := f.Annotations[arityKey]; {
		case a != nil:
			group := []string{}
			if given {
				group = append(group, value)
			} else if !missing {
				group, rest = append(group, rest[0]), rest[1:]
			}
			if len(group) == 0 {
				return nil, usagef("flag needs an argument: %s", word)
			}
			n := following(arity(a[0]), rest, strict)
			group = append(group, rest[:n]...)
			i = len(words) - len(rest[n:]) - 1
			out = append(out, "--"+f.Name+"="+strings.Join(group, between))
		case given:
			out = append(out, "--"+f.Name+"="+value)
		case f.NoOptDefVal != "":
			if len(rest) > 0 && (strings.EqualFold(rest[0], "true") || strings.EqualFold(rest[0], "false")) {
				value = "=" + strings.ToLower(rest[0])
				i++
			}
			out = append(out, "--"+f.Name+value)
		case missing:
			return nil, usagef("flag needs an argument: %s", word)
		default:
			out = append(out, "--"+f.Name+"="+rest[0])
			i++
		}
	}
	return out, nil
}

// isFlag reports whether a word is a flag that is known.
func isFlag(flags *pflag.FlagSet, word string) bool {
	f, _, _, err := flagOf(flags, word)
	return f != nil || err != nil
}

// following is how many of the words belong to the flag before them.
func following(a arity, words []string, strict bool) int {
	n := 0
	for _, w := range words {
		flag := len(w) > 1 && w[0] == '-' && (w[1] < '0' || w[1] > '9')
		switch {
		case flag, a == many && !strict && !strings.Contains(w, "="), a == indexed && (n == 1 || !isNumber(w)):
			return n
		}
		n++
	}
	return n
}

func isNumber(w string) bool {
	w = strings.TrimPrefix(w, "-")
	return w != "" && strings.Trim(w, "0123456789") == ""
}

// flagOf is the flag a word names, by its whole name or by a beginning only it has, and the value
// after =. Not a flag, or none that is known, is nil.
func flagOf(flags *pflag.FlagSet, word string) (f *pflag.Flag, value string, given bool, err error) {
	switch {
	case strings.HasPrefix(word, "--"):
		var name string
		name, value, given = strings.Cut(word[2:], "=")
		if f = flags.Lookup(name); f != nil || name == "" {
			return f, value, given, nil
		}
		var near []string
		flags.VisitAll(func(other *pflag.Flag) {
			if strings.HasPrefix(other.Name, name) {
				f, near = other, append(near, "--"+other.Name)
			}
		})
		if len(near) > 1 {
			return nil, "", false, usagef("--%s may mean %s; write more of it", name, strings.Join(near, " or "))
		}
		return f, value, given, nil
	case len(word) == 2 && word[0] == '-' && word[1] != '-':
		f = flags.ShorthandLookup(word[1:])
		return f, "", false, nil
	}
	return nil, "", false, nil
}

// filesIn replaces @FILE, alone or after =, by what the file holds, as az does. A word that only
// looks like it stays.
func filesIn(words []string) ([]string, error) {
	out := slices.Clone(words)
	for i, w := range words {
		before, after, ok := strings.Cut(w, "=")
		if !ok {
			before, after = "", w
		} else {
			before += "="
		}
		path, ok := strings.CutPrefix(after, "@")
		if !ok || path == "" {
			continue
		}
		if st, err := os.Stat(path); err != nil || st.IsDir() {
			continue
		}
		b, err := spec.ReadFile(path)
		if err != nil {
			return nil, err
		}
		out[i] = before + strings.TrimRight(string(b), "\r\n")
	}
	return out, nil
}

// nearest is the word that is most like another, "" when none is.
func nearest(word string, words []string) string {
	best, least := "", len(word)/3+2
	for _, w := range words {
		if d := berth.Distance(word, w); d < least && 2*d <= max(len(word), len(w)) {
			best, least = w, d
		}
	}
	return best
}
