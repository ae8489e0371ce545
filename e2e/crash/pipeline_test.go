package crash_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestKillPipelines kills servers and runners while pipelines run: no step runs twice, a step
// begins only after the one it takes its input from, and a pipeline has completed when, and only
// when, all its steps have.
func TestKillPipelines(t *testing.T) {
	jobs, kills, seed := sizes()
	jobs, kills = jobs/10, kills/2
	rng := rand.New(rand.NewPCG(seed, 13))
	w := newChaos(t, "")
	w.sure("PUT", w.ws+"/components/add/versions/1", map[string]any{"properties": map[string]any{"componentSpec": map[string]any{
		"type": "command", "name": "add", "version": "1", "is_deterministic": true,
		"command": fmt.Sprintf(`echo ran >> %s/${{inputs.mark}}; sleep 0.05; $[[cat ${{inputs.before}}/list > ${{outputs.after}}/list;]] echo ${{inputs.mark}} >> ${{outputs.after}}/list; cat ${{outputs.after}}/list`, w.marks),
		"inputs":  map[string]any{"mark": map[string]any{"type": "string"}, "before": map[string]any{"type": "uri_folder", "optional": true}},
		"outputs": map[string]any{"after": map[string]any{"type": "uri_folder"}},
	}}})
	steps := []string{"a", "b", "c"}
	for i := range jobs {
		graph := map[string]any{}
		for k, step := range steps {
			in := map[string]any{"mark": map[string]any{"job_input_type": "literal", "value": jobName(i) + step}}
			if k > 0 {
				in["before"] = map[string]any{"job_input_type": "literal", "value": "${{parent.jobs." + steps[k-1] + ".outputs.after}}"}
			}
			graph[step] = map[string]any{"type": "command", "componentId": "azureml:add:1", "inputs": in}
		}
		w.sure("PUT", w.ws+"/jobs/"+jobName(i), map[string]any{"properties": map[string]any{
			"jobType": "Pipeline", "jobs": graph, "settings": map[string]any{"default_compute": "local"},
		}})
	}
	for range kills {
		time.Sleep(time.Duration(20+rng.IntN(280)) * time.Millisecond)
		if hosts := w.hosts(); rng.IntN(4) == 0 && len(hosts) > 0 {
			w.kill(hosts[rng.IntN(len(hosts))])
		} else {
			w.kill(w.cmd.Process.Pid)
		}
	}
	completed := 0
	for i := range jobs {
		name := jobName(i)
		var o outcome
		w.until("end of "+name, 3*time.Minute, func() (bool, error) {
			var err error
			o, err = w.outcome(name)
			return err == nil && (o.Status == "Completed" || o.Status == "Failed"), err
		})
		var list string
		all := true
		for _, step := range steps {
			ran, err := os.ReadFile(filepath.Join(w.marks, name+step))
			if n := strings.Count(string(ran), "\n"); n > 1 {
				t.Errorf("step %s of %s ran %d times", step, name, n)
			}
			list += name + step + "\n"
			child, childErr := w.outcome(name + "_" + step)
			done := childErr == nil && child.Status == "Completed"
			if done && !all {
				t.Errorf("step %s of %s completed, and one before it did not", step, name)
			}
			if all = all && done; done && err != nil {
				t.Errorf("step %s of %s completed and never ran", step, name)
			}
		}
		if all != (o.Status == "Completed") || o.Berth.Reason == "" {
			t.Errorf("%s is %s (%s); that all its steps completed is %v", name, o.Status, o.Berth.Reason, all)
		}
		if o.Status == "Completed" {
			completed++
			if log := w.sure("GET", w.ws+"/jobs/"+name+"_c/logs", nil); string(log) != list {
				t.Errorf("the last step of %s printed %q", name, log)
			}
		}
	}
	t.Logf("%d of %d pipelines completed, the others say which step was lost", completed, jobs)
	if completed < jobs/2 {
		t.Error("too few")
	}
}
