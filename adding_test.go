package berth_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// TestAddingPage: the files and diffs of docs/adding.md apply to this tree, and their tests pass.
// They are laid over it and never written into it.
func TestAddingPage(t *testing.T) {
	if testing.Short() || runtime.GOOS == "windows" {
		t.Skip("builds packages; the toy driver is for Unix")
	}
	page, err := os.ReadFile(filepath.Join("docs", "adding.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir, replace, packages := t.TempDir(), map[string]string{}, map[string]bool{}
	lay := func(path, text string) {
		at := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		full, err := filepath.Abs(filepath.FromSlash(path))
		if err != nil {
			t.Fatal(err)
		}
		replace[full] = at
		packages["./"+path[:strings.LastIndex(path, "/")]] = true
	}
	files := regexp.MustCompile("(?s)```go file=(\\S+)\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for _, m := range files {
		if _, err := os.Stat(filepath.FromSlash(m[1])); err == nil {
			t.Errorf("%s is not new", m[1])
		}
		lay(m[1], m[2])
	}
	diffs := regexp.MustCompile("(?s)```diff\n--- a/(\\S+)\n\\+\\+\\+ b/\\S+\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for _, m := range diffs {
		lay(m[1], patch(t, m[1], m[2]))
	}
	if len(files) != 9 || len(diffs) != 3 {
		t.Fatalf("the page has %d files and %d diffs, want 9 and 3", len(files), len(diffs))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(at, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-overlay", at, "./internal/app").CombinedOutput(); err != nil {
		t.Fatalf("the server with all three: %v\n%s", err, out)
	}
	windows := exec.Command("go", "build", "-overlay", at, "./internal/driver/all")
	windows.Env = append(os.Environ(), "GOOS=windows", "CGO_ENABLED=0")
	if out, err := windows.CombinedOutput(); err != nil {
		t.Fatalf("the drivers on Windows: %v\n%s", err, out)
	}
	renderPage(t, string(page), at)
	build := []string{"test", "-c", "-vet=off", "-overlay", at, "-o", dir + string(filepath.Separator)}
	for p := range packages {
		build = append(build, p)
	}
	if out, err := exec.Command("go", build...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, pkg := range map[string]string{
		"TestToyDriver": "shell", "TestToyOnServer": "app", "TestToyAsStep": "app", "TestToyKind": "kind", "TestToyResource": "api",
	} {
		toy := exec.Command(filepath.Join(dir, pkg+".test"), "-test.run", "^"+name+"$", "-test.v")
		toy.Dir = dir
		if out, err := toy.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+name+" ") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// renderPage shows that the client of a build with the types of the page reads its YAML files.
func renderPage(t *testing.T, page, overlay string) {
	t.Helper()
	dir := t.TempDir()
	berth := filepath.Join(dir, "berth")
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", berth, "./cmd/berth").CombinedOutput(); err != nil {
		t.Fatalf("the client: %v\n%s", err, out)
	}
	want := map[string][]string{
		"box.yml":   {"compute", `"computeType": "Shell"`},
		"again.yml": {"job", `"type": "repeat"`},
	}
	for _, m := range regexp.MustCompile("(?s)```yaml file=(\\S+)\n(.*?)```").FindAllStringSubmatch(page, -1) {
		if err := os.WriteFile(filepath.Join(dir, m[1]), []byte(m[2]), 0o600); err != nil {
			t.Fatal(err)
		}
		render := exec.Command(berth, "render", "-f", m[1], "--kind", want[m[1]][0])
		render.Dir = dir
		if out, err := render.CombinedOutput(); err != nil || !strings.Contains(string(out), want[m[1]][1]) {
			t.Errorf("%s: %v\n%s", m[1], err, out)
		}
		delete(want, m[1])
	}
	if len(want) > 0 {
		t.Errorf("not in the page: %v", want)
	}
}

// patch applies the hunks of a unified diff, each of which has to fit in one place.
func patch(t *testing.T, path, diff string) string {
	t.Helper()
	src, err := os.ReadFile(filepath.FromSlash(path))
	if err != nil {
		t.Fatal(err)
	}
	text := string(src)
	for hunk := range strings.SplitSeq(strings.TrimPrefix(diff, "@@\n"), "@@\n") {
		var before, after strings.Builder
		for line := range strings.Lines(hunk) {
			if line[0] != '+' {
				before.WriteString(line[1:])
			}
			if line[0] != '-' {
				after.WriteString(line[1:])
			}
		}
		if n := strings.Count(text, before.String()); n != 1 {
			t.Fatalf("a hunk for %s fits in %d places:\n%s", path, n, hunk)
		}
		text = strings.Replace(text, before.String(), after.String(), 1)
	}
	return text
}
