package berth_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const module = "github.com/berthml/berth"

// imports is the import table: what each package may use of ours. A package that is not listed may
// be used by nobody until it is. The order is from the inside out.
var imports = map[string][]string{
	"":                               {},
	"client":                         {"", "internal/ordered"},
	"internal/config":                {""},
	"internal/filewatch":             {},
	"internal/slack":                 {},
	"internal/idle":                  {},
	"internal/metrics":               {},
	"internal/pty":                   {},
	"internal/socket":                {""},
	"internal/keepalive":             {""},
	"internal/pace":                  {""},
	"internal/cron":                  {""},
	"internal/mutate":                {},
	"internal/store":                 {"", "internal/metrics"},
	"internal/store/pgtest":          {},
	"internal/auth":                  {"", "internal/store"},
	"internal/blob":                  {"", "internal/store"},
	"internal/backup":                {"", "internal/blob/bucket", "internal/config", "internal/store"},
	"internal/blob/bucket":           {"", "internal/runner/data", "internal/storage"},
	"internal/blob/front":            {"", "internal/blob", "internal/store", "internal/pace"},
	"internal/storage":               {""},
	"internal/outbound":              {""},
	"internal/storage/entra":         {"", "internal/outbound", "internal/storage"},
	"internal/locate":                {"", "internal/storage", "internal/store"},
	"internal/track":                 {"", "internal/asset", "internal/blob", "internal/locate", "internal/ordered", "internal/store", "internal/track/points", "internal/job", "internal/metrics", "internal/pace"},
	"internal/track/points":          {},
	"internal/asset":                 {"", "internal/store"},
	"internal/space":                 {"", "internal/asset", "internal/blob", "internal/job", "internal/locate", "internal/store"},
	"internal/sizes":                 {"", "internal/store"},
	"internal/target":                {"", "internal/store"},
	"internal/job":                   {"", "internal/store"},
	"internal/quota":                 {"", "internal/sizes", "internal/store", "internal/target"},
	"internal/cost":                  {"", "internal/sizes", "internal/store", "internal/job", "internal/target"},
	"internal/advise":                {""},
	"internal/plan":                  {"", "internal/cost", "internal/picture", "internal/scale", "internal/sched"},
	"internal/picture":               {"", "internal/cost", "internal/quota", "internal/scale", "internal/sched", "internal/store", "internal/target"},
	"internal/spec":                  {"", "internal/kubeconfig"},
	"internal/jmes":                  {},
	"internal/ordered":               {},
	"internal/kind":                  {"", "internal/ordered"},
	"internal/batch":                 {""},
	"internal/parallel":              {"", "internal/kind", "internal/store", "internal/serve/worker"},
	"internal/overlay":               {},
	"internal/sched":                 {"", "internal/overlay"},
	"internal/scale":                 {""},
	"internal/docker":                {},
	"internal/envs":                  {"", "internal/docker"},
	"internal/mltable":               {"", "internal/parquet"},
	"internal/parquet":               {""},
	"internal/runner":                {"", "internal/envs", "internal/filewatch", "internal/keepalive", "internal/mltable", "internal/runner/cache", "internal/runner/data", "internal/runner/group", "internal/runner/stream", "internal/slack", "internal/pty"},
	"internal/runner/cache":          {""},
	"internal/runner/data":           {""},
	"internal/runner/data/blobtest":  {""},
	"internal/runner/data/sharetest": {},
	"internal/runner/group":          {""},
	"internal/runner/stream":         {},
	"internal/fence":                 {},
	"internal/runner/host":           {"", "internal/idle", "internal/runner", "internal/envs", "internal/filewatch", "internal/fence", "internal/runner/cache", "internal/runner/data", "internal/socket"},
	"internal/runner/alone":          {"", "internal/runner", "internal/envs", "internal/filewatch", "internal/runner/cache", "internal/runner/data"},
	"internal/driver":                {""},
	"internal/driver/local":          {"", "internal/driver", "internal/pty", "internal/runner", "internal/runner/host"},
	"internal/driver/cluster":        {"", "internal/driver", "internal/driver/local", "internal/runner", "internal/runner/host"},
	"internal/driver/fake":           {"", "internal/driver"},
	"internal/driver/dialout":        {"", "internal/driver"},
	"internal/driver/drivertest":     {"", "internal/driver"},
	"internal/driver/ssh":            {"", "internal/driver", "internal/driver/dialout", "internal/driver/local", "internal/socket"},
	"internal/driver/dir":            {"", "internal/runner/host"},
	"internal/driver/slurm":          {"", "internal/driver", "internal/driver/dir", "internal/driver/ssh", "internal/outbound"},
	"internal/driver/kubernetes":     {"", "internal/driver", "internal/driver/dir", "internal/kubeconfig", "internal/driver/dialout"},
	"internal/kubeconfig":            {""},
	"internal/driver/sshd":           {"", "internal/driver"},
	"internal/driver/provided":       {"", "internal/driver", "internal/driver/dialout", "internal/driver/local", "internal/runner/alone", "internal/runner/cache", "internal/runner/host"},
	"internal/arm":                   {""},
	"internal/driver/ssh/sshtest":    {},
	"internal/driver/all":            {"", "internal/driver"}, // and every driver
	"internal/attach":                {"", "internal/auth", "internal/driver", "internal/driver/dialout", "internal/store", "internal/target"},
	"internal/control":               {"", "internal/space", "internal/metrics", "internal/job", "internal/asset", "internal/auth", "internal/blob", "internal/blob/front", "internal/driver", "internal/kind", "internal/locate", "internal/overlay", "internal/parallel", "internal/quota", "internal/sched", "internal/sizes", "internal/store", "internal/scale", "internal/cost", "internal/target", "internal/picture"},
	"internal/devbox":                {"", "internal/job", "internal/cost", "internal/cron", "internal/driver", "internal/quota", "internal/sched", "internal/sizes", "internal/store", "internal/target", "internal/picture"},
	"internal/devbox/agent":          {"", "internal/devbox", "internal/envs", "internal/pty", "internal/socket", "internal/runner"},
	"internal/serve":                 {"", "internal/blob", "internal/job", "internal/locate", "internal/store", "internal/target", "internal/asset"},
	"internal/serve/collect":         {"", "internal/blob", "internal/locate", "internal/serve", "internal/store"},
	"internal/serve/gateway":         {"", "internal/auth", "internal/metrics", "internal/serve", "internal/serve/collect", "internal/store"},
	"internal/serve/worker":          {},
	"internal/api":                   {"", "internal/batch", "internal/serve", "internal/space", "internal/metrics", "internal/job", "internal/asset", "internal/attach", "internal/auth", "internal/blob", "internal/blob/front", "internal/devbox", "internal/filewatch", "internal/keepalive", "internal/kind", "internal/locate", "internal/mltable", "internal/parallel", "internal/quota", "internal/sizes", "internal/storage", "internal/storage/entra", "internal/store", "internal/sched", "internal/advise", "internal/cost", "internal/ordered", "internal/plan", "internal/target", "internal/track", "internal/picture", "internal/arm", "internal/outbound", "internal/pace"},
	"internal/app":                   {"", "internal/serve", "internal/serve/collect", "internal/serve/gateway", "internal/serve/worker", "internal/metrics", "internal/api", "internal/attach", "internal/driver/all", "internal/auth", "internal/backup", "internal/blob", "internal/blob/bucket", "internal/blob/front", "internal/config", "internal/control", "internal/devbox", "internal/devbox/agent", "internal/driver", "internal/driver/local", "internal/envs", "internal/filewatch", "internal/locate", "internal/store", "internal/driver/cluster", "internal/sched", "internal/idle", "internal/runner", "internal/runner/cache", "internal/slack", "internal/socket", "internal/track", "internal/driver/sshd"},
	"internal/migrate":               {"", "client"},
	"internal/setup":                 {"", "internal/auth", "internal/config", "internal/store"},
	"scripts/package":                {},
	"internal/cli":                   {"", "client", "internal/auth", "internal/backup", "internal/setup", "internal/migrate", "internal/app", "internal/driver", "internal/driver/all", "internal/kind", "internal/driver/dialout", "internal/driver/ssh", "internal/driver/kubernetes", "internal/config", "internal/devbox/agent", "internal/driver/local", "internal/driver/cluster", "internal/fence", "internal/jmes", "internal/ordered", "internal/runner/alone", "internal/runner/group", "internal/socket", "internal/spec", "internal/driver/provided"},
	"cmd/berth":                      {"internal/cli"},
}

type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
	Doc        string
}

func packages(t *testing.T) []listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports,Doc", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// rel is a package's path below the module, and whether it is ours.
func rel(path string) (string, bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

func TestImportTable(t *testing.T) {
	for _, p := range packages(t) {
		name, _ := rel(p.ImportPath)
		if len(p.GoFiles) == 0 || strings.HasPrefix(name, "bench/") || strings.HasPrefix(name, "e2e/") || strings.HasPrefix(name, "examples/") {
			continue
		}
		allowed, ok := imports[name]
		if !ok && strings.HasPrefix(name, "internal/driver/") { // a driver needs no line here
			allowed, ok = []string{"", "internal/driver"}, true
		}
		if !ok {
			t.Errorf("package %q is not in the import table", name)
			continue
		}
		for _, i := range p.Imports {
			r, ours := rel(i)
			if name == "internal/driver/all" && strings.HasPrefix(r, "internal/driver/") {
				continue
			}
			if ours && !slices.Contains(allowed, r) {
				t.Errorf("%s imports %s, which the import table does not allow", name, r)
			}
			if name == "" && strings.Contains(strings.Split(i, "/")[0], ".") {
				t.Errorf("the root package imports %s; it may use the standard library only", i)
			}
		}
	}
}

// TestRooms: ARCHITECTURE.md has a room for each directory of internal.
func TestRooms(t *testing.T) {
	page, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := os.ReadDir("internal")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if name := "`internal/" + d.Name() + "`"; !bytes.Contains(page, []byte(name)) {
			t.Errorf("ARCHITECTURE.md has no room %s", name)
		}
	}
}

func TestPackageDocs(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

// maxLines is where a file has become a place people get lost in.
const maxLines = 800

func TestFiles(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); path != "." && (strings.HasPrefix(n, ".") || n == "testdata" || n == "node_modules" || n == "bin" || n == "dist") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		lines := 0
		for s := bufio.NewScanner(f); s.Scan(); {
			lines++
		}
		if lines > maxLines {
			t.Errorf("%s has %d lines; %d is the ceiling", path, lines, maxLines)
		}
		return noInit(t, path)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// maxColumns is how wide a line of comment may be, a tab counted as four.
const maxColumns = 100

// wideComments are the files that do not keep to maxColumns yet. Add none; remove one when it does.
var wideComments = []string{"e2e/container/usage_test.go"}

// TestFileComments: comments stay within maxColumns. Comments behind code are as long as the code
// lets them be, and what is indented in a doc comment is a table or an example.
func TestFileComments(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || d.IsDir() || slices.Contains(wideComments, filepath.ToSlash(path)) {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		lines := strings.Split(string(src), "\n")
		for _, group := range file.Comments {
			for _, c := range group.List {
				at := set.Position(c.Pos()).Line
				text, own := strings.CutPrefix(strings.TrimLeft(lines[at-1], "\t"), "//")
				if !own || strings.HasPrefix(text, "\t") || strings.HasPrefix(text, "go:") {
					continue
				}
				if wide := utf8.RuneCountInString(strings.ReplaceAll(lines[at-1], "\t", "    ")); wide > maxColumns {
					t.Errorf("%s:%d: the comment has %d columns; %d is the limit", path, at, wide, maxColumns)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// maxFunction is how many lines a function may have in the packages of shortFunctions: what does
// not fit a screen is not read.
const maxFunction = 60

// shortFunctions are the packages that keep to maxFunction. Add one when it does.
var shortFunctions = []string{"internal/api", "internal/control"}

func TestFunctionsFitAScreen(t *testing.T) {
	for _, dir := range shortFunctions {
		files, err := filepath.Glob(filepath.Join(filepath.FromSlash(dir), "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no files (%v)", dir, err)
		}
		for _, path := range files {
			if !strings.HasSuffix(path, "_test.go") {
				longFunctions(t, path)
			}
		}
	}
}

func longFunctions(t *testing.T, path string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if lines := set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1; lines > maxFunction {
			t.Errorf("%s: %s has %d lines; %d is the ceiling", set.Position(f.Pos()), f.Name.Name, lines, maxFunction)
		}
	}
}

// TestLocalIsComparedInOnePlace: what a compute can do is for its driver to say, not for its name.
// Where the name of the server's own machine has to be known, berth.IsLocal knows it.
func TestLocalIsComparedInOnePlace(t *testing.T) {
	compares := regexp.MustCompile(`EqualFold\([^)]*LocalCompute|[=!]= (berth\.)?LocalCompute|LocalCompute [=!]=`)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, line := range bytes.Split(src, []byte("\n")) {
			if compares.Match(line) && !bytes.HasPrefix(line, []byte("func IsLocal(")) {
				t.Errorf("%s:%d compares with LocalCompute; use berth.IsLocal, or ask the driver", path, i+1)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestStateHasOneDoor: what is kept beside a document is decoded by store.State, which the packages
// that own a noun give its type.
func TestStateHasOneDoor(t *testing.T) {
	door := filepath.Join("internal", "store", "state.go")
	decodes := regexp.MustCompile(`json\.Unmarshal\([\w.]*\.Own\b`)
	err := filepath.WalkDir("internal", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		if decodes.Match(src) && path != door {
			t.Errorf("%s decodes Doc.Own; use store.State, or the State of the package that owns the noun", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// noInit refuses init functions: what a program is made of is said in internal/app.
func noInit(t *testing.T, path string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			t.Errorf("%s has an init function", path)
		}
	}
	return nil
}

// TestMethodPruning keeps the linker able to drop unused methods: one reachable reflect call by
// name would double the binary.
func TestMethodPruning(t *testing.T) {
	cmd := exec.Command("go", "build", "-ldflags=-dumpdep", "-o", os.DevNull, "./cmd/berth")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%.2000s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "<ReflectMethod>") {
			t.Errorf("reflect lookup by name is reachable: %s", line)
		}
	}
}

func TestModuleTidy(t *testing.T) {
	if out, err := exec.Command("go", "mod", "tidy", "-diff").CombinedOutput(); err != nil {
		t.Errorf("go.mod is not tidy: %v\n%s", err, out)
	}
}

// TestSQLitePair keeps the translated SQLite and the C library it was translated with together:
// they are made as a pair.
func TestSQLitePair(t *testing.T) {
	want := map[string]string{"modernc.org/sqlite": "v1.61.0", "modernc.org/libc": "v1.79.0"}
	for module, version := range want {
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", module).Output()
		if err != nil || strings.TrimSpace(string(out)) != version {
			t.Errorf("%s is %s, want %s (%v)", module, bytes.TrimSpace(out), version, err)
		}
	}
}
