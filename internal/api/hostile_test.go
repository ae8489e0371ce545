package api_test

import (
	"encoding/json"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

func clusterDoc(kv ...any) map[string]any {
	inner := map[string]any{"vmSize": "Standard_DS3_v2", "scaleSettings": map[string]any{"minNodeCount": 0, "maxNodeCount": 2}}
	for i := 0; i+1 < len(kv); i += 2 {
		inner[kv[i].(string)] = kv[i+1]
	}
	return map[string]any{"properties": map[string]any{"computeType": "AmlCompute", "properties": inner}}
}

// TestOddClusters: what is no cluster is refused with a sentence, and leaves the one there is as it was.
func TestOddClusters(t *testing.T) {
	x := open(t)
	x.do("PUT", x.ws+"/computes/c", clusterDoc()).want(201)
	for _, body := range []any{
		`{"properties":{"computeType":"AmlCompute","properties":[]}}`,
		`{"properties":{"computeType":"AmlCompute","properties":"x"}}`,
		`{"tags":{"n":{"a":1}},"properties":{"computeType":"AmlCompute"}}`,
		`{"tags":["n"],"properties":{"computeType":"AmlCompute"}}`,
		`{"tags":{"berth.jobs_per_node":5000},"properties":{"computeType":"AmlCompute"}}`,
		`{"Tags":{},"tags":{},"properties":{"computeType":"AmlCompute"}}`,
		`{"Properties":{"computeType":7},"properties":{"computeType":"AmlCompute"}}`,
		`{"propertie\u017f":{"computeType":7},"properties":{"computeType":"AmlCompute"}}`,
		`{"properties":{"computeType":"AmlCompute","computetype":"ComputeInstance"}}`,
		`{"properties":{"computeType":"AmlCompute","properties":{"vmSize":"Standard_DS3_v2","VMSize":"Standard_F72s_v2"}}}`,
	} {
		x.do("PUT", x.ws+"/computes/c", body).want(400)
		x.do("PUT", x.ws+"/computes/fresh", body).want(400)
	}
	// Nothing said about the nodes leaves them as they are.
	for _, body := range []string{`{"properties":{"computeType":"AmlCompute","properties":null}}`, `{"properties":null}`, `{}`} {
		x.do("PUT", x.ws+"/computes/c", body).want(200).is("properties.properties.vmSize", "Standard_DS3_v2").is("properties.properties.scaleSettings.maxNodeCount", 2.0)
	}
	x.do("PATCH", x.ws+"/computes/c", `{"properties":{"properties":{"scaleSettings":null}}}`)
	x.do("GET", x.ws+"/computes/c", nil).want(200).is("properties.properties.vmSize", "Standard_DS3_v2")
}

// TestOddJobs: a job is read in one way only.
func TestOddJobs(t *testing.T) {
	x := open(t)
	for _, body := range []string{
		`{"properties":{"jobType":"Command","command":"true"},"propertie\u017f":5}`,
		`{"properties":{"jobType":"Command","command":"true"},"Properties":{}}`,
		`{"properties":{"jobType":"Command","command":"true","Command":"false"}}`,
		`{"properties":{"jobType":"Command","command":"true","resources":{"instanceCount":1000},"distribution":{"distributionType":"PyTorch","processCountPerInstance":1000}}}`,
	} {
		x.do("PUT", x.ws+"/jobs/j", body).want(400)
	}
	x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "true", "environmentVariables", map[string]any{"a": 1, "A": 2})).want(201)
}

// TestOthersInstances: nobody but its user and administrators ends an instance, and the files on it.
func TestOthersInstances(t *testing.T) {
	x := openBox(t)
	bob := x.token("bob", auth.User)
	for _, q := range []string{"", "?drain=true"} {
		x.as(bob, "DELETE", x.ws+"/computes/box"+q, nil).want(403).says("ann")
	}
	x.as(x.ann, "GET", x.ws+"/computes/box", nil).want(200).is("properties.properties.state", "Running")
	x.as(x.ann, "DELETE", x.ws+"/computes/box", nil).want(202)
}

// TestAllocationState: a cluster is resizing while a node comes or goes, whatever the loop had time to write down.
func TestAllocationState(t *testing.T) {
	x := open(t)
	x.do("PUT", x.ws+"/computes/c", clusterDoc()).want(201).is("properties.properties.allocationState", "Steady")
	for _, s := range []struct {
		state berth.NodeState
		want  string
	}{{berth.NodePreparing, "Resizing"}, {berth.NodeIdle, "Steady"}, {berth.NodeRunning, "Steady"}, {berth.NodeLeaving, "Resizing"}} {
		err := x.db.Update(t.Context(), func(tx *store.Tx) error {
			own, err := json.Marshal(berth.Node{Name: "c-1", State: s.state})
			if err != nil {
				return err
			}
			d := &store.Doc{Workspace: workspace.Key(), Kind: "nodes", Name: "c-1", Parent: "c", Own: own}
			if err := tx.Save(d); berth.CodeOf(err) != berth.NotFound {
				return err
			}
			return tx.Insert(d)
		})
		if err != nil {
			t.Fatal(err)
		}
		x.do("GET", x.ws+"/computes/c", nil).want(200).is("properties.properties.allocationState", s.want)
	}
}
