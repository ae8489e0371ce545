package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berthml/berth"
)

// manCommand writes the manual pages. Packages have them; people rarely type it.
func manCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write manual pages into a folder, for man(1)", Args: oneArg("folder"), Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			pages := ManPages()
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			for _, name := range sortedKeys(pages) {
				if err := os.WriteFile(filepath.Join(args[0], name), pages[name], 0o644); err != nil {
					return err
				}
			}
			s.say("wrote %d pages; `man -M` needs them in a folder named man1", len(pages))
			return nil
		},
	}
}

// ManPages are the manual pages of all commands, by their file names.
func ManPages() map[string][]byte {
	pages := map[string][]byte{}
	s := newSession()
	root := wholeRoot(s)
	var add func(cmd *cobra.Command)
	add = func(cmd *cobra.Command) {
		if cmd != root && !cmd.IsAvailableCommand() || cmd.Name() == "help" {
			return
		}
		pages[manName(cmd)+".1"] = manPage(cmd)
		for _, sub := range cmd.Commands() {
			add(sub)
		}
	}
	add(root)
	return pages
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage is the page of one command in the language of man(7).
func manPage(cmd *cobra.Command) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %q 1 \"\" %q \"Berth\"\n", strings.ToUpper(manName(cmd)), "berth "+berth.Version)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", troff(manName(cmd)), troff(cmd.Short))
	use := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		use = cmd.CommandPath() + " COMMAND"
	}
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", troff(use))
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	b.WriteString(".SH DESCRIPTION\n")
	lines(&b, text)
	if cmd.HasAvailableSubCommands() {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "help" {
				fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", troff(sub.Name()), troff(sub.Short))
			}
		}
	}
	options(&b, "OPTIONS", cmd.NonInheritedFlags())
	options(&b, "OPTIONS OF ALL COMMANDS", cmd.InheritedFlags())
	if parent := cmd.Parent(); parent != nil {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", troff(manName(parent)))
	}
	return []byte(b.String())
}

// lines writes text; lines that are indented stay as they are.
func lines(b *strings.Builder, text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "":
			b.WriteString(".PP\n")
		case strings.HasPrefix(line, "  "):
			fmt.Fprintf(b, ".nf\n%s\n.fi\n", troff(line))
		default:
			b.WriteString(troff(line) + "\n")
		}
	}
}

func options(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		value, help := pflag.UnquoteUsage(f)
		if value != "" {
			name += " " + value
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", troff(name), troff(help))
	})
}

// troff is text that man shows as it is.
func troff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...", "’", "'").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
