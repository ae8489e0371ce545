// Package sdk tells the stories of people who come with Azure's own clients.
package sdk_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/machinelearning/armmachinelearning/v4"

	"github.com/berthml/berth/e2e/world"
)

// The things story.py must have seen; a story that stops early cannot pass.
var seen = []string{
	"workspace and compute", "data assets", "environments", "models", "datastores", "command job: code, inputs, outputs, download",
	"download of one output", "stream", "failure", "cancel", "list, archive, restore, edit", "code is uploaded once", "refusals",
}

// The same for compute.py.
var seenCompute = []string{
	"sizes and usage", "cluster: create, show, update, list", "cluster: a job makes a node", "cluster: a job of two nodes", "serverless", "refusals",
	"cluster: delete",
}

// The same for pipeline.py.
var seenPipeline = []string{
	"two steps that pass a folder on, streamed", "children, download of the whole and of steps", "nested pipelines, and a component made of a job",
	"failure", "cancel", "refusals",
}

// The same for batch.py.
var seenBatch = []string{
	"endpoint and deployment with a script", "invoked with a folder", "invoked with a file", "invoked with a data asset, an output and other settings",
	"jobs are listed, and a name is taken once", "an MLflow model without a script", "a pipeline component with a folder and a value", "deleted, and its jobs are left",
}

// The same for online.py.
var seenOnline = []string{
	"endpoint, its keys, and no deployment yet", "blue, its settings and an answer", "logs, and an error of the script", "green, by its name", "mirrored requests",
	"ten percent, and the flip", "a change, and one that fails and leaves what was there", "keys are replaced, one by one", "tokens, from files",
	"refused with traffic, and deleted",
}

func TestPythonOnline(t *testing.T) { tell(t, "online.py", seenOnline) }

func TestPythonBatch(t *testing.T) { tell(t, "batch.py", seenBatch) }

func TestPythonPipeline(t *testing.T) { tell(t, "pipeline.py", seenPipeline) }

func TestPythonSDK(t *testing.T) { tell(t, "story.py", seen) }

func TestPythonCompute(t *testing.T) { tell(t, "compute.py", seenCompute) }

// seenWorkspace is what the story of workspaces says, in order.
var seenWorkspace = []string{"create by the SDK's own template", "a job in it", "delete with dependent resources"}

func TestPythonWorkspace(t *testing.T) { tell(t, "workspace.py", seenWorkspace) }

// tell runs a story with each version of the SDK, against a server of its own.
func tell(t *testing.T, file string, seen []string) {
	for _, version := range []string{"1.35.2", "1.34.1"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			python := world.Python(t, "azure-ai-ml=="+version, "azure-identity==1.27.0", "six==1.17.0")
			s := world.Start(t)
			story, err := filepath.Abs(file)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(python, story, filepath.Join(t.TempDir(), "work"))
			cmd.Env, cmd.Dir = s.Environ(), t.TempDir()
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, out, errs.String())
			}
			for _, line := range seen {
				if !strings.Contains(string(out), "seen: "+line+"\n") {
					t.Errorf("the story does not say %q:\n%s", line, out)
				}
			}
		})
	}
}

// TestExample runs the example of the README as a user would.
func TestExample(t *testing.T) {
	python := world.Python(t, "azure-ai-ml==1.35.2", "azure-identity==1.27.0", "six==1.17.0")
	s := world.Start(t)
	script, err := filepath.Abs("../../examples/sdk/submit.py")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(python, script, filepath.Join(dir, "got"))
	cmd.Env, cmd.Dir = s.Environ(), dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	counts, err := os.ReadFile(filepath.Join(dir, "got", "named-outputs", "counts", "counts.json"))
	if err != nil || !bytes.Contains(counts, []byte(`"tide": 3`)) {
		t.Errorf("%v: %s\n%s", err, counts, out)
	}
}

// token is a credential that knows the server's token already.
type token string

func (k token) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(k), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// goSDK is Azure's clients for Go, and a plain one that trusts the server.
func goSDK(t *testing.T, s *world.Server) (*armmachinelearning.ClientFactory, *http.Client) {
	t.Helper()
	pem, err := os.ReadFile(s.CABundle)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		t.Fatal("no certificate in the bundle")
	}
	plain := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	opts := &arm.ClientOptions{DisableRPRegistration: true, ClientOptions: azcore.ClientOptions{
		Transport: plain,
		Cloud: cloud.Configuration{Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
			cloud.ResourceManager: {Endpoint: s.URL, Audience: s.URL},
		}},
	}}
	f, err := armmachinelearning.NewClientFactory(s.Sub, token(s.Token), opts)
	if err != nil {
		t.Fatal(err)
	}
	return f, plain
}

func TestGoSDK(t *testing.T) {
	s := world.Start(t)
	f, _ := goSDK(t, s)
	ctx := t.Context()
	ws, err := f.NewWorkspacesClient().Get(ctx, s.Group, s.Workspace, nil)
	if err != nil || *ws.Name != s.Workspace {
		t.Fatalf("%v %v", ws, err)
	}
	computes := f.NewComputeClient().NewListPager(s.Group, s.Workspace, nil)
	page, err := computes.NextPage(ctx)
	if err != nil || len(page.Value) != 1 || *page.Value[0].Name != "local" {
		t.Fatalf("%v %v", page, err)
	}
	_, err = f.NewDataVersionsClient().CreateOrUpdate(ctx, s.Group, s.Workspace, "d", "1", armmachinelearning.DataVersionBase{
		Properties: &armmachinelearning.URIFileDataVersion{DataType: to.Ptr(armmachinelearning.DataTypeURIFile), DataURI: to.Ptr("https://example.org/x.csv")},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	jobs := f.NewJobsClient()
	_, err = jobs.CreateOrUpdate(ctx, s.Group, s.Workspace, "from-go", armmachinelearning.JobBase{Properties: &armmachinelearning.CommandJob{
		JobType: to.Ptr(armmachinelearning.JobTypeCommand), Command: to.Ptr("echo from go; exit 0"), ComputeID: to.Ptr("azureml:local"),
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		got, err := jobs.Get(ctx, s.Group, s.Workspace, "from-go", nil)
		if err != nil {
			t.Fatal(err)
		}
		if st := *got.Properties.GetJobBaseProperties().Status; st == armmachinelearning.JobStatusCompleted {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("status %s", st)
		}
	}
	names := 0
	for pager := jobs.NewListPager(s.Group, s.Workspace, nil); pager.More(); {
		p, err := pager.NextPage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		names += len(p.Value)
	}
	if names != 1 {
		t.Errorf("%d jobs in the list", names)
	}
	_, err = jobs.CreateOrUpdate(ctx, s.Group, s.Workspace, "bad", armmachinelearning.JobBase{Properties: &armmachinelearning.CommandJob{
		JobType: to.Ptr(armmachinelearning.JobTypeCommand), Command: to.Ptr("x"), ComputeID: to.Ptr("azureml:nowhere"),
	}}, nil)
	if err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("an unknown compute: %v", err)
	}
}
