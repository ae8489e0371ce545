package api

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

// checkTarget is the name of the compute a job goes to. A job without one, or with the compute serverless, that names a size or more
// than one node gets a pool of its own; one that names neither runs on the machine itself.
func checkTarget(c *call, tx *store.Tx, id string, raw json.RawMessage) (string, error) {
	var v berth.CommandJob
	if err := json.Unmarshal(raw, &v); err != nil {
		return "", berth.Errorf(berth.Invalid, "properties: %w", err)
	}
	nodes := max(1, v.Resources.InstanceCount)
	name := serverless
	if id != "" {
		ref, err := berth.ParseRef(id, "computes")
		if err != nil {
			return "", berth.Errorf(berth.Invalid, "properties.computeId: %w", err)
		}
		name = ref.Name
	}
	if strings.EqualFold(name, serverless) {
		if v.Resources.InstanceType == "" && nodes == 1 {
			return berth.LocalCompute, nil
		}
		return c.serverlessPool(tx, v, nodes)
	}
	d, err := tx.Get(c.ws.Key(), "computes", name, "")
	if berth.CodeOf(err) == berth.NotFound {
		return "", berth.Errorf(berth.Invalid, "there is no compute %q in workspace %s; `berth compute list` shows what there is", name, c.ws.Name)
	}
	if err != nil {
		return "", err
	}
	return d.Name, c.checkNodes(d, nodes)
}

// checkNodes says whether a compute could ever run a job of so many nodes.
func (c *call) checkNodes(d *store.Doc, nodes int) error {
	st, err := computeState(d)
	if err != nil {
		return err
	}
	var v struct {
		Properties berth.ComputeProps `json:"properties"`
	}
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return err
	}
	limit := 1
	if sc := v.Properties.Properties.ScaleSettings; sc != nil && strings.EqualFold(v.Properties.ComputeType, berth.TypeCluster) {
		limit = sc.MaxNodeCount
	}
	switch {
	case st.State == "Deleting":
		return berth.Errorf(berth.Conflict, "compute %s is being deleted and takes no more jobs", d.Name)
	case nodes > limit && limit == 1:
		return berth.Errorf(berth.Invalid, "resources.instance_count is %d; compute %s runs a job on one node", nodes, d.Name)
	case nodes > limit:
		return berth.Errorf(berth.Invalid, "resources.instance_count is %d, but compute %s has at most %d nodes; raise max_instances or ask for fewer", nodes, d.Name, limit)
	case st.Instance != nil && st.Instance.User != "" && st.Instance.User != c.who.User && c.who.Role != auth.Admin:
		return berth.Errorf(berth.Denied, "compute %s belongs to %s; only they and administrators may run jobs on it", d.Name, st.Instance.User)
	}
	return nil
}

// serverlessSize is the size of a job that names more than one node and no size.
const serverlessSize = "Standard_DS3_v2"

// serverlessPrefix begins the names of pools that are made for jobs without a compute. They are not listed.
const serverlessPrefix = serverless + "-"

// serverlessPool makes the pool for jobs of a size, where there is none, or lets it grow. The control loop removes it after them.
func (c *call) serverlessPool(tx *store.Tx, v berth.CommandJob, nodes int) (string, error) {
	low := strings.EqualFold(v.QueueSettings.JobTier, "Spot")
	name := v.Resources.InstanceType
	if name == "" {
		name = serverlessSize
	}
	size, err := c.s.checkSize(c, tx, name, c.s.Location, berth.TypeCluster, low)
	if err != nil {
		return "", berth.Errorf(berth.CodeOf(err), "resources.instance_type: %w", err)
	}
	if _, err := c.s.fits(name, size); err != nil {
		return "", berth.Errorf(berth.CodeOf(err), "resources.instance_type: %w", err)
	}
	pool, priority := serverlessPrefix+strings.ToLower(size.Name), "Dedicated"
	if low {
		pool, priority = pool+"-low", "LowPriority"
	}
	d, err := tx.Get(c.ws.Key(), "computes", pool, "")
	if err == nil {
		st, err := computeState(d)
		if err == nil && st.State == "Deleting" {
			err = berth.Errorf(berth.Unavailable, "the pool for %s is just being removed; submit the job again", size.Name)
		}
		if err == nil {
			err = c.letGrow(tx, d, nodes)
		}
		return d.Name, err
	}
	if berth.CodeOf(err) != berth.NotFound {
		return "", err
	}
	body, err := json.Marshal(map[string]any{"location": c.s.Location, "properties": map[string]any{
		"computeType": berth.TypeCluster, "description": "made for jobs without a compute",
		"properties": map[string]any{
			"vmSize": size.Name, "vmPriority": priority, "osType": "Linux",
			"scaleSettings": map[string]any{"minNodeCount": 0, "maxNodeCount": max(nodes, serverlessNodes), "nodeIdleTimeBeforeScaleDown": "PT0S"},
		},
	}})
	if err != nil {
		return "", err
	}
	own, err := json.Marshal(berth.ComputeState{Serverless: true})
	if err != nil {
		return "", err
	}
	tx.Emit(berth.Event{Workspace: c.ws.Key(), Subject: "computes/" + pool, Type: berth.EventResourcePut, Reason: "made for a job without a compute"})
	return pool, tx.Insert(&store.Doc{Workspace: c.ws.Key(), Kind: "computes", Name: pool, CreatedBy: c.who.User, Body: body, Own: own})
}

// letGrow lets a pool have so many nodes at least.
func (c *call) letGrow(tx *store.Tx, d *store.Doc, nodes int) error {
	body := map[string]any{}
	if err := decodeJSON(d.Body, &body); err != nil {
		return err
	}
	scale, ok := dig(body, "properties.properties.scaleSettings").(map[string]any)
	if most, err := strconv.Atoi(fmt.Sprint(scale["maxNodeCount"])); !ok || err == nil && most >= nodes {
		return nil
	}
	scale["maxNodeCount"] = nodes
	var err error
	if d.Body, err = json.Marshal(body); err != nil {
		return err
	}
	tx.Emit(berth.Event{Workspace: d.Workspace, Subject: "computes/" + d.Name, Type: berth.EventResourcePut, Reason: "a job needs more nodes"})
	return tx.Save(d)
}

// serverlessNodes is how large such a pool can get.
const serverlessNodes = 100
