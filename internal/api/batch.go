package api

import (
	"encoding/json"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/batch"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/serve"
	"github.com/berthml/berth/internal/store"
)

// batchCollection is that of batch endpoints.
const batchCollection = "batchEndpoints"

// checkBatch refuses a batch endpoint, or a deployment that could not run.
func checkBatch(c *call, tx *store.Tx, name, version string, p map[string]any) error {
	if version == "" {
		return checkEndpoint(c, tx, name, version, p)
	}
	r := c.s.docs.row(batchCollection)
	endpoint, err := tx.Get(c.ws.Key(), batchCollection, name, "")
	if err != nil {
		return c.missing(err, r, name, "")
	}
	if err := c.madeIt(r, endpoint, "deploy to"); err != nil {
		return err
	}
	t, err := c.batchTarget(tx, name, version, p)
	if err != nil {
		return err
	}
	if t.IsPipeline() {
		return c.checkBatchComponent(tx, t)
	}
	if m, ok := p["model"].(map[string]any); ok && t.Model.ID != "" {
		m["assetId"] = t.Model.ID // a version that is created later changes nothing
	}
	if t.Compute != "" {
		choose := jobCall{c}.chooser(tx)
		choose.Dry = true
		if _, err := choose.Of(berth.CommandJob{ComputeID: t.Compute}); err != nil {
			return berth.Errorf(berth.CodeOf(err), "properties.compute: %w", err)
		}
	}
	if err := c.pinEnvironment(tx, p, t.EnvironmentID); err != nil {
		return err
	}
	return c.checkScoring(t)
}

// batchTarget reads a deployment and finds what it names.
func (c *call) batchTarget(tx *store.Tx, endpoint, name string, p map[string]any) (t batch.Target, err error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return t, err
	}
	t = batch.Target{Endpoint: endpoint, Name: name}
	if t.Deployment, err = batch.Read(raw); err != nil || t.IsPipeline() {
		return t, err
	}
	t.Environment = t.EnvironmentID
	id, err := batch.Reference(t.Deployment.Model)
	if err != nil {
		return t, berth.Errorf(berth.CodeOf(err), "properties.model: %w", err)
	}
	if id != "" {
		m, err := serve.FindModel(tx, c.ws, id)
		if err != nil {
			return t, err
		}
		t.Model = batch.Model{ID: m.ID, Name: m.Name, Version: m.Version, Base: m.Base, MLflow: m.MLflow}
		if place, err := c.s.Resolve(tx, c.ws, c.who.User, m.ID); err == nil && place.Ours() {
			_, err := tx.Blob(place.Container, place.Name)
			if t.Model.File = err == nil; err != nil && berth.CodeOf(err) != berth.NotFound {
				return t, err
			}
		}
	}
	if code := t.Code(); code != "" {
		ref, err := berth.ParseRef(code, "codes")
		if err == nil {
			_, err = locate.Version(tx, c.ws, "codes", ref)
		}
		if err != nil {
			return t, berth.Errorf(berth.Invalid, "properties.codeConfiguration.codeId: %w", err)
		}
	} else if !t.Model.MLflow {
		return t, berth.Errorf(berth.Invalid, "properties.codeConfiguration is missing: name the code and its scoring script, or an MLflow model, which needs none")
	}
	return t, nil
}

// checkBatchComponent refuses a deployment of what is not a pipeline component.
func (c *call) checkBatchComponent(tx *store.Tx, t batch.Target) error {
	id, err := batch.Reference(t.Configuration.Component)
	if err != nil {
		return err
	}
	comp, err := jobCall{c}.components(tx)(id)
	if err != nil {
		return berth.Errorf(berth.CodeOf(err), "properties.deploymentConfiguration.componentId: %w", err)
	}
	if !strings.EqualFold(comp.Type, "pipeline") {
		return berth.Errorf(berth.Invalid, "properties.deploymentConfiguration.componentId: the component is of type %s; only pipeline components can be deployed", comp.Type)
	}
	return nil
}

// checkScoring refuses settings with which no invocation could run: it looks at the step of one
// that names a folder.
func (c *call) checkScoring(t batch.Target) error {
	props, err := t.Job(&batch.Invocation{Inputs: map[string]batch.Data{"data": {InputType: "UriFolder", URI: "azureml://datastores/workspaceblobstore/paths/x/"}}})
	if err != nil {
		return err
	}
	raw, err := json.Marshal(props)
	if err != nil {
		return err
	}
	return c.s.jobs.checkSteps(c.ws, raw)
}

// shapeBatch adds what the server says of a batch endpoint or deployment.
func shapeBatch(c *call, d *store.Doc, p map[string]any) {
	orNull(p, "description")
	setDefault(p, "properties", map[string]any{})
	p["provisioningState"] = berth.DeploymentSucceeded
	if d.Version == "" {
		at := c.s.BaseURL + c.ws.BatchPath(d.Name)
		p["scoringUri"], p["swaggerUri"] = at, nil
		setDefault(p, "defaults", map[string]any{})
		return
	}
	if p["deploymentConfiguration"] != nil {
		return
	}
	for k, v := range batch.Defaults() {
		setDefault(p, k, v)
	}
}
