//go:build engines

package container_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os/exec"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/e2e/world"
)

// hog is what the job below allocates, beside what Python takes.
const hog = 200 << 20

// hogProgram holds memory that is really touched, and uses a core until it is ended.
const hogProgram = `
hog = b"x" * (200 << 20)
print("up", flush=True)
while True:
    pass
`

// checkUsage follows a job that runs hogProgram: samples show what it uses while it runs, and the peaks stay when it is over.
func checkUsage(t *testing.T, s *world.Server, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Bin, "events", "-f", name, "-o", "json")
	cmd.Env = s.Command().Env
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	var seen berth.Usage
	for lines := bufio.NewScanner(out); seen.MemoryBytes < hog || seen.CPUSeconds < 0.5 || seen.CPUPercent < 1; {
		if !lines.Scan() {
			t.Fatalf("no sample shows what the job uses; the last one: %+v", seen)
		}
		var e berth.Event
		var d struct{ Usage berth.Usage }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%v in %s", err, lines.Bytes())
		}
		if e.Type != berth.EventTaskUsage {
			continue
		}
		if err := json.Unmarshal(e.Data, &d); err != nil {
			t.Fatalf("%v in %s", err, lines.Bytes())
		}
		if seen = d.Usage; seen.MemoryBytes == 0 {
			t.Fatalf("a running container is said to use no memory: %s", lines.Bytes())
		}
	}
	t.Logf("a sample: %+v", seen)
	if out, err := s.Command("job", "cancel", "-n", name).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := s.Command("logs", "-f", name).CombinedOutput(); err != nil {
		t.Logf("logs: %v\n%s", err, out)
	}
	raw, err := s.Command("explain", name, "-o", "json").Output()
	var x berth.Explanation
	if err != nil || json.Unmarshal(raw, &x) != nil {
		t.Fatalf("explain: %v\n%s", err, raw)
	}
	if u := x.Usage; u.MemoryBytes < seen.MemoryBytes || u.CPUSeconds < seen.CPUSeconds || u.CPUPercent < seen.CPUPercent {
		t.Errorf("the peaks %+v are below a sample %+v", u, seen)
	}
}
