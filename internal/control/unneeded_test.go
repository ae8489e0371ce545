package control_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/fake"
	"github.com/berthml/berth/internal/store"
)

// TestNodeNobodyNeeds: a node that does not come is given back when nobody has needed it for the
// idle time of its cluster, also where the server was restarted meanwhile. One that somebody needs
// again is waited for, and so is what the cluster keeps at least.
func TestNodeNobodyNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		synctest.Wait()
		p.stop()
		site := fake.New(fake.Options{Scales: true, Report: func(rs []berth.Report) { p.reports.Go(func() { p.report(rs) }) }})
		t.Cleanup(func() { site.Close() })
		site.Break("add node", berth.Errorf(berth.Unavailable, "%w", &driver.Waiting{Why: "it is in the site's queue"}))
		p.options.Targets = fake.Registry(map[string]driver.Driver{"local": p.driver, "amlcompute": p.cluster, "provided": site}, p.options.Log)
		p.run()
		keeps := func(least int) { // as the front door writes it, of a cluster whose nodes a site makes
			t.Helper()
			body := fmt.Sprintf(`{"tags":{"berth.provider":"site"},"properties":{"computeType":"AmlCompute","properties":{"vmSize":"Standard_DS3_v2",`+
				`"scaleSettings":{"minNodeCount":%d,"maxNodeCount":3,"nodeIdleTimeBeforeScaleDown":"PT60S"}}}}`, least)
			err := p.db.Update(t.Context(), func(tx *store.Tx) error {
				tx.Emit(berth.Event{Workspace: space.Key(), Subject: "computes/cpu", Type: berth.EventResourcePut})
				d, err := tx.Get(space.Key(), "computes", "cpu", "")
				if err == nil {
					d.Body = []byte(body)
					return tx.Save(d)
				}
				if err := tx.Insert(&store.Doc{
					Workspace: space.Key(), Kind: "computes", Name: "site", CreatedBy: "ann", Own: []byte(`{}`), Body: []byte(`{"properties":{"computeType":"Slurm"}}`),
				}); err != nil {
					return err
				}
				return tx.Insert(&store.Doc{Workspace: space.Key(), Kind: "computes", Name: "cpu", CreatedBy: "ann", Own: []byte(`{}`), Body: []byte(body)})
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		keeps(0)
		cancel := func(name string) {
			t.Helper()
			if code, b := p.do(http.MethodPost, p.ws+"/jobs/"+name+"/cancel", nil); code >= 300 {
				t.Fatalf("%d %s", code, b)
			}
			p.until(name, berth.Canceled)
		}
		nodes := func() int { v, _ := p.compute("cpu"); return v.live() }
		p.on("cpu", "a", "true", nil)
		p.on("cpu", "b", "true", nil)
		p.settle("two nodes are asked for", func() bool { return nodes() == 2 })
		time.Sleep(time.Hour)
		cancel("a")
		time.Sleep(50 * time.Second)
		p.on("cpu", "c", "true", nil) // it needs the second node again
		time.Sleep(time.Hour)
		if n := nodes(); n != 2 {
			t.Fatalf("%d nodes for two jobs", n)
		}
		cancel("b")
		time.Sleep(50 * time.Second)
		if n := nodes(); n != 2 {
			t.Errorf("%d nodes less than a minute after the job was canceled", n)
		}
		time.Sleep(15 * time.Second)
		if n := nodes(); n != 1 {
			t.Errorf("%d nodes for one job", n)
		}
		cancel("c")
		p.stop()
		p.run()
		p.settle("nothing is left", func() bool { return nodes() == 0 })
		said := false
		for _, e := range p.events("computes/cpu") {
			said = said || e.Type == berth.EventResize && strings.Contains(e.Reason, "nothing has waited for 1 node, not started yet, for 1m0s: 1 -> 0 nodes")
		}
		if !said {
			t.Error("no event says why")
		}
		keeps(1)
		p.settle("a node is asked for", func() bool { return nodes() == 1 })
		time.Sleep(time.Hour)
		if n := nodes(); n != 1 {
			t.Errorf("%d nodes of a cluster that keeps one", n)
		}
	})
}
