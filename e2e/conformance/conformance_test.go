//go:build linux && engines

package conformance_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var writePage = flag.Bool("write", false, "write docs/conformance.md instead of comparing with it")

const page = "../../docs/conformance.md"

// cell is one feature on one target.
type cell struct {
	t    *testing.T
	s    *site
	f    feature
	to   target
	name string
	seen string // what drive saw

	refused  string // why it was not taken
	last     string // its last status
	warnings []string
	mark     string // in the table
	note     string
}

// Marks of the table.
const (
	honoured  = "yes"
	atSubmit  = "refused"
	atStart   = "fails"
	noEffect  = "no effect"
	pointless = "–"
	ignored   = "IGNORED"
)

// TestConformance submits every feature to every target and compares what it saw with the page.
func TestConformance(t *testing.T) {
	s := startSite(t)
	dir := jobFolder(t)
	var cells []*cell
	for i, f := range features() {
		for _, to := range s.targets {
			c := &cell{t: t, s: s, f: f, to: to, name: fmt.Sprintf("f%02d-%s", i, to.name)}
			cells = append(cells, c)
		}
	}
	var wg sync.WaitGroup
	gate := make(chan struct{}, 6)
	for _, c := range cells {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			c.run(dir)
		})
	}
	wg.Wait()
	for _, c := range cells {
		if c.mark == ignored {
			t.Errorf("%s of %s is ignored on %s: status %s, log %q, %s", c.f.name, c.f.group, c.to.title, c.last, c.log(), c.explained())
		}
	}
	got := render(s.targets, cells)
	if *writePage && !t.Failed() {
		if err := os.WriteFile(page, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, _ := os.ReadFile(page)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("docs/conformance.md is out of date; `go test -tags engines ./e2e/conformance -run TestConformance -write` writes it (-page +seen):\n%s", diff)
	}
}

// jobFolder has the files that jobs refer to.
func jobFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"data/words": "words", "code/work.sh": "echo YES\n", "table/words": "words", "table/MLTable": "paths:\n  - file: ./words\n",
		"conda.yml": "name: x\nchannels: [conda-forge]\ndependencies: [python, pip, {pip: [six==1.17.0]}]\n", "context/Dockerfile": "FROM scratch\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// run submits the job, sees what becomes of it, and says what that means.
func (c *cell) run(dir string) {
	if c.f.only != nil && !slices.Contains(c.f.only, c.to.name) {
		c.mark, c.note = pointless, c.f.why
		return
	}
	text := "type: command\ncompute: azureml:" + c.to.name + "\n" + c.f.job
	if !c.f.environment {
		text += c.to.environment
	}
	path := filepath.Join(dir, c.name+".yml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Error(err)
		return
	}
	if out, err := c.s.try("job", "create", "-f", path, "-n", c.name, "-o", "none"); err != nil {
		c.mark, c.note = atSubmit, sentence(out)
		return
	}
	if c.f.drive != nil {
		c.f.drive(c)
	}
	for end := time.Now().Add(4 * time.Minute); !c.over() && time.Now().Before(end); {
		time.Sleep(300 * time.Millisecond)
	}
	c.classify()
	if !c.over() {
		_, _ = c.s.try("job", "cancel", "-n", c.name)
	}
}

// classify says what became of the job.
func (c *cell) classify() {
	for _, e := range c.events() {
		if e.Type == "job.warning" && strings.Contains(e.Reason, "has no effect") {
			c.warnings = append(c.warnings, e.Reason)
		}
	}
	ok := c.f.ok
	if ok == nil {
		ok = func(c *cell) bool { return c.status() == "Completed" && strings.Contains(c.log(), "YES") }
	}
	switch {
	case ok(c):
		c.mark = honoured
	case len(c.warnings) > 0:
		c.mark, c.note = noEffect, c.warnings[0]
	case c.last == "Failed" && !c.began():
		c.mark, c.note = atStart, c.reason()
	default:
		c.mark = ignored
	}
}

type event struct{ Type, Reason string }

func (c *cell) events() (all []event) {
	out, _ := c.s.try("events", c.name, "-o", "json")
	for line := range strings.Lines(out) {
		var e event
		if json.Unmarshal([]byte(line), &e) == nil {
			all = append(all, e)
		}
	}
	return all
}

// began says whether the command ran.
func (c *cell) began() bool {
	return strings.Contains(c.explained(), "the command ended with")
}

func (c *cell) status() string {
	out, _ := c.s.try("job", "show", "-n", c.name, "-o", "tsv", "--query", "status")
	c.last = strings.TrimSpace(out)
	return c.last
}

func (c *cell) over() bool {
	switch c.status() {
	case "Completed", "Failed", "Canceled":
		return true
	}
	return c.seen != ""
}

func (c *cell) log() string       { out, _ := c.s.try("logs", c.name); return out }
func (c *cell) explained() string { out, _ := c.s.try("explain", c.name); return out }

// reason is why the job failed.
func (c *cell) reason() string {
	for _, e := range slices.Backward(c.events()) {
		if e.Type == "job.status" && e.Reason != "" {
			return e.Reason
		}
	}
	return c.explained()
}

// downloaded is the content of the file of a name that the job left.
func (c *cell) downloaded(name string) (text string) {
	dir := c.t.TempDir()
	_, _ = c.s.try("job", "download", "-n", c.name, "--all", "-p", dir)
	_ = filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() && info.Name() == name {
			b, _ := os.ReadFile(path)
			text = string(b)
		}
		return nil
	})
	return text
}

// cancel cancels the job once its command runs.
func (c *cell) cancel() {
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end) && !strings.Contains(c.log(), "READY"); {
		time.Sleep(200 * time.Millisecond)
	}
	c.cancelNow()
}

// enter does something in the job, over ssh, that its command waits for.
func (c *cell) enter() {
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end) && !strings.Contains(c.log(), "READY"); {
		time.Sleep(200 * time.Millisecond)
	}
	if out, err := c.s.try("ssh", c.name, "--", "touch", "go"); err != nil {
		c.t.Errorf("%s: ssh: %v: %s", c.name, err, out)
		c.cancelNow()
	}
}

func (c *cell) cancelNow() {
	if out, err := c.s.try("job", "cancel", "-n", c.name); err != nil {
		c.t.Errorf("%s: cancel: %v: %s", c.name, err, out)
	}
}

// waitsForGPU waits until the job waits for what it asked for, or runs without.
func (c *cell) waitsForGPU() {
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if out := c.explained(); strings.Contains(out, "nvidia.com/gpu") {
			c.seen = out
			return
		}
		if s := c.status(); s == "Running" || s == "Failed" {
			break
		}
	}
	c.cancelNow()
}

var (
	volatile = regexp.MustCompile(`(^berth: |\S+\.yml:\d+:\d+: | CliV2AnonymousEnvironment:[0-9a-f]+)`)
	named    = regexp.MustCompile(`\b(compute|names) (local|nodes|machine|laptop|queue|k8s)\b`)
	spaces   = regexp.MustCompile(`\s+`)
)

// sentence is the reason in what a command printed, without what differs from run to run.
func sentence(out string) string {
	out = strings.TrimSpace(out)
	out = named.ReplaceAllString(volatile.ReplaceAllString(out, ""), "$1 NAME")
	return spaces.ReplaceAllString(out, " ")
}
