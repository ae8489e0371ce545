package berth_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// initTime is how long a package of ours may take before main runs: every command waits for all of
// them. What is needed by few commands is made when it is first used (sync.OnceValue).
const initTime = 50 * time.Microsecond

// initRuns is how often the program is run for a package that takes longer. What a package takes at
// least hardly varies, also where others use the machine: with ten runs on two cores with a load of
// ten, it is the same within a tenth.
const initRuns = 50

// initLimit is how many allocations such a package may make: they are the same on every machine.
const initLimit = 200

// initBytes is how much memory they may take: each page of it is a page fault of every command.
const initBytes = 24 << 10

// initTotal is how many all packages may make, those of others too: what a dependency does before
// main runs is part of its price.
const initTotal = 2400

// TestInitialisers measures with inittrace.
func TestInitialisers(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	program := filepath.Join(t.TempDir(), "berth")
	if out, err := exec.Command("go", "build", "-o", program, "./cmd/berth").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	least := map[string]time.Duration{}
	for run := 0; run == 0 || run < initRuns && len(slow(least)) > 0; run++ {
		total := 0
		for _, p := range traceInits(t, program) {
			total += p.allocs
			name, ours := rel(p.name)
			if !ours {
				continue
			}
			if had, ok := least[name]; !ok || p.took < had {
				least[name] = p.took
			}
			if p.allocs > initLimit && run == 0 {
				t.Errorf("%s makes %d allocations before main runs; %d are allowed", name, p.allocs, initLimit)
			}
			if p.bytes > initBytes && run == 0 {
				t.Errorf("%s allocates %d bytes before main runs; %d are allowed", name, p.bytes, initBytes)
			}
		}
		if total > initTotal && run == 0 {
			t.Errorf("all packages together make %d allocations before main runs; %d are allowed", total, initTotal)
		}
	}
	if len(least) == 0 {
		t.Fatal("inittrace says nothing of our packages")
	}
	for _, name := range slow(least) {
		t.Errorf("%s takes %v before main runs, at the least of %d runs; %v is allowed", name, least[name], initRuns, initTime)
	}
}

// slow are the packages that take too long.
func slow(took map[string]time.Duration) (names []string) {
	for name, d := range took {
		if d > initTime {
			names = append(names, name)
		}
	}
	return names
}

// inited is what inittrace says of a package.
type inited struct {
	name          string
	took          time.Duration
	bytes, allocs int
}

// traceInits runs a program once.
func traceInits(t *testing.T, program string) (all []inited) {
	t.Helper()
	cmd := exec.Command(program, "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		var p inited
		var at, took float64
		n, _ := fmt.Sscanf(line, "init %s @%f ms, %f ms clock, %d bytes, %d allocs", &p.name, &at, &took, &p.bytes, &p.allocs)
		if p.took = time.Duration(took * float64(time.Millisecond)); n == 5 {
			all = append(all, p)
		}
	}
	return all
}
