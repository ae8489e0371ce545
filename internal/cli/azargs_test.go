package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/berthml/berth/internal/cli"
)

// TestWords is az's grammar of flags on a command of its own.
func TestWords(t *testing.T) {
	type result struct {
		Name, Output string
		All          bool
		Tags         [][]string
		Args         []string
	}
	for _, c := range []struct {
		strict bool // by az's manners
		words  string
		want   result
		err    string
	}{
		{words: "-n x", want: result{Name: "x"}},
		{words: "--name x --out tsv", want: result{Name: "x", Output: "tsv"}},
		{words: "--na=x --outp=json", want: result{Name: "x", Output: "json"}},
		{words: "--tags a=b c=d --name x", want: result{Name: "x", Tags: [][]string{{"a=b", "c=d"}}}},
		{words: "--tags a=b --tags c=d e", want: result{Tags: [][]string{{"a=b"}, {"c=d"}}, Args: []string{"e"}}},
		{words: "--tags=a=b c=d -n x", want: result{Name: "x", Tags: [][]string{{"a=b", "c=d"}}}},
		{words: "--all-results true -n x", want: result{Name: "x", All: true}},
		{words: "--all-results false -n x", want: result{Name: "x"}},
		{words: "--all-results -n true", want: result{Name: "true", All: true}},
		{words: "--name -x", want: result{Name: "-x"}},
		{words: "one -n x", want: result{Name: "x", Args: []string{"one"}}},
		{words: "-n x -- --tags", want: result{Name: "x", Args: []string{"--tags"}}},
		{words: "--al", err: "--al may mean --all-results or --also; write more of it"},
		{words: "--nothing", err: "unknown flag: --nothing"},
		{words: "--tags", err: "needs an argument"},
		{words: "--name --output tsv", err: "needs an argument: --name"},
		{words: "--tags -n x", err: "needs an argument: --tags"},
		{words: "--out", err: "needs an argument: --out"},
		{strict: true, words: "--tags c=d e -n x", want: result{Name: "x", Tags: [][]string{{"c=d", "e"}}}},
	} {
		var got result
		cmd := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true, RunE: func(_ *cobra.Command, args []string) error {
			got.Args = args
			return nil
		}}
		cmd.Flags().StringVarP(&got.Name, "name", "n", "", "")
		cmd.Flags().StringVarP(&got.Output, "output", "o", "", "")
		cmd.Flags().BoolVar(&got.All, "all-results", false, "")
		cmd.Flags().String("also", "", "")
		tags := cli.Many(cmd, "tags")
		words, err := cli.AzWords(cmd, strings.Fields(c.words), c.strict)
		if err == nil {
			cmd.SetArgs(words)
			err = cmd.Execute()
		}
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v; want %s", c.words, err, c.err)
			}
			continue
		}
		got.Tags = *tags
		if len(got.Args) == 0 {
			got.Args = nil
		}
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", c.words, err, diff)
		}
	}
}

func TestFilesIn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "q")
	if err := os.WriteFile(file, []byte("[0].name\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := cli.FilesIn([]string{"--query", "@" + file, "--set", "a=@" + file, "x@latest", "@", "@nowhere", "--output=@" + file})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"--query", "[0].name", "--set", "a=[0].name", "x@latest", "@", "@nowhere", "--output=[0].name"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestNearest(t *testing.T) {
	words := []string{"name", "output", "resource-group", "workspace-name"}
	for word, want := range map[string]string{"nme": "name", "outptu": "output", "resource-grp": "resource-group", "xyzzy": "", "o": ""} {
		if got := cli.Nearest(word, words); got != want {
			t.Errorf("%s is taken for %q, not %q", word, got, want)
		}
	}
}

func TestSettings(t *testing.T) {
	home := t.TempDir()
	s, err := cli.Settings(home)
	if err != nil {
		t.Fatal(err)
	}
	cli.Set(s, "defaults", "group", "one")
	cli.Set(s, "core", "output", "table")
	cli.Set(s, "defaults", "workspace", "w")
	cli.Set(s, "defaults", "group", "two")
	if err := cli.Write(s); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(home, "azure", "config"))
	if want := "[defaults]\nworkspace = w\ngroup = two\n[core]\noutput = table\n"; err != nil || string(b) != want {
		t.Errorf("%v: %q, want %q", err, b, want)
	}
	if s, err = cli.Settings(home); err != nil || cli.Get(s, "defaults", "group") != "two" || cli.Get(s, "core", "group") != "" {
		t.Errorf("%v: %v", err, s)
	}
	cli.Set(s, "defaults", "group", "")
	if cli.Get(s, "defaults", "group") != "" || cli.Get(s, "defaults", "workspace") != "w" {
		t.Errorf("%v", s)
	}
}
