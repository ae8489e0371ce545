package envs

import (
	"os"
	"strings"
	"testing"

	"github.com/berthml/berth"
)

func TestDockerfileOf(t *testing.T) {
	for said, want := range map[string]string{
		"": "Dockerfile", "Dockerfile": "Dockerfile", "/Dockerfile": "Dockerfile", "./docker/gpu.Dockerfile": "docker/gpu.Dockerfile", "../Dockerfile": "../Dockerfile",
	} {
		if got := dockerfileOf(berth.LaunchEnv{Dockerfile: said}); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}

func TestIgnore(t *testing.T) {
	l, err := parseIgnore(strings.NewReader("# comment\n*.pyc\n**/*.log\ndata\n!data/keep\n/build/\nx[0-9].txt\n"))
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]bool{
		"a.pyc": true, "sub/a.pyc": false, "a.log": true, "sub/deep/a.log": true, "data": true, "data/x": true, "data/keep": false,
		"data/keep/y": false, "build": true, "build/z": true, "src/build": false, "x1.txt": true, "xy.txt": false, "src/a.py": false,
	} {
		if got, err := l.match(p); got != want || err != nil {
			t.Errorf("%s: %v %v, want %v", p, got, err, want)
		}
	}
	if _, err := parseIgnore(strings.NewReader("a[b")); err == nil {
		t.Error("a pattern that is none was taken")
	}
}

func TestDistill(t *testing.T) {
	got := summarizeError([]string{
		"Using Python 3.11", "Resolved 3 packages", "error: Failed to build `x`", "  cause: The build backend returned an error",
		"         Traceback (most recent call last):", `           File "setup.py", line 3, in <module>`, "             ^^^^^^^", "         ModuleNotFoundError: No module named 'y'",
		"hint: add it to your `pyproject.toml` under:", "", "[tool.uv]",
	}, "fallback")
	want := "error: Failed to build `x`\n  cause: The build backend returned an error\n         ModuleNotFoundError: No module named 'y'"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := summarizeError(nil, "fallback"); got != "fallback" {
		t.Errorf("got %q", got)
	}
}

func TestReadIni(t *testing.T) {
	got := map[string]string{}
	readIni("[global]\nindex-url = https://a.test/simple\nextra_index_url =\n    https://b.test\n    https://c.test\n# no\n[list]\nindex-url = x\n[install]\nindex-url: https://d.test\n", got)
	if got["index-url"] != "https://d.test" || got["extra-index-url"] != " https://b.test https://c.test" {
		t.Errorf("got %q", got)
	}
}

// The documentation shows both tables.
func TestDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/environments.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	for conda, pypi := range pypiNames {
		if !strings.Contains(doc, "`"+conda+"` `"+pypi+"`") {
			t.Errorf("docs/environments.md does not say that %s is %s", conda, pypi)
		}
	}
	for _, f := range families {
		if want := "`" + strings.Join(f.packages, "` `") + "`"; !strings.Contains(doc, want) {
			t.Errorf("docs/environments.md does not show %s", want)
		}
	}
	for name := range bundledReason {
		if !strings.Contains(doc, "`"+name+"`") {
			t.Errorf("docs/environments.md does not say that %s is left out", name)
		}
	}
	for name := range nonPythonNames {
		if !strings.Contains(doc, "`"+name+"`") {
			t.Errorf("docs/environments.md does not name %s", name)
		}
	}
}

func TestNearestRelease(t *testing.T) {
	all := []string{"2.0", "1.26.4", "1.26.0", "1.25.2", "1.19.5", "1.0", "2.1rc1"}
	for version, want := range map[string]string{"1.26.9": "1.26.4", "1.26": "1.26.0", "1.24": "1.25.2", "1.19.4": "1.19.5", "3.0": "2.0", "0.9": "1.0", "odd": ""} {
		if got := nearestRelease(version, all); got != want {
			t.Errorf("%s: %q, want %q", version, got, want)
		}
	}
}
