package api_test

import (
	"strings"
	"testing"

	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

// TestOnlineEndpoints: endpoints and their deployments are kept, listed, shown and deleted; a
// deployment is being created until the server has made it.
func TestOnlineEndpoints(t *testing.T) {
	x := open(t)
	at := x.ws + "/onlineEndpoints/e"
	x.do("PUT", at+"/deployments/blue", props("endpointComputeType", "Managed")).want(404).says(`there is no online endpoint "e"`)
	made := x.do("PUT", at, map[string]any{"location": "here", "tags": map[string]any{"a": "b"}, "properties": map[string]any{
		"authMode": "Key", "traffic": map[string]any{"blue": 0}, "keys": map[string]any{"primaryKey": "s3cret-one", "secondaryKey": "s3cret-two"},
	}}).want(201).is("name", "e").is("type", "Microsoft.MachineLearningServices/workspaces/onlineEndpoints").is("tags.a", "b").
		is("properties.authMode", "Key").is("properties.traffic.blue", 0.0).is("properties.provisioningState", "Succeeded").
		is("properties.scoringUri", "https://127.0.0.1:8443"+workspace.EndpointPath("e")+"score")
	if made.header.Get("Azure-AsyncOperation") == "" {
		t.Error("it is no long-running operation")
	}
	x.do("PUT", at+"/deployments/blue", props("endpointComputeType", "Managed")).want(400).says("properties.codeConfiguration is missing")
	script := map[string]any{"codeId": "azureml:c:1", "scoringScript": "score.py"}
	x.do("PUT", at+"/deployments/blue", props("codeConfiguration", script)).want(400).says("properties.codeConfiguration.codeId")
	x.do("PUT", x.ws+"/codes/c/versions/1", props("codeUri", "https://example.org/c")).want(201)
	x.do("PUT", at+"/deployments/blue", props("codeConfiguration", map[string]any{"codeId": "azureml:c:1", "scoringScript": "../score.py"})).want(400).says("scoringScript")
	deployment := x.do("PUT", at+"/deployments/blue", map[string]any{"location": "here", "sku": map[string]any{"name": "Default", "capacity": 1}, "properties": map[string]any{
		"endpointComputeType": "Managed", "instanceType": "Standard_DS3_v2", "codeConfiguration": script,
	}}).want(201).is("name", "blue").is("type", "Microsoft.MachineLearningServices/workspaces/onlineEndpoints/deployments").
		is("properties.provisioningState", "Creating").is("sku.capacity", 1.0).is("properties.scaleSettings.scaleType", "Default")
	result := strings.TrimPrefix(deployment.header.Get("Location"), "https://127.0.0.1:8443")
	x.do("GET", result, nil).want(202)
	x.do("GET", at+"/deployments", nil).want(200).is("value.0.name", "blue").is("value.1", nil)
	x.do("GET", at+"/deployments/green", nil).want(404).says(`there is no deployment "green" of online endpoint e`)
	x.do("GET", x.ws+"/onlineEndpoints", nil).want(200).is("value.0.name", "e").is("value.1", nil)
	x.do("PUT", x.ws+"/onlineEndpoints/k", props("authMode", "AADToken", "compute", "azureml:k8s")).want(201)
	x.do("GET", x.ws+"/onlineEndpoints?computeType=Kubernetes", nil).want(200).is("value.0.name", "k").is("value.1", nil)
	x.do("GET", x.ws+"/onlineEndpoints?computeType=Managed", nil).want(200).is("value.0.name", "e").is("value.1", nil)
	x.do("PUT", x.ws+"/onlineEndpoints/odd", props("authMode", "Magic")).want(400).says("properties.authMode")
	x.do("PUT", x.ws+"/onlineEndpoints/odd", props("authMode", "Key", "traffic", map[string]any{"a": 60, "b": 60})).want(400).says("properties.traffic")

	// Another user deploys nothing to it, nor changes its keys; and a name is taken in every case.
	bob := x.token("bob", auth.User)
	x.as(bob, "PUT", at+"/deployments/green", props("codeConfiguration", script)).want(403).says("deploy to")
	x.as(bob, "POST", at+"/regenerateKeys", map[string]any{"keyType": "Primary"}).want(403)
	x.do("PUT", at+"/deployments/Blue", props("codeConfiguration", script)).want(409).says("differ only in case")
	x.as(bob, "PUT", x.ws+"/environments/mlflow-model-0123/versions/1", props("image", "x")).want(403).says("choose another name")
	x.do("PUT", at+"/deployments/far", props("codeConfiguration", script, "properties", map[string]any{"berth.compute": "nowhere"})).want(400).says("berth.compute")

	// The version of a model is the one that was there when it was deployed.
	x.do("PUT", x.ws+"/models/m/versions/1", props("modelUri", "azureml://datastores/workspaceblobstore/paths/m", "modelType", "custom_model")).want(201)
	pinned := x.do("PUT", at+"/deployments/pin", props("codeConfiguration", script, "model", "azureml:m@latest")).want(201)
	if id, _ := pinned.at("properties.model").(string); !strings.HasSuffix(id, "/models/m/versions/1") {
		t.Errorf("the model is %q", id)
	}
	x.do("DELETE", at+"/deployments/pin", nil).want(200)

	// Its keys leave by one call only, which is not for readers; an update that sends none keeps
	// them.
	x.do("PUT", at, props("authMode", "Key", "description", "new")).want(200).is("properties.description", "new")
	x.as(x.token("r", auth.Reader), "POST", at+"/listKeys", nil).want(403)
	x.do("POST", at+"/listKeys", nil).want(200).is("primaryKey", "s3cret-one").is("secondaryKey", "s3cret-two")
	x.do("POST", at+"/regenerateKeys", map[string]any{"keyType": "Secondary"}).want(200)
	again := x.do("POST", at+"/listKeys", nil).want(200).is("primaryKey", "s3cret-one")
	if k, _ := again.at("secondaryKey").(string); len(k) < 20 || k == "s3cret-two" {
		t.Errorf("the second key is %q", k)
	}
	if got := x.do("GET", at, nil).want(200); strings.Contains(string(got.raw), "s3cret") {
		t.Errorf("shown: %s", got.raw)
	}
	err := x.db.View(t.Context(), func(tx *store.Tx) error {
		d, err := tx.Get(workspace.Key(), "onlineEndpoints", "e", "")
		if err == nil && strings.Contains(string(d.Body)+string(d.Own), "s3cret") {
			t.Errorf("kept: %s %s", d.Body, d.Own)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	x.do("POST", x.ws+"/onlineEndpoints/k/listKeys", nil).want(400).says("has no keys")

	// What is below it goes with it.
	x.do("DELETE", at, nil).want(200)
	x.do("GET", at+"/deployments/blue", nil).want(404)
	x.do("PUT", at, props("authMode", "AMLToken")).want(201)
	x.do("GET", at+"/deployments", nil).want(200).is("value.0", nil)
}

// TestBatchEndpoints: as online ones; app has tests of their jobs.
func TestBatchEndpoints(t *testing.T) {
	x := open(t)
	at, code := x.ws+"/batchEndpoints/b", x.ws+"/codes/c/versions/1"
	x.do("PUT", at, props("authMode", "AADToken", "defaults", map[string]any{"deploymentName": "d"})).want(201).
		is("properties.defaults.deploymentName", "d").is("properties.provisioningState", "Succeeded")
	x.do("PUT", at+"/deployments/d", props("compute", "local")).want(400).says("codeConfiguration is missing")
	x.do("PUT", code, props("codeUri", "azureml://datastores/workspaceblobstore/paths/c")).want(201)
	x.do("PUT", at+"/deployments/d", props("compute", "local", "codeConfiguration", map[string]any{"codeId": code, "scoringScript": "score.py"})).want(201).
		is("properties.compute", "local").is("properties.miniBatchSize", 10.0).is("properties.retrySettings.timeout", "PT30S")
	x.do("PATCH", at+"/deployments/d", props("miniBatchSize", 5)).want(200).is("properties.miniBatchSize", 5.0).is("properties.compute", "local")
	x.do("POST", at+"/listKeys", nil).want(400).says("has no keys")
	x.do("DELETE", at+"/deployments/d", nil).want(200)
	x.do("DELETE", at+"/deployments/d", nil).want(204)
	x.do("GET", at, nil).want(200)
}

// TestSchedules: schedules are kept and listed by whether they are enabled; they start nothing yet.
func TestSchedules(t *testing.T) {
	x := open(t)
	schedule := func(on bool) map[string]any {
		return props("isEnabled", on, "trigger", map[string]any{"triggerType": "Cron", "expression": "0 8 * * *"}, "action", map[string]any{"actionType": "CreateJob"})
	}
	x.do("PUT", x.ws+"/schedules/on", schedule(true)).want(201).is("properties.trigger.expression", "0 8 * * *").
		is("properties.berth.warnings.0", "schedules are kept as documents: none of them starts a job yet")
	x.do("PUT", x.ws+"/schedules/off", schedule(false)).want(201)
	x.do("PUT", x.ws+"/schedules/none", props("isEnabled", true)).want(400).says("properties.trigger")
	x.do("GET", x.ws+"/schedules", nil).want(200).is("value.0.name", "on").is("value.1", nil)
	x.do("GET", x.ws+"/schedules?listViewType=DisabledOnly", nil).want(200).is("value.0.name", "off").is("value.1", nil)
	x.do("GET", x.ws+"/schedules?listViewType=All", nil).want(200).is("value.1.name", "on")
	x.do("DELETE", x.ws+"/schedules/on", nil).want(200)
	x.do("GET", x.ws+"/schedules/on", nil).want(404)
}

// TestRegistries: registries are kept in a resource group, by administrators; nothing is kept in
// them yet.
func TestRegistries(t *testing.T) {
	x := open(t)
	group := "/subscriptions/sub/resourceGroups/Group/providers/Microsoft.MachineLearningServices"
	at := group + "/registries/shared"
	x.as(x.token("u", auth.User), "PUT", at, props()).want(403).says("only an administrator")
	x.do("PUT", at, map[string]any{"location": "here", "properties": map[string]any{"publicNetworkAccess": "Enabled"}}).want(201).
		is("id", at).is("type", "Microsoft.MachineLearningServices/registries").is("properties.publicNetworkAccess", "Enabled").
		is("properties.berth.warnings.0", "registries are kept as documents: no assets can be put into them yet")
	x.as(x.token("v", auth.User), "GET", at, nil).want(200)
	x.do("GET", group+"/registries", nil).want(200).is("value.0.name", "shared").is("value.1", nil)
	x.do("GET", "/subscriptions/sub/providers/Microsoft.MachineLearningServices/registries", nil).want(200).is("value.0.name", "shared")
	x.do("GET", group+"/registries/other", nil).want(404).says(`there is no registry "other" in resource group Group`)
	x.do("PUT", strings.Replace(at, "/Group/", "/nowhere/", 1), props()).want(404).says("no resource group nowhere")
	x.do("GET", at+"/components/c/versions/1", nil).want(404)
	x.do("GET", x.ws+"/registries/shared", nil).want(404)
	other := "/subscriptions/sub/resourceGroups/other"
	x.do("PUT", other, map[string]any{"location": "here"}).want(201)
	x.do("PUT", other+"/providers/Microsoft.MachineLearningServices/registries/r", props()).want(201)
	x.do("DELETE", other, nil).want(409).says("resource group other holds registry r; delete that first")
	x.do("DELETE", other+"/providers/Microsoft.MachineLearningServices/registries/r", nil).want(200)
	x.do("DELETE", other, nil).want(200)
	x.do("DELETE", at, nil).want(200)
	x.do("GET", at, nil).want(404)
}
