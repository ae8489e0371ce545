package control_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/mutate"
)

// TestMutations: jobs and clusters that are odd, and were taken nevertheless, come to an end or say
// why they wait, and hold up nobody. BERTH_MUTATIONS is how many.
func TestMutations(t *testing.T) {
	many := 400
	if n, err := strconv.Atoi(os.Getenv("BERTH_MUTATIONS")); err == nil {
		many = n
	}
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 4)
		p.clusterOf("cpu", 0, 4, nil)
		p.ask("PUT", p.ws+"/environments/e/versions/1", map[string]any{"properties": map[string]any{"image": "x"}}, http.StatusCreated)
		p.ask("PUT", p.ws+"/data/d/versions/1", map[string]any{"properties": map[string]any{"dataType": "uri_folder", "dataUri": "azureml://datastores/workspaceblobstore/paths/a/"}}, http.StatusCreated)
		p.ask("PUT", p.ws+"/components/c/versions/1", map[string]any{"properties": map[string]any{"componentSpec": map[string]any{
			"type": "command", "command": "echo ${{inputs.i}}", "environment": "azureml:e:1",
			"inputs": map[string]any{"i": map[string]any{"type": "string"}}, "outputs": map[string]any{"o": map[string]any{"type": "uri_folder"}},
		}}}, http.StatusCreated)
		rng := rand.New(rand.NewPCG(uint64(many), 5))
		var jobs []string
		for i := range many {
			name := fmt.Sprint("n", i)
			if i%8 == 0 {
				p.do("PUT", p.ws+"/computes/"+name, json.RawMessage(mutate.Document(rng, "computes")))
				continue
			}
			if code, _ := p.do("PUT", p.ws+"/jobs/"+name, json.RawMessage(mutate.Document(rng, "jobs"))); code == http.StatusCreated {
				jobs = append(jobs, name)
			}
		}
		time.Sleep(time.Hour)
		ends := map[berth.JobStatus]int{}
		for _, name := range jobs {
			s, st := p.job(name)
			ends[s]++
			if st.Reason == "" {
				t.Errorf("%s is %s and does not say why", name, s)
			}
			if !s.Terminal() && s != berth.Queued {
				t.Errorf("%s is %s: %s", name, s, st.Reason)
			}
		}
		t.Logf("%d jobs: %v", len(jobs), ends)
		p.submit("good", "true")
		p.until("good", berth.Completed)
		p.on("cpu", "fine", "true", nil)
		p.until("fine", berth.Completed)
	})
}
