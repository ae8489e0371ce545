// Package samples runs job files in the manner of public samples, as az ml users write them: images
// alone, curated names, old pins, pip in commands, artifacts, pipelines, services. The head of each
// file says what has to come of it.
package samples_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// wants are what the head of a file says: key, value.
func wants(t *testing.T, file string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(line, "# ")
		key, value, found := strings.Cut(strings.TrimSpace(rest), ": ")
		if !ok || !found {
			break
		}
		out[key] = value
	}
	return out
}

// run runs the samples; heavy says which of them.
func run(t *testing.T, heavy bool) {
	files, err := filepath.Glob("files/[0-9]*.yml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d samples, %v", len(files), err)
	}
	home := world.Home(t)
	// The samples run without a container engine, so that they do on every machine.
	if err := os.WriteFile(filepath.Join(home, "berth.yaml"), []byte("container_engine: none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := world.StartIn(t, home)
	for i, file := range files {
		want := wants(t, file)
		if (want["heavy"] != "") != heavy {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yml"), func(t *testing.T) {
			if program := want["needs"]; program != "" {
				if _, err := exec.LookPath(program); err != nil {
					t.Skipf("%s is not there", program)
				}
			}
			sample(t, s, file, fmt.Sprintf("sample%02d", i), want)
		})
	}
}

func sample(t *testing.T, s *world.Server, file, name string, want map[string]string) {
	out, err := s.Command("ml", "job", "create", "-f", file, "-n", name, "--stream").CombinedOutput()
	if refused := want["refused"]; refused != "" {
		if err == nil || !strings.Contains(string(out), refused) {
			t.Errorf("%v; it is not refused with %q:\n%s", err, refused, out)
		}
		return
	}
	shown, err := s.Command("ml", "job", "show", "-n", name).Output()
	var job struct{ Status string }
	if err != nil || json.Unmarshal(shown, &job) != nil || job.Status != want["expect"] {
		t.Fatalf("it is %s, want %s (%v)\n%s", job.Status, want["expect"], err, out)
	}
	log := string(out)
	if child := want["child"]; child != "" {
		names, err := s.Command("ml", "job", "list", "--parent-job-name", name, "--query", "[?display_name=='"+child+"'].name", "-o", "tsv").Output()
		if err != nil {
			t.Fatal(err)
		}
		text, err := s.Command("logs", strings.TrimSpace(string(names))).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		log = string(text)
	}
	if !strings.Contains(log, want["says"]) {
		t.Errorf("it does not say %q:\n%s", want["says"], log)
	}
	if event := want["event"]; event != "" {
		all, err := s.Command("events", name).CombinedOutput()
		if err != nil || !strings.Contains(string(all), event) {
			t.Errorf("%v; no event says %q:\n%s", err, event, all)
		}
	}
}

func TestSamples(t *testing.T) { run(t, false) }
