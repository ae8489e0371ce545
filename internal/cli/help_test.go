package cli

import (
	"bytes"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// everyCommand calls f for each command that people see.
func everyCommand(f func(*cobra.Command)) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.HasParent() && !cmd.IsAvailableCommand() {
			return
		}
		f(cmd)
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(wholeRoot(newSession()))
}

// article finds an "a" before a vowel that is spoken as one, and an "an" before none.
var article = regexp.MustCompile(`(?i)\b(a [aeio][a-z]*|a un[a-hj-z][a-z]*|an [bcdfgjklmnpqrtvwyz][a-z]*)\b`)

// TestHelpReadsWell checks the help of every command: it begins with a capital, ends without a full
// stop, has the right articles and no words that are said twice.
func TestHelpReadsWell(t *testing.T) {
	seen := 0
	everyCommand(func(cmd *cobra.Command) {
		seen++
		where := cmd.CommandPath()
		if s := cmd.Short; s == "" || s[:1] != strings.ToUpper(s[:1]) || strings.HasSuffix(s, ".") {
			t.Errorf("%s: %q must begin with a capital and end without a full stop", where, s)
		}
		texts := []string{cmd.Short, cmd.Long}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && (f.Usage == "" || strings.HasSuffix(f.Usage, ".")) {
				t.Errorf("%s --%s: %q must say something, without a full stop", where, f.Name, f.Usage)
			}
			texts = append(texts, f.Usage)
		})
		for _, text := range texts {
			for _, m := range article.FindAllString(text, -1) {
				if !strings.HasPrefix(strings.ToLower(m), "an ml") && !strings.HasPrefix(m, "a one") { // spoken as letters, or as "won"
					t.Errorf("%s: %q in %q", where, m, text)
				}
			}
			words := strings.Fields(text)
			for i := 1; i < len(words); i++ {
				if words[i] == words[i-1] && len(words[i]) > 1 && strings.Trim(words[i], "abcdefghijklmnopqrstuvwxyz") == "" {
					t.Errorf("%s: %q twice in %q", where, words[i], text)
				}
			}
		}
	})
	if seen < 150 {
		t.Errorf("only %d commands were looked at", seen)
	}
}

// TestManPages: every command has a page that man can show.
func TestManPages(t *testing.T) {
	pages := ManPages()
	everyCommand(func(cmd *cobra.Command) {
		page := pages[manName(cmd)+".1"]
		if cmd.Name() != "help" && (!bytes.Contains(page, []byte(".SH NAME")) || !bytes.Contains(page, []byte(troff(cmd.Short)))) {
			t.Errorf("%s has no page", cmd.CommandPath())
		}
	})
	man, err := exec.LookPath("man")
	if err != nil {
		t.Skip("there is no man to show them")
	}
	for _, name := range []string{"berth.1", "berth-run.1", "berth-job-create.1"} {
		cmd := exec.Command(man, "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-")
		cmd.Stdin = bytes.NewReader(pages[name])
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil || stderr.Len() > 0 || !bytes.Contains(out, []byte("berth")) {
			t.Errorf("%s: %v %s", name, err, stderr.Bytes())
		}
	}
}

// TestManPagesRender: groff formats all of them without a warning.
func TestManPagesRender(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("there is no groff to format them")
	}
	for name, page := range ManPages() {
		cmd := exec.Command(groff, "-man", "-Tutf8", "-K", "utf8", "-ww")
		cmd.Stdin = bytes.NewReader(page)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil || stderr.Len() > 0 || !bytes.Contains(out, []byte("berth")) {
			t.Errorf("%s: %v %.300s", name, err, stderr.Bytes())
		}
	}
}

// TestTopFits: the header of top stays on the screen, and those that run are shown first.
func TestTopFits(t *testing.T) {
	rows := make([]topRow, 50)
	shown, left := fitTop(rows, 24)
	if len(shown) != 20 || left != 30 {
		t.Errorf("%d shown, %d left", len(shown), left)
	}
	if shown, left := fitTop(rows[:20], 24); len(shown) != 20 || left != 0 {
		t.Errorf("%d shown, %d left", len(shown), left)
	}
}

// TestSuggestions: a word that was mistyped, or is another program's, leads to a command.
func TestSuggestions(t *testing.T) {
	root := wholeRoot(newSession())
	for word, want := range map[string]string{
		"rnu": "run", "statsu": "status", "comptue": "compute", "kill": "cancel", "sbatch": "run", "whoami": "status", "explian": "explain",
		"logn": "login", "envirnment": "environment", "xyzzy": "", "q": "",
	} {
		got := suggestions(root, word)
		if want == "" && len(got) > 0 || want != "" && (len(got) == 0 || got[0] != want) || len(got) > 3 {
			t.Errorf("%s: %v, want %s", word, got, want)
		}
	}
}
