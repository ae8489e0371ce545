package control_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// clusterOf makes a cluster.
func (p *fixture) clusterOf(name string, lo, hi int, more map[string]any) {
	p.t.Helper()
	inner := map[string]any{
		"vmSize": "Standard_DS3_v2", "scaleSettings": map[string]any{"minNodeCount": lo, "maxNodeCount": hi, "nodeIdleTimeBeforeScaleDown": "PT60S"},
	}
	tags := map[string]any{}
	for k, v := range more {
		if strings.HasPrefix(k, "berth.") {
			tags[k] = v
		} else {
			inner[k] = v
		}
	}
	code, b := p.do("PUT", p.ws+"/computes/"+name, map[string]any{"tags": tags, "properties": map[string]any{"computeType": "AmlCompute", "properties": inner}})
	if code != http.StatusCreated && code != http.StatusOK {
		p.t.Fatalf("cluster %s: %d %s", name, code, b)
	}
}

// view is a cluster as clients see it.
type view struct {
	Properties struct {
		ProvisioningState string
		Properties        struct {
			AllocationState                   string
			CurrentNodeCount, TargetNodeCount int
			NodeStateCounts                   struct {
				IdleNodeCount, RunningNodeCount, PreparingNodeCount, LeavingNodeCount, PreemptedNodeCount, UnusableNodeCount int
			}
			Errors []struct{ Error struct{ Message string } }
		}
		Berth struct {
			Reason, Short string
			Warnings      []string
		}
	}
}

func (p *fixture) compute(name string) (v view, found bool) {
	p.t.Helper()
	code, b := p.do("GET", p.ws+"/computes/"+name, nil)
	if code == http.StatusNotFound {
		return v, false
	}
	if err := json.Unmarshal(b, &v); err != nil {
		p.t.Fatalf("%v in %s", err, b)
	}
	return v, true
}

func (v view) live() int {
	c := v.Properties.Properties.NodeStateCounts
	return c.IdleNodeCount + c.RunningNodeCount + c.PreparingNodeCount + c.LeavingNodeCount + c.PreemptedNodeCount
}

// put submits a job to a compute.
func (p *fixture) put(name, compute, command string, more map[string]any) (int, []byte) {
	props := map[string]any{"jobType": "Command", "command": command, "computeId": compute}
	for k, v := range more {
		props[k] = v
	}
	return p.do("PUT", p.ws+"/jobs/"+name, map[string]any{"properties": props})
}

func (p *fixture) on(compute, name, command string, more map[string]any) {
	p.t.Helper()
	if code, b := p.put(name, compute, command, more); code != http.StatusCreated {
		p.t.Fatalf("%s: %d %s", name, code, b)
	}
}

func (p *fixture) tasks(name string) []berth.Task {
	p.t.Helper()
	_, b := p.do("GET", p.ws+"/jobs/"+name+"/tasks", nil)
	var v struct{ Value []berth.Task }
	if err := json.Unmarshal(b, &v); err != nil {
		p.t.Fatalf("%v in %s", err, b)
	}
	return v.Value
}

// settle lets time pass until f holds.
func (p *fixture) settle(what string, f func() bool) {
	p.t.Helper()
	for range 3000 {
		if f() {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	p.t.Fatalf("never: %s", what)
}

func (p *fixture) events(subject string) (out []berth.Event) {
	p.t.Helper()
	err := p.db.View(p.t.Context(), func(tx *store.Tx) (err error) {
		out, err = tx.Events(store.EventQuery{Workspace: space.Key(), Subject: subject})
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

func (p *fixture) meters() (out []berth.Meter) {
	p.t.Helper()
	err := p.db.View(p.t.Context(), func(tx *store.Tx) error {
		docs, err := tx.List(store.Query{Workspace: space.Key(), Kind: "meters", Asc: true})
		for _, d := range docs {
			var m berth.Meter
			if err := json.Unmarshal(d.Own, &m); err != nil {
				return err
			}
			out = append(out, m)
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}
