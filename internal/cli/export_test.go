package cli

import (
	"bytes"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth/internal/jmes"
)

// TSV and Table are what the forms print of a value, after a query where there is one.
func TSV(v any, query string) (string, error) {
	return form(v, query, func(b *bytes.Buffer, v any) error { return printTSV(b, v, false) })
}

// Shown is what of some pieces of output reaches a terminal.
func Shown(colors bool, pieces ...string) string {
	var b bytes.Buffer
	w := &legibleWriter{w: &b, colors: colors}
	for _, p := range pieces {
		_, _ = w.Write([]byte(p))
	}
	_ = w.flush()
	return b.String()
}

// Progress draws the line of progress of a notebook's cell with each text in turn, and removes it.
func Progress(to *os.File, texts ...string) {
	p := &progress{s: &session{err: &stream{File: to, tty: true, color: true}}, cell: true, quit: make(chan struct{})}
	for _, text := range texts {
		p.set("%s", text)
		p.draw()
	}
	p.clear()
}

// EvenTSV is TSV with the same columns in every line.
func EvenTSV(v any) (string, error) {
	return form(v, "", func(b *bytes.Buffer, v any) error { return printTSV(b, v, true) })
}

func Table(v any, query string) (string, error) {
	return form(v, query, func(b *bytes.Buffer, v any) error { return printTable(b, v, nil, query == "") })
}

func YAML(v any) (string, error) {
	return form(v, "", func(b *bytes.Buffer, v any) error { return printYAML(b, v, false) })
}

func form(v any, query string, print func(*bytes.Buffer, any) error) (string, error) {
	v, err := plain(v)
	if err != nil {
		return "", err
	}
	if query != "" {
		e, err := jmes.Parse(query)
		if err != nil {
			return "", err
		}
		if v, err = e.Search(v); err != nil {
			return "", err
		}
	}
	var b bytes.Buffer
	err = print(&b, v)
	return b.String(), err
}

// Edit does what the words of an update command ask of an entity.
func Edit(m map[string]any, words ...string) error {
	var e edits
	cmd := &cobra.Command{Use: "update", RunE: func(*cobra.Command, []string) error { return e.apply(m) }, SilenceErrors: true, SilenceUsage: true}
	e.flags(cmd)
	words, err := azWords(cmd, words, false)
	if err != nil {
		return err
	}
	cmd.SetArgs(words)
	return cmd.Execute()
}

var (
	AzWords  = azWords
	FilesIn  = filesIn
	Nearest  = nearest
	ColorOf  = colorJSON
	Settings = readSettings
)

// Many marks a flag of a test's command as one that takes several words.
func Many(cmd *cobra.Command, name string) *[][]string {
	w := &wordGroups{}
	cmd.Flags().Var(w, name, "")
	takesMany(cmd.Flags().Lookup(name), many)
	return &w.groups
}

func Set(s *settings, section, key, value string) { s.set(section, key, value) }
func Get(s *settings, section, key string) string { return s.get(section, key) }
func Write(s *settings) error                     { return s.write() }

// Known is whether `az ml NOUN VERB` is a command, and whether it is one that is only said not to
// be served.
func Known(noun, verb string) (known, served bool) {
	s := newSession()
	s.azMode("az ml")
	root := mlRoot(s, "az ml", []string{noun, verb})
	cmd, _, err := root.Find([]string{noun, verb})
	if err != nil || cmd == root {
		return false, false
	}
	if cmd.DisableFlagParsing { // unserved
		return true, false
	}
	return cmd.Name() == verb, true
}

// Takes is whether `az ml NOUN VERB` takes a flag, --long or -s; one that is not served takes what
// it is given.
func Takes(noun, verb, flag string) bool {
	s := newSession()
	s.azMode("az ml")
	root := mlRoot(s, "az ml", []string{noun, verb})
	cmd, _, err := root.Find([]string{noun, verb})
	if err != nil || cmd.DisableFlagParsing {
		return err == nil
	}
	cmd.InheritedFlags() // makes Flags complete
	if name, ok := strings.CutPrefix(flag, "--"); ok {
		return cmd.Flags().Lookup(name) != nil
	}
	return cmd.Flags().ShorthandLookup(flag[1:]) != nil
}

// Hours is how node hours are written.
var Hours = hours

// Percent is how top shows a share.
func Percent(f float64, measured bool) string { return percent(f, measured) }
