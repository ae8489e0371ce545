//go:build engines

package slurm_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/driver/slurm/slurmtest"
	"github.com/berthml/berth/internal/runner/alone"
)

// TestAwayOnNodes: jobs of an array that cannot ask their server give their nodes back, having run
// nothing, and their tasks are evicted. That others have waited before, so that these wait less, is
// made believe.
func TestAwayOnNodes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	f := openOn(t, slurmtest.Start(t, 1, 8))
	kept, err := alone.NodeDir()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(f.api.URL))
	marker := filepath.Join(kept, "away-"+hex.EncodeToString(sum[:8]))
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(marker) })
	ran := filepath.Join(t.TempDir(), "ran")
	f.away.Store(true)
	var all []berth.Launch
	for i := range 6 { // one or two have a job of their own, which asks for nothing
		all = append(all, f.launch(i, fmt.Sprintf("echo %d >> %s", i, ran)))
	}
	f.startAll(ctx, t, all)
	evicted := 0
	for _, l := range all {
		o := drivertest.Wait(ctx, t, f.d, l.Task)
		if o.Exit.OK() {
			continue
		}
		if evicted++; o.Exit.Cause != "evicted" || !strings.Contains(o.Exit.Reason, "gave up waiting for the server on node n1") {
			t.Errorf("%s: %+v", l.Task, o.Exit)
		}
	}
	has := func() int {
		b, _ := os.ReadFile(ran) // nothing may have run
		return strings.Count(string(b), "\n")
	}
	if n := has(); evicted < 2 || n != len(all)-evicted {
		t.Errorf("%d of %d tasks were evicted, and %d have run", evicted, len(all), n)
	}
	f.away.Store(false)
	for i := range all {
		all[i].Task, all[i].Attempt = berth.TaskID(fmt.Sprintf("job-%d.2", i)), 2
	}
	f.startAll(ctx, t, all)
	for _, l := range all {
		if o := drivertest.Wait(ctx, t, f.d, l.Task); !o.Exit.OK() {
			t.Errorf("%s: %+v", l.Task, o.Exit)
		}
	}
	if n := has(); n != 2*len(all)-evicted {
		t.Errorf("%d have run", n)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the next jobs believe that the server is away")
	}
}
