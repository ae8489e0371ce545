package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTutorial runs the commands of docs/tutorial.md, in order, in one shell. It fails where one of
// them does.
func TestTutorial(t *testing.T) {
	for _, tool := range []string{"bash", "python3"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	page, err := os.ReadFile("../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	script := "set -euo pipefail\n"
	blocks := strings.Split(string(page), "```")
	commands := 0
	for i := 1; i < len(blocks); i += 2 {
		body, ok := strings.CutPrefix(blocks[i], "console\n")
		if !ok {
			continue
		}
		for line := range strings.Lines(body) {
			text, first := strings.CutPrefix(line, "$ ")
			if first {
				commands++
				if !strings.Contains(text, "<<") {
					script += "echo \"+ \"" + quoted(strings.TrimSpace(text)) + "\n"
				}
			}
			script += text
		}
	}
	if commands < 20 {
		t.Fatalf("the page has %d commands", commands)
	}
	home, err := os.MkdirTemp("", "bt")
	if err != nil {
		t.Fatal(err)
	}
	user := t.TempDir()
	run := func(name string, args ...string) (string, error) {
		cmd := exec.Command(name, args...)
		cmd.Dir = user
		cmd.Env = append(os.Environ(), "BERTH_HOME="+home, "HOME="+user, "BERTH_URL=", "BERTH_TOKEN=", "BERTH_CA=")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	t.Cleanup(func() {
		_, _ = run("berth", "down") // it may be down
		os.RemoveAll(home)
	})
	path := filepath.Join(user, "tutorial.sh")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := run("bash", path)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"loss 0.", "metric loss", "param rate", "is whole", "Delegate=yes"} {
		if !strings.Contains(out, want) {
			t.Errorf("the commands do not print %q:\n%s", want, out)
		}
	}
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
