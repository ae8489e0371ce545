package crash_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestKillMiniBatches takes the nodes of a job with mini-batches away, kills servers and runners
// between, and asks that the result has every row once, and that nothing was scored again which was
// not lost with the process that did it.
func TestKillMiniBatches(t *testing.T) {
	_, kills, seed := sizes()
	kills = max(4, kills/4)
	rng := rand.New(rand.NewPCG(seed, 17))
	w := newChaos(t, "")
	w.cluster("spot", map[string]any{"vmPriority": "LowPriority"})
	const files = 120
	input, code, out := t.TempDir(), t.TempDir(), t.TempDir()
	for i := range files {
		if err := os.WriteFile(filepath.Join(input, fmt.Sprintf("f%03d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := fmt.Sprintf(`
import os, time

def run(mini_batch):
    time.sleep(0.1)
    names = [os.path.basename(p) for p in mini_batch]
    with open(%q, "a") as f:
        f.write("".join(n + "\n" for n in names))
    return names
`, filepath.Join(w.marks, "scored"))
	if err := os.WriteFile(filepath.Join(code, "score.py"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	w.sure("PUT", w.ws+"/codes/score/versions/1", map[string]any{"properties": map[string]any{"codeUri": "file://" + code}})
	w.sure("PUT", w.ws+"/jobs/mini", map[string]any{"properties": map[string]any{
		"jobType": "Parallel", "computeId": w.ws + "/computes/spot", "codeId": w.ws + "/codes/score/versions/1", "resources": map[string]any{"instanceCount": 2},
		"inputData": "${{inputs.data}}", "miniBatchSize": 1, "maxConcurrencyPerInstance": 2, "retrySettings": map[string]any{"max_retries": 100, "timeout": 60},
		"inputs":  map[string]any{"data": map[string]any{"jobInputType": "uri_folder", "uri": "file://" + input}},
		"outputs": map[string]any{"score": map[string]any{"jobOutputType": "uri_folder", "uri": "file://" + out}},
		"task":    map[string]any{"entry_script": "score.py", "output": "score", "output_file_name": "rows.csv"},
	}})
	counts := map[string]int{}
	for range kills {
		time.Sleep(time.Duration(200+rng.IntN(800)) * time.Millisecond)
		switch n := rng.IntN(10); {
		case n < 4:
			if code, _, err := w.do("POST", w.ws+"/computes/spot/evict", map[string]any{"simulate": n < 2}); err == nil && code == http.StatusOK {
				counts["eviction"]++
			}
		case n < 8:
			counts["server"]++
			w.kill(w.cmd.Process.Pid)
		default:
			if hosts := w.hosts(); len(hosts) > 0 {
				counts["runner"]++
				w.kill(hosts[rng.IntN(len(hosts))])
			}
		}
	}
	var o outcome
	w.until("end of the job", 3*time.Minute, func() (bool, error) {
		var err error
		o, err = w.outcome("mini")
		return err == nil && (o.Status == "Completed" || o.Status == "Failed"), err
	})
	if o.Status != "Completed" {
		t.Fatalf("it is %s: %s", o.Status, o.Berth.Reason)
	}
	b, err := os.ReadFile(filepath.Join(out, "rows.csv"))
	if err != nil {
		t.Fatal(err)
	}
	want := ""
	for i := range files {
		want += fmt.Sprintf("f%03d\n", i)
	}
	if string(b) != want {
		t.Errorf("the result is not every row once:\n%s", b)
	}
	scored, err := os.ReadFile(filepath.Join(w.marks, "scored"))
	if err != nil {
		t.Fatal(err)
	}
	// A task that is taken away or killed may lose what its two processes were at, and no more.
	again := strings.Count(string(scored), "\n") - files
	if most := 2 * 2 * (counts["eviction"] + counts["runner"]); again < 0 || again > most {
		t.Errorf("%d files were scored again, and at most %d were lost", again, most)
	}
	t.Logf("%d files scored again, %v", again, counts)
}
