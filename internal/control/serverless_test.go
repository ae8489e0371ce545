package control_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
)

// TestServerlessAgain: a job that comes in the moment in which the pool of the one before is
// removed runs all the same.
func TestServerlessAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		more := map[string]any{"resources": map[string]any{"instanceType": "Standard_DS3_v2"}}
		submit := func(name string) {
			for {
				code, b := p.put(name, "", "sleep 5", more)
				if code == http.StatusCreated {
					return
				}
				if code != http.StatusServiceUnavailable { // the pool is just being removed
					t.Fatalf("%s: %d %s", name, code, b)
				}
				time.Sleep(time.Millisecond)
			}
		}
		submit("j0")
		for i := range 150 {
			p.until(fmt.Sprint("j", i), berth.Running)
			ends := p.tasks(fmt.Sprint("j", i))[0].Times.Started.Add(5 * time.Second)
			time.Sleep(time.Until(ends))
			for range i * 20 { // at the same time, and a little later each time
				runtime.Gosched()
			}
			submit(fmt.Sprint("j", i+1))
			p.until(fmt.Sprint("j", i), berth.Completed)
		}
		p.until("j150", berth.Completed)
		p.settle("the pool is gone", func() bool { _, there := p.compute("serverless-standard_ds3_v2"); return !there })
	})
}

// TestServerlessGrows: a pool that was made for a small job is large enough for the next, and names
// of such pools are not a user's.
func TestServerlessGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		resources := func(n int) map[string]any {
			return map[string]any{"resources": map[string]any{"instanceType": "Standard_DS3_v2", "instanceCount": n}}
		}
		p.on("", "small", "sleep 60", resources(1))
		p.until("small", berth.Running)
		p.on("", "large", "sleep 1", resources(150))
		p.until("large", berth.Completed)
		for _, name := range []string{"serverless-standard_ds3_v2", "Serverless-mine"} {
			code, b := p.do("PUT", p.ws+"/computes/"+name, map[string]any{"properties": map[string]any{
				"computeType": "AmlCompute", "properties": map[string]any{"vmSize": "Standard_DS3_v2"},
			}})
			if code != http.StatusConflict || !strings.Contains(string(b), "serverless-") {
				t.Errorf("%s: %d %s", name, code, b)
			}
		}
	})
}
