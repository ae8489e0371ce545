package devbox_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/devbox"
	"github.com/berthml/berth/internal/store"
)

// TestWhyJobsEnded: the job itself says that its instance was stopped, and by whom.
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

// TestUnknownFilesStay: files of an instance that this database does not know are nobody's to delete: it may be an older copy.
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
