package measure_test

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/berthml/berth/bench/measure"
)

func TestQuantile(t *testing.T) {
	v := []float64{9, 1, 5, 3, 7}
	for _, c := range []struct{ q, want float64 }{{0, 1}, {0.25, 3}, {0.5, 5}, {0.9, 8.2}, {1, 9}, {2, 9}} {
		if got := measure.Quantile(v, c.q); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("Quantile(%v, %v) = %v, want %v", v, c.q, got, c.want)
		}
	}
	if v[0] != 9 {
		t.Error("Quantile sorted its argument")
	}
	if got := measure.Median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("median of an even number of values = %v, want 2.5", got)
	}
	if !math.IsNaN(measure.Median(nil)) {
		t.Error("the median of nothing is a number")
	}
}

// A ratio is the median of the rounds' ratios, not the ratio of the medians.
func TestRatios(t *testing.T) {
	got := measure.Ratios([]float64{10, 30, 20}, []float64{10, 10, 40})
	if want := (measure.Ratio{Median: 1, Min: 0.5, Max: 3, Rounds: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := measure.Ratios([]float64{1, 2}, []float64{0}); got.Rounds != 0 {
		t.Errorf("a round without a divisor counts: %+v", got)
	}
}

func TestRow(t *testing.T) {
	var r measure.Row
	r.Value = 4
	r.Against("sbatch", "22", []float64{4, 5}, []float64{100, 100}, false)
	if *r.Ratio != 22.5 || *r.RatioRange != [2]float64{20, 25} || *r.PeerValue != 100 || r.Rounds != 2 {
		t.Errorf("times: %+v", r)
	}
	r.Judge(measure.Bound{Of: "ratio", Least: true, Limit: 20})
	if r.Floor != "ratio >= 20" || !*r.Held {
		t.Errorf("floor %q held %v", r.Floor, *r.Held)
	}
	r.Judge(measure.Bound{Of: "value", Limit: 3.5})
	if *r.Held {
		t.Error("4 <= 3.5 held")
	}
	r.Judge(measure.Bound{Of: "cpu", Limit: 1})
	if *r.Held {
		t.Error("a figure nobody measured held")
	}
	var rate measure.Row
	rate.Against("xargs", "", []float64{900}, []float64{1800}, true)
	if *rate.Ratio != 0.5 {
		t.Errorf("rates: ratio %v, want 0.5", *rate.Ratio)
	}

	path := filepath.Join(t.TempDir(), "out", "results.jsonl")
	for range 2 {
		if err := measure.Append(path, r); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := measure.Read(path)
	if err != nil || len(rows) != 2 || *rows[1].Ratio != 22.5 {
		t.Errorf("read %+v, %v", rows, err)
	}
}

func TestCPU(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	before := measure.CPUs([]int{os.Getpid(), 1 << 30})
	if len(before) != 1 {
		t.Fatalf("%d processes, want 1", len(before))
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if measure.CPUs([]int{os.Getpid()}).Since(before) > 0 {
			return
		}
	}
	t.Error("a busy process used no CPU")
}

func TestFind(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "600.125")
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	pids := measure.Find(func(args []string) bool { return len(args) == 2 && args[1] == "600.125" })
	if len(pids) != 1 || pids[0] != cmd.Process.Pid {
		t.Errorf("found %v, want %d", pids, cmd.Process.Pid)
	}
	rss, pss, err := measure.Memory(cmd.Process.Pid)
	if err != nil || rss <= 0 || pss <= 0 || pss > rss {
		t.Errorf("memory: rss %d, pss %d, %v", rss, pss, err)
	}
}
