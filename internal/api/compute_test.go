package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// clusterOf asks for a cluster of a size with so many nodes that stay.
func (x *house) clusterOf(name, size string, least int) answer {
	x.t.Helper()
	return x.do("PUT", x.ws+"/computes/"+name, map[string]any{"location": "here", "properties": map[string]any{
		"computeType": "AmlCompute", "properties": map[string]any{
			"vmSize": size, "scaleSettings": map[string]any{"minNodeCount": least, "maxNodeCount": 4, "nodeIdleTimeBeforeScaleDown": "PT120S"},
		},
	}})
}

// warned are the warnings in an answer about a compute.
func (a answer) warned() string {
	var out []string
	props, _ := a.body["properties"].(map[string]any)
	own, _ := props["berth"].(map[string]any)
	list, _ := own["warnings"].([]any)
	for _, w := range list {
		out = append(out, w.(string))
	}
	return strings.Join(out, "\n")
}

// TestDetachIsNotDelete: a compute that this server made cannot be detached, and is still there
// after somebody tried.
func TestDetachIsNotDelete(t *testing.T) {
	x := open(t)
	x.cluster("cpu", 1)
	a := x.do("DELETE", x.ws+"/computes/cpu?underlyingResourceAction=Detach", nil).want(http.StatusBadRequest)
	if !strings.Contains(string(a.raw), "only an attached compute can") {
		t.Errorf("%s", a.raw)
	}
	x.do("DELETE", x.ws+"/computes/cpu?underlyingResourceAction=Forget", nil).want(http.StatusBadRequest)
	a = x.do("GET", x.ws+"/computes/cpu", nil).want(http.StatusOK)
	if s := a.body["properties"].(map[string]any)["provisioningState"]; s == "Deleting" {
		t.Errorf("it is %v", s)
	}
	x.do("DELETE", x.ws+"/computes/cpu?underlyingResourceAction=Delete", nil).want(http.StatusAccepted)
	err := x.db.Update(t.Context(), func(tx *store.Tx) error {
		return tx.Insert(&store.Doc{
			Workspace: workspace.Key(), Kind: "computes", Name: "desk",
			Body: json.RawMessage(`{"properties":{"computeType":"VirtualMachine","properties":{"connection":"agent"}}}`),
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	x.do("DELETE", x.ws+"/computes/desk?underlyingResourceAction=Detach", nil).want(http.StatusAccepted)
}

// TestExplainKnowsTheIdleTime: an instance whose signals were not looked at yet, as after a
// restart, stops by itself all the same.
func TestExplainKnowsTheIdleTime(t *testing.T) {
	x := open(t)
	for name, idle := range map[string]any{"stops": "PT30M", "stays": nil} {
		inner := map[string]any{"vmSize": "Standard_DS3_v2"}
		if idle != nil {
			inner["idleTimeBeforeShutdown"] = idle
		}
		x.do("PUT", x.ws+"/computes/"+name, map[string]any{"location": "here", "properties": map[string]any{"computeType": "ComputeInstance", "properties": inner}}).want(http.StatusCreated)
		err := x.db.Update(t.Context(), func(tx *store.Tx) error {
			d, err := tx.Get(workspace.Key(), "computes", name, "")
			if err != nil {
				return err
			}
			var st berth.ComputeState
			if err := json.Unmarshal(d.Own, &st); err != nil {
				return err
			}
			st.Instance.State = berth.InstanceRunning
			if d.Own, err = json.Marshal(st); err != nil {
				return err
			}
			return tx.Save(d)
		})
		if err != nil {
			t.Fatal(err)
		}
		x.paid(name+"-1", name, "root", time.Hour)
		a := x.do("GET", x.ws+"/computes/"+name+"/explain", nil).want(http.StatusOK)
		if told := strings.Contains(string(a.raw), "it does not stop by itself: set"); told != (idle == nil) {
			t.Errorf("with an idle time of %v: %s", idle, a.raw)
		}
	}
}

// TestIdleCostIsTold: what costs while nobody uses it says so when it is made, with the price of a
// month, and not any more when it does not.
func TestIdleCostIsTold(t *testing.T) {
	x := open(t)
	x.do("PUT", "/berth/v1/sizes/Standard_DS3_v2", map[string]any{"price": 2, "lowPrice": 1}).want(http.StatusCreated)
	if w := x.clusterOf("none", "Standard_DS3_v2", 0).want(http.StatusCreated).warned(); strings.Contains(w, "month") {
		t.Errorf("a cluster that keeps no nodes: %s", w)
	}
	if w := x.clusterOf("kept", "Standard_DS3_v2", 2).want(http.StatusCreated).warned(); !strings.Contains(w, "it keeps 2 nodes also when no job runs (min_instances): 2920.00 USD a month") {
		t.Errorf("a cluster that keeps 2 nodes: %s", w)
	}
	if w := x.clusterOf("kept", "Standard_DS3_v2", 0).want(http.StatusOK).warned(); strings.Contains(w, "month") {
		t.Errorf("once it keeps none: %s", w)
	}
	instance := func(more map[string]any, status int) string {
		inner := map[string]any{"vmSize": "Standard_DS3_v2"}
		for k, v := range more {
			inner[k] = v
		}
		return x.do("PUT", x.ws+"/computes/box", map[string]any{"location": "here", "properties": map[string]any{"computeType": "ComputeInstance", "properties": inner}}).want(status).warned()
	}
	if w := instance(nil, http.StatusCreated); !strings.Contains(w, "it does not stop by itself, whether it is used or not: 1460.00 USD a month") {
		t.Errorf("an instance without an idle time: %s", w)
	}
	if w := instance(map[string]any{"idleTimeBeforeShutdown": "PT30M"}, http.StatusOK); strings.Contains(w, "month") {
		t.Errorf("an instance with one: %s", w)
	}
}

// TestNoGPUs: on a machine without GPUs a cluster of a GPU size says so in the answer, and a job on
// it is planned as one that never runs.
func TestNoGPUs(t *testing.T) {
	x := open(t)
	x.do("POST", x.ws+"/quotas", map[string]any{"size": "Standard_NC6s_v3", "vCPUs": 24}).want(http.StatusOK)
	if w := x.clusterOf("gpus", "Standard_NC6s_v3", 0).want(http.StatusCreated).warned(); !strings.Contains(w, "the size has 1 GPU, this machine none: it can have no nodes here") {
		t.Errorf("%s", w)
	}
	a := x.do("POST", x.ws+"/jobs/j/plan", map[string]any{"properties": map[string]any{"jobType": "Command", "command": "true", "computeId": "gpus"}}).want(http.StatusOK)
	if a.body["verdict"] != string(berth.PlanNever) || !strings.Contains(string(a.raw), "this machine has no GPUs") {
		t.Errorf("%s", a.raw)
	}
}
