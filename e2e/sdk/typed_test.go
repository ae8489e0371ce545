package sdk_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/machinelearning/armmachinelearning/v4"

	"github.com/berthml/berth/e2e/world"
)

// TestGoReadsWhatOthersWrote: Python puts numbers and truth values where maps of strings are. A
// typed client reads all of it, as the service makes strings of them; and it waits for a job to be
// canceled by asking where the result is.
func TestGoReadsWhatOthersWrote(t *testing.T) {
	s := world.Start(t)
	f, plain := goSDK(t, s)
	ctx := t.Context()
	for path, doc := range map[string]string{
		"codes/c/versions/1":        `{"properties":{"codeUri":"https://example.org/c","properties":{"hash_sha256":"ab","hash_version":202208}}}`,
		"environments/e/versions/1": `{"properties":{"image":"i","condaFile":"name: e\ndependencies: [python=3.10]\n","tags":{"n":1}}}`,
		"components/p/versions/1":   `{"properties":{"tags":{"yes":true},"componentSpec":{"type":"command","command":"x","is_deterministic":true}}}`,
		"jobs/j":                    `{"properties":{"jobType":"Command","command":"sleep 60","computeId":"azureml:local","tags":{"n":7},"environmentVariables":{"N":1.5},"properties":{"berth.environment":"host"}}}`,
	} {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, s.URL+"/subscriptions/"+s.Sub+"/resourceGroups/"+s.Group+
			"/providers/Microsoft.MachineLearningServices/workspaces/"+s.Workspace+"/"+path, strings.NewReader(doc))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+s.Token)
		resp, err := plain.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %s %s", path, resp.Status, b)
		}
	}
	codes, err := f.NewCodeVersionsClient().NewListPager(s.Group, s.Workspace, "c", nil).NextPage(ctx)
	if err != nil || *codes.Value[0].Properties.Properties["hash_version"] != "202208" {
		t.Errorf("codes: %v", err)
	}
	env, err := f.NewEnvironmentVersionsClient().Get(ctx, s.Group, s.Workspace, "e", "1", nil)
	if err != nil || *env.Properties.Tags["n"] != "1" || *env.Properties.EnvironmentType != armmachinelearning.EnvironmentTypeUserCreated || *env.Properties.OSType != armmachinelearning.OperatingSystemTypeLinux {
		t.Errorf("environment: %+v %v", env.Properties, err)
	}
	component, err := f.NewComponentVersionsClient().Get(ctx, s.Group, s.Workspace, "p", "1", nil)
	if err != nil || *component.Properties.Tags["yes"] != "True" {
		t.Errorf("component: %+v %v", component.Properties, err)
	}
	list, err := f.NewJobsClient().NewListPager(s.Group, s.Workspace, nil).NextPage(ctx)
	if err != nil || len(list.Value) != 1 || *list.Value[0].Properties.GetJobBaseProperties().Tags["n"] != "7" {
		t.Fatalf("jobs: %v", err)
	}
	if job, ok := list.Value[0].Properties.(*armmachinelearning.CommandJob); !ok || *job.EnvironmentVariables["N"] != "1.5" || *job.Resources.InstanceCount != 1 {
		t.Errorf("job: %+v", job)
	}
	cancel, err := f.NewJobsClient().BeginCancel(ctx, s.Group, s.Workspace, "j", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cancel.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: time.Second}); err != nil {
		t.Fatal(err)
	}
	if got, err := f.NewJobsClient().Get(ctx, s.Group, s.Workspace, "j", nil); err != nil || *got.Properties.GetJobBaseProperties().Status != armmachinelearning.JobStatusCanceled {
		t.Errorf("after the cancel: %+v %v", got.Properties, err)
	}
}
