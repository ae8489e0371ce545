package control_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// TestUndecodableState: a document whose state cannot be decoded ends or is left alone with its
// reason, and everything else goes on, now and after a restart.
func TestUndecodableState(t *testing.T) {
	const cluster = `{"properties":{"computeType":"AmlCompute","properties":{"vmSize":"Standard_DS3_v2"}}}`
	for name, spoil := range map[string]func(p *fixture){
		"job": func(p *fixture) {
			p.plantDoc("jobs", "odd", "", `{"properties":{"jobType":"Command","command":"true"}}`, `{"times":5}`)
		},
		"compute": func(p *fixture) { p.plantDoc("computes", "odd", "", cluster, `{"target":"many"}`) },
		"node": func(p *fixture) {
			p.plantDoc("computes", "odd", "", cluster, "")
			err := p.db.Update(p.t.Context(), func(tx *store.Tx) error {
				tx.Emit(berth.Event{Workspace: space.Key(), Subject: "computes/odd", Type: berth.EventNode})
				return tx.Insert(&store.Doc{Workspace: space.Key(), Kind: "nodes", Name: "odd-1", Parent: "odd", Body: []byte("{}"), Own: []byte(`{"slots":"x"}`)})
			})
			if err != nil {
				p.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := build(t, 1)
				spoil(p)
				p.submit("a", "true")
				p.until("a", berth.Completed)
				p.stop()
				p.run()
				p.submit("b", "true")
				p.until("b", berth.Completed)
				if name != "job" {
					return
				}
				if st := p.until("odd", berth.Failed); !strings.Contains(st.Reason, "cannot be read") {
					t.Errorf("reason %q", st.Reason)
				}
			})
		})
	}
}
