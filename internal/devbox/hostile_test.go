package devbox_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/devbox"
	"github.com/berthml/berth/internal/store"
)

// TestWhyJobsEnded: the job itself says that its instance was stopped, and by which user.
func TestWhyJobsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t)
		p.create("box", nil)
		p.until("it runs", func() bool { return p.state("box") == "Running" })
		if code, b := p.do("PUT", p.ws+"/jobs/j", map[string]any{"properties": map[string]any{"jobType": "Command", "command": "sleep 600", "computeId": "box"}}); code != http.StatusCreated {
			t.Fatalf("%d %s", code, b)
		}
		p.until("the job runs", func() bool { return p.job("j") == "Running" })
		p.do("POST", p.ws+"/computes/box/stop", nil)
		p.until("the job ends", func() bool { return p.job("j") == "Canceled" })
		var st berth.JobState
		err := p.db.View(t.Context(), func(tx *store.Tx) error {
			d, err := tx.Get(space.Key(), "jobs", "j", "")
			if err != nil {
				return err
			}
			return json.Unmarshal(d.Own, &st)
		})
		if err != nil || st.Reason != "compute instance box ends: stopped by ann" || st.Exit == nil || st.Exit.Cause != "canceled" {
			t.Errorf("%+v %v", st, err)
		}
	})
}

// TestUnknownFilesStay: files of an instance that this database does not know are nobody's to
// delete: it may be an older copy.
func TestUnknownFilesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t)
		p.create("box", nil)
		p.until("it runs", func() bool { return p.state("box") == "Running" })
		p.stop()
		dir := devbox.Dir(p.dir, space.Key(), "box")
		file := filepath.Join(dir, "home", "thesis.txt")
		if err := os.WriteFile(file, []byte("years of work"), 0o600); err != nil {
			t.Fatal(err)
		}
		err := p.db.Update(t.Context(), func(tx *store.Tx) error { return tx.Delete(space.Key(), "computes", "box", "") })
		if err != nil {
			t.Fatal(err)
		}
		p.run()
		p.create("other", nil)
		p.until("it runs", func() bool { return p.state("other") == "Running" })
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
		if info, err := p.driver.Probe(t.Context()); err != nil || len(info.Nodes) != 1 {
			t.Errorf("nodes: %+v %v", info.Nodes, err)
		}
	})
}

// TestWorkspaceWithComputes: a workspace goes when nothing is in it that would be left behind.
func TestWorkspaceWithComputes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t)
		second := strings.TrimSuffix(p.ws, space.Name) + "second"
		p.as("ann", auth.Admin, "PUT", second, map[string]any{})
		if code, b := p.do("PUT", second+"/computes/c", map[string]any{"properties": map[string]any{
			"computeType": "AmlCompute", "properties": map[string]any{"vmSize": "Standard_DS3_v2", "scaleSettings": map[string]any{"minNodeCount": 1, "maxNodeCount": 1}},
		}}); code != http.StatusCreated {
			t.Fatalf("%d %s", code, b)
		}
		nodes := func() int {
			info, err := p.driver.Probe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return len(info.Nodes)
		}
		p.until("a node", func() bool { return nodes() == 1 })
		if code, b := p.as("ann", auth.Admin, "DELETE", second, nil); code != http.StatusConflict || !strings.Contains(string(b), "compute c") {
			t.Errorf("%d %s", code, b)
		}
		p.do("DELETE", second+"/computes/c", nil)
		p.until("no node", func() bool { return nodes() == 0 })
		p.until("the workspace can go", func() bool { code, _ := p.as("ann", auth.Admin, "DELETE", second, nil); return code == http.StatusOK })
	})
}

// TestOneGPU: an instance and a cluster that ask for the machine's only GPU at the same time do not
// both get it.
func TestOneGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t)
		synctest.Wait()
		p.stop()
		admit, asked, let := p.options.Admit, make(chan struct{}), make(chan struct{})
		p.options.Admit = func(tx *store.Tx, n *berth.Node) error {
			err := admit(tx, n)
			select {
			case <-asked: // it is run again
			default:
				close(asked)
			}
			<-let // others have to wait for the store
			return err
		}
		p.run()
		admin := func(method, path string, body any, want int) {
			t.Helper()
			if code, b := p.as("ann", auth.Admin, method, path, body); code != want {
				t.Fatalf("%s: %d %s", path, code, b)
			}
		}
		admin("PUT", "/berth/v1/sizes/one-gpu", map[string]any{"vCPUs": 1, "memoryGB": 1, "gpus": 1, "family": "own"}, 201)
		admin("POST", p.ws+"/quotas", map[string]any{"user": "bob", "vCPUs": 8}, 200)
		admin("PUT", p.ws+"/computes/gpus", map[string]any{"properties": map[string]any{
			"computeType": "AmlCompute", "properties": map[string]any{"vmSize": "one-gpu", "scaleSettings": map[string]any{"minNodeCount": 0, "maxNodeCount": 1}},
		}}, 201)
		// Bob's job waits for the end of a limit, so that the loop places it when its own clock
		// says so, and not when it is told of something.
		admin("POST", p.ws+"/quotas", map[string]any{"user": "bob", "vCPUs": 0, "expires": time.Now().Add(time.Hour)}, 200)
		if code, b := p.as("bob", auth.User, "PUT", p.ws+"/jobs/j", map[string]any{"properties": map[string]any{"jobType": "Command", "command": "sleep 600", "computeId": "gpus"}}); code != http.StatusCreated {
			t.Fatalf("%d %s", code, b)
		}
		p.until("it waits", func() bool { return p.job("j") == "Queued" })
		time.Sleep(50 * time.Minute)
		admin("PUT", p.ws+"/computes/box", map[string]any{"properties": map[string]any{
			"computeType": "ComputeInstance", "properties": map[string]any{"vmSize": "one-gpu"},
		}}, 201)
		<-asked
		time.Sleep(time.Hour)
		close(let)
		p.until("one of them runs", func() bool { return p.state("box") == "Running" || p.job("j") == "Running" })
		seen := map[int]string{}
		err := p.db.View(t.Context(), func(tx *store.Tx) error {
			docs, err := tx.All(store.Query{Workspace: space.Key(), Kind: "nodes"})
			for _, d := range docs {
				var n berth.Node
				if err := json.Unmarshal(d.Own, &n); err != nil {
					return err
				}
				for _, i := range n.GPUs {
					if seen[i] != "" {
						t.Errorf("GPU %d is %s's and %s's", i, seen[i], n.Compute)
					}
					seen[i] = n.Compute
				}
			}
			return err
		})
		if err != nil || len(seen) != 1 {
			t.Errorf("%v %v", seen, err)
		}
	})
}
