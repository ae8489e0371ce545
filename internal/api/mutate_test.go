package api_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/mutate"
)

// TestMutations: documents in which something is changed at random are taken or refused, and
// whatever was taken can be shown, listed, planned, explained and deleted. BERTH_MUTATIONS is how
// many.
func TestMutations(t *testing.T) {
	x := open(t)
	x.do("PUT", x.ws+"/environments/e/versions/1", `{"properties":{"image":"x"}}`).want(201)
	x.do("PUT", x.ws+"/data/d/versions/1", `{"properties":{"dataType":"uri_folder","dataUri":"azureml://datastores/workspaceblobstore/paths/a/"}}`).want(201)
	x.do("PUT", x.ws+"/components/c/versions/1", `{"properties":{"componentSpec":{"type":"command","command":"echo ${{inputs.i}}","environment":"azureml:e:1","inputs":{"i":{"type":"string"}},"outputs":{"o":{"type":"uri_folder"}}}}}`).want(201)
	many := 1500
	if n, err := strconv.Atoi(os.Getenv("BERTH_MUTATIONS")); err == nil {
		many = n
	}
	rng := rand.New(rand.NewPCG(uint64(many), 3))
	kinds := slices.Sorted(maps.Keys(mutate.Sound))
	for _, kind := range kinds {
		for i, doc := range mutate.Sound[kind] {
			path := x.ws + "/" + kind
			if !strings.Contains(kind, "/") {
				path += fmt.Sprintf("/sound%d", i)
			}
			if a := x.do("PUT", path, doc); a.status/100 != 2 {
				t.Errorf("a sound document is refused: %s\n%s", doc, a.raw)
			}
			x.do("DELETE", path, nil)
		}
	}
	taken := 0
	for i := range many {
		kind := kinds[i%len(kinds)]
		body := mutate.Document(rng, kind)
		path := x.ws + "/" + kind
		if !strings.Contains(kind, "/") {
			path += fmt.Sprintf("/n%d", i)
		}
		ok := func(method, path string, body any) answer {
			a := x.do(method, path, body)
			if a.status >= 500 && a.status != http.StatusNotImplemented {
				t.Errorf("%s %s of %s\n%d %s", method, path, body, a.status, a.raw)
			}
			return a
		}
		if kind == "jobs" {
			ok("POST", path+"/plan", string(body))
		}
		if put := ok("PUT", path, string(body)); put.status/100 != 2 {
			if put.status/100 == 4 && !strings.Contains(string(put.raw), `"message"`) {
				t.Errorf("refused without a word: %s: %s", body, put.raw)
			}
			continue
		}
		taken++
		if a := ok("GET", path, nil); a.status != http.StatusOK {
			t.Errorf("what was taken cannot be shown: %s: %d %s", body, a.status, a.raw)
		}
		if a := ok("GET", path[:strings.LastIndexByte(path, '/')], nil); a.status != http.StatusOK {
			t.Errorf("what was taken cannot be listed: %s: %d %s", body, a.status, a.raw)
		}
		switch kind {
		case "jobs":
			for _, below := range []string{"/explain", "/tasks", "/events"} {
				ok("GET", path+below, nil)
			}
		case "computes":
			ok("GET", path+"/explain", nil)
			ok("POST", path+"/listNodes", nil)
			ok("POST", x.ws+"/jobs/p/plan", fmt.Sprintf(`{"properties":{"jobType":"Command","command":"x","computeId":"n%d"}}`, i))
		}
		ok("PUT", path, string(body)) // once more
		ok("DELETE", path, nil)
	}
	t.Logf("%d of %d taken", taken, many)
	if taken == 0 || taken == many {
		t.Error("the mutations mean nothing")
	}
}
