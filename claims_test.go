package berth_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestClaims: every row of docs/claims.md has words that its page has, and names tests that exist.
func TestClaims(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("docs/claims.md")
	if err != nil {
		t.Fatal(err)
	}
	plain := func(text string) string {
		return strings.Join(strings.Fields(strings.NewReplacer("`", "", "*", "", `\|`, "|").Replace(text)), " ")
	}
	named := regexp.MustCompile("`([^`]+)`")
	var name, page string
	rows := 0
	for line := range strings.Lines(string(list)) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			name = strings.TrimSpace(heading)
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			page = plain(links.ReplaceAllString(string(b), "$1"))
		}
		cells := strings.Split(strings.ReplaceAll(strings.TrimSpace(line), `\|`, "\x00"), " | ")
		if page == "" || len(cells) != 2 || !strings.HasPrefix(cells[0], "| ") || strings.HasPrefix(cells[0], "| claim") {
			continue
		}
		rows++
		claim := plain(strings.ReplaceAll(strings.TrimPrefix(cells[0], "| "), "\x00", "|"))
		if !strings.Contains(page, claim) {
			t.Errorf("%s does not say %q: change docs/claims.md with it", name, claim)
		}
		tests := named.FindAllStringSubmatch(cells[1], -1)
		if len(tests) == 0 && !strings.HasPrefix(cells[1], "none") {
			t.Errorf("%s: %q names no test; write `none` and the reason", name, claim)
		}
		for _, m := range tests {
			if !shows(t, m[1]) {
				t.Errorf("%s: %q is shown by %s, which does not exist", name, claim, m[1])
			}
		}
	}
	if rows < 100 {
		t.Errorf("docs/claims.md has %d rows", rows)
	}
}

var links = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)

// shows reports whether a test exists: DIRECTORY.TestName, NAME.txtar of the command line's
// scripts, or a file.
func shows(t *testing.T, test string) bool {
	t.Helper()
	if strings.HasSuffix(test, ".txtar") {
		test = "internal/cli/testdata/script/" + test
	}
	dir, function, ok := strings.Cut(test, ".Test")
	if !ok {
		_, err := os.Stat(test)
		return err == nil
	}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "\nfunc Test"+function+"(") {
			return true
		}
	}
	return false
}
