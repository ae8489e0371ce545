package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/asset"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
)

// registerOutputs creates assets from the named outputs of a completed job. A failure is reported
// as an event: the job has done its work, and its output stays where it is.
func (cy *cycle) registerOutputs(j *jobWork) error {
	if !bytes.Contains(j.props, []byte(`"assetName"`)) {
		return nil // as a rule
	}
	var props struct {
		Outputs map[string]berth.JobOutput `json:"outputs"`
	}
	if err := json.Unmarshal(j.props, &props); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(props.Outputs)) {
		o := props.Outputs[name]
		if o.AssetName == "" {
			continue
		}
		made, err := cy.makeAsset(j, name, o)
		switch code := berth.CodeOf(err); {
		case err == nil:
			cy.tx.Emit(berth.Event{
				Workspace: j.doc.Workspace, Subject: made, Type: berth.EventResourcePut, Reason: fmt.Sprintf("output %s of job %s", name, j.doc.Name),
			})
		case code == berth.Internal || code == berth.Unavailable:
			return err
		default:
			cy.tx.Emit(berth.Event{
				Workspace: j.doc.Workspace, Subject: "jobs/" + j.doc.Name, Type: berth.EventJobWarning,
				Reason: fmt.Sprintf("output %s did not become an asset: %v; it is kept at %s", name, err, o.Place(j.doc.Name, name)),
			})
		}
	}
	return nil
}

// makeAsset creates an asset from an output and returns its subject.
func (cy *cycle) makeAsset(j *jobWork, name string, o berth.JobOutput) (string, error) {
	ws, _, err := cy.workspace(j.doc.Workspace)
	if err != nil {
		return "", err
	}
	if err := berth.CheckName("asset", o.AssetName); err != nil {
		return "", err
	}
	uri, _, err := locate.ResolveOutput(cy.tx, ws, "azureml://jobs/"+j.doc.Name+"/outputs/"+name)
	if err != nil {
		return "", err
	}
	v := asset.Version{Workspace: j.doc.Workspace, Collection: "data", Name: o.AssetName, Version: o.AssetVersion, User: j.doc.CreatedBy}
	if j.state.Admin && locate.IsFile(uri) {
		v.Own = locate.VouchedMark()
	}
	switch typ := strings.ToLower(o.Type); {
	case strings.HasSuffix(typ, "_model"):
		v.Collection, v.Properties = "models", map[string]any{"modelUri": uri, "modelType": typ, "jobName": j.doc.Name}
	case typ == "":
		v.Properties = map[string]any{"dataUri": uri, "dataType": "uri_folder"}
	default:
		v.Properties = map[string]any{"dataUri": uri, "dataType": typ}
	}
	version, err := asset.Create(cy.tx, v)
	if err != nil {
		return "", err
	}
	if place, err := cy.c.o.Locator.Resolve(cy.tx, ws, v.User, uri); err == nil && place.Ours() {
		title := asset.Title(map[string]string{"data": "data asset", "models": "model"}[v.Collection], v.Name, version)
		if err := blob.Hold(cy.tx, place.Container, place.Name, title, v.User); err != nil {
			return "", err
		}
	}
	return v.Collection + "/" + v.Name + "/versions/" + version, nil
}
