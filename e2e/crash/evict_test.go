package crash_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestEvictAnything takes nodes with low priority away from jobs, kills servers and runners
// between, and asks that every job comes to its end with nothing done twice: each attempt goes on
// from what the last had written.
func TestEvictAnything(t *testing.T) {
	jobs, kills, seed := sizes()
	jobs, kills = jobs/16, kills/2
	const steps = 20
	rng := rand.New(rand.NewPCG(seed, 11))
	w := newChaos(t, "")
	w.cluster("spot", map[string]any{"vmPriority": "LowPriority"})
	for i := range jobs {
		command := fmt.Sprintf(`n=$(cat outputs/n 2>/dev/null || echo 0)
while [ $n -lt %d ]; do
  n=$((n+1)); echo $n > outputs/n.new; mv outputs/n.new outputs/n; echo "step $n"; sleep 0.05
done
echo "all $n"`, steps)
		w.put(jobName(i), command, "spot")
	}
	counts := map[string]int{}
	for range kills {
		time.Sleep(time.Duration(100+rng.IntN(400)) * time.Millisecond)
		switch n := rng.IntN(10); {
		case n < 6:
			if code, _, err := w.do("POST", w.ws+"/computes/spot/evict", map[string]any{"simulate": n < 3}); err == nil && code == http.StatusOK {
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
	attempts := 0
	for i := range jobs {
		name := jobName(i)
		var o outcome
		w.until("end of "+name, 3*time.Minute, func() (bool, error) {
			var err error
			o, err = w.outcome(name)
			return err == nil && (o.Status == "Completed" || o.Status == "Failed"), err
		})
		if o.Status != "Completed" {
			t.Errorf("%s is %s: %s", name, o.Status, o.Berth.Reason)
			continue
		}
		log := w.sure("GET", w.ws+"/jobs/"+name+"/logs", nil) // of all attempts, one after the other
		attempts += max(1, o.Berth.Attempt)
		// A step that was written and not yet told is not told; none is told twice, and none is out
		// of turn.
		last := 0
		told, end, _ := strings.Cut(string(log), "all ")
		for line := range strings.Lines(told) {
			var n int
			if _, err := fmt.Sscanf(line, "step %d", &n); err != nil || n <= last {
				t.Errorf("%s after step %d: %q", name, last, line)
			}
			last = max(last, n)
		}
		// One that had ended when it was asked to end starts again: nobody can know whether it had
		// finished.
		if all := fmt.Sprintf("all %d\n", steps); strings.ReplaceAll("all "+end, all, "") != "" {
			t.Errorf("%s ends with %q", name, end)
		}
	}
	t.Logf("%d jobs in %d attempts, %v", jobs, attempts, counts)
}

// kill kills a process that may be gone.
func (w *chaos) kill(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		w.t.Error(err)
	}
}

// cluster makes a cluster of up to three nodes.
func (w *chaos) cluster(name string, more map[string]any) {
	props := map[string]any{"vmSize": "Standard_DS1_v2", "scaleSettings": map[string]any{
		"minNodeCount": 0, "maxNodeCount": 3, "nodeIdleTimeBeforeScaleDown": "PT2S",
	}}
	for k, v := range more {
		props[k] = v
	}
	w.sure("PUT", w.ws+"/computes/"+name, map[string]any{"location": "local", "properties": map[string]any{"computeType": "AmlCompute", "properties": props}})
}

// put submits a job.
func (w *chaos) put(name, command, on string) {
	w.sure("PUT", w.ws+"/jobs/"+name, map[string]any{"properties": map[string]any{"jobType": "Command", "command": command, "computeId": "azureml:" + on}})
}

// sure repeats a request until it is granted.
func (w *chaos) sure(method, path string, body any) (answer []byte) {
	w.until(method+" "+path, time.Minute, func() (bool, error) {
		code, b, err := w.do(method, path, body)
		if err == nil && code/100 != 2 {
			err = fmt.Errorf("%d %s", code, bytes.TrimSpace(b))
		}
		answer = b
		return err == nil, err
	})
	return answer
}
