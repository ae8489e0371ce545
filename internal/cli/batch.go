package cli

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// batchNouns are batch endpoints and their deployments.
func batchNouns(thing []verb) []noun {
	return []noun{
		{
			word: "batch-endpoint", collection: "batchEndpoints", tracked: true, short: "Batch endpoints: score many files in a job",
			verbs: append(slices.Clone(thing), batchInvokeVerb, batchJobsVerb),
			options: []option{
				{flag: "auth-mode", field: "auth_mode"},
				{flag: "defaults", field: "defaults", kind: sharesOption, update: true},
				description, tags,
			},
			columns: []string{"name", "auth_mode", "defaults", "scoring_uri", "description"},
			table:   []column{{"name", "name"}, {"auth mode", "auth_mode"}, {"state", "provisioning_state"}},
		},
		{
			word: "batch-deployment", collection: "batchEndpoints", child: "deployments", tracked: true, short: "Deployments of batch endpoints",
			verbs:   append(slices.Clone(thing), batchDeploymentJobsVerb),
			options: []option{description, tags},
			columns: []string{"name", "endpoint_name", "provisioning_state", "compute", "model"},
			table:   []column{{"name", "name"}, {"endpoint", "endpoint_name"}, {"state", "provisioning_state"}},
		},
	}
}

// invocation is what batch-endpoint invoke is told.
type invocation struct {
	file, input, inputType string
	deployment, job        string
	experiment, outputPath string
	inputs, outputs        []string
	instances, size        int
	outputFile             string
}

// batchInvokeVerb is batch-endpoint invoke.
func batchInvokeVerb(s *session, n noun) *cobra.Command {
	var v invocation
	cmd := s.about(n, "invoke", "Begin a job of an endpoint", func(ctx context.Context, c *client.Client, t *target) error {
		props, err := v.properties(ctx, s, c)
		if err != nil {
			return err
		}
		d, err := c.InvokeBatch(ctx, t.name, v.deployment, props)
		if err != nil {
			return err
		}
		return s.print(s.entity(jobNoun(), d))
	})
	f := cmd.Flags()
	f.StringVarP(&v.file, "file", "f", "", "YAML file with inputs and outputs")
	f.StringVar(&v.input, "input", "", "file, folder, data asset or URI to score")
	f.StringVar(&v.inputType, "input-type", "", "uri_folder or uri_file, where --input does not show it")
	f.StringArrayVar(&v.inputs, "inputs", nil, "NAME=PATH, NAME=URI or NAME=VALUE, of a deployment with several; may be repeated")
	f.StringArrayVar(&v.outputs, "outputs", nil, "NAME=URI; may be repeated")
	f.StringVarP(&v.deployment, "deployment-name", "d", "", "this deployment instead of the default one")
	f.StringVar(&v.job, "job-name", "", "name of the job")
	f.StringVar(&v.experiment, "experiment-name", "", "experiment of the job")
	f.StringVar(&v.outputPath, "output-path", "", "URI of a folder for the results")
	f.StringVar(&v.outputFile, "output-file-name", "", "name of the file with the results")
	f.IntVarP(&v.instances, "instance-count", "c", 0, "nodes, instead of the deployment's number")
	f.IntVarP(&v.size, "mini-batch-size", "m", 0, "files of a mini-batch, instead of the deployment's number")
	return cmd
}

// properties is the body of an invocation. Local files and folders are uploaded.
func (v *invocation) properties(ctx context.Context, s *session, c *client.Client) (map[string]any, error) {
	props, inputs, outputs := map[string]any{}, map[string]any{}, map[string]any{}
	run := &bareRun{s: s}
	if v.file != "" {
		if err := v.read(ctx, run, c, inputs, outputs); err != nil {
			return nil, err
		}
	}
	if v.input != "" {
		doc, err := run.inputDoc(ctx, c, v.input)
		if err != nil {
			return nil, err
		}
		if doc["jobInputType"] == "literal" {
			return nil, berth.Errorf(berth.Invalid, "--input %s: there is no such file or folder", v.input)
		}
		if v.inputType != "" {
			doc["jobInputType"] = v.inputType
		}
		inputs[map[bool]string{true: "UriFile", false: "UriFolder"}[doc["jobInputType"] == "uri_file"]] = doc
	}
	run.inputs = v.inputs
	named, err := run.inputDocs(ctx, c)
	if err != nil {
		return nil, err
	}
	for name, doc := range named {
		inputs[name] = doc
	}
	for _, o := range v.outputs {
		name, uri, ok := strings.Cut(o, "=")
		if !ok {
			return nil, usagef("--outputs %s: give NAME=URI", o)
		}
		outputs[name] = map[string]any{"jobOutputType": "uri_folder", "uri": uri}
	}
	if v.outputPath != "" {
		outputs["score"] = map[string]any{"jobOutputType": "uri_folder", "uri": v.outputPath}
	}
	props["inputData"], props["outputData"] = inputs, outputs
	for key, text := range map[string]string{"name": v.job, "outputFileName": v.outputFile} {
		if text != "" {
			props[key] = text
		}
	}
	if v.experiment != "" {
		props["properties"] = map[string]any{"experimentName": v.experiment}
	}
	if v.instances > 0 {
		props["compute"] = map[string]any{"instanceCount": v.instances}
	}
	if v.size > 0 {
		props["miniBatchSize"] = v.size
	}
	return props, nil
}

// read adds what an invocation's file says: inputs and outputs in the form that jobs have.
func (v *invocation) read(ctx context.Context, run *bareRun, c *client.Client, inputs, outputs map[string]any) error {
	b, err := os.ReadFile(v.file)
	if err != nil {
		return err
	}
	type entry struct {
		Type, Path, Mode string
		Value            any
	}
	var doc struct {
		Inputs  map[string]any
		Outputs map[string]entry
	}
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return berth.Errorf(berth.Invalid, "%s: %w", v.file, err)
	}
	for name, in := range doc.Inputs {
		m, ok := in.(map[string]any)
		value, given := m["path"].(string)
		switch {
		case !ok:
			inputs[name] = map[string]any{"jobInputType": "literal", "value": in}
			continue
		case !given:
			for _, key := range []string{"value", "default"} {
				if m[key] != nil {
					inputs[name] = map[string]any{"jobInputType": "literal", "value": m[key]}
				}
			}
			continue
		}
		if !strings.Contains(value, ":") && !filepath.IsAbs(value) {
			value = filepath.Join(filepath.Dir(v.file), value)
		}
		d, err := run.inputDoc(ctx, c, value)
		if err != nil {
			return berth.Errorf(berth.CodeOf(err), "%s: inputs.%s: %w", v.file, name, err)
		}
		if d["jobInputType"] == "literal" {
			return berth.Errorf(berth.Invalid, "%s: inputs.%s: there is no file or folder %s", v.file, name, value)
		}
		if typ, ok := m["type"].(string); ok {
			d["jobInputType"] = typ
		}
		inputs[name] = d
	}
	for name, o := range doc.Outputs {
		d := map[string]any{"jobOutputType": o.Type, "uri": o.Path}
		if o.Type == "" {
			d["jobOutputType"] = "uri_folder"
		}
		outputs[name] = d
	}
	return nil
}

// batchJobsVerb is batch-endpoint list-jobs.
func batchJobsVerb(s *session, n noun) *cobra.Command {
	return s.about(n, "list-jobs", "List the jobs of an endpoint", func(ctx context.Context, c *client.Client, t *target) error {
		return s.batchJobs(ctx, c, t.name, "")
	})
}

// batchDeploymentJobsVerb is batch-deployment list-jobs.
func batchDeploymentJobsVerb(s *session, n noun) *cobra.Command {
	return s.about(n, "list-jobs", "List the jobs of a deployment", func(ctx context.Context, c *client.Client, t *target) error {
		return s.batchJobs(ctx, c, t.parent, t.name)
	})
}

func (s *session) batchJobs(ctx context.Context, c *client.Client, endpoint, deployment string) error {
	docs, err := c.BatchJobs(ctx, endpoint)
	if err != nil {
		return err
	}
	n, list := jobNoun(), []any{}
	for _, d := range docs {
		if tags, _ := d.Properties()["tags"].(map[string]any); deployment == "" || tags["azureml.deploymentname"] == deployment {
			list = append(list, s.entity(n, d))
		}
	}
	return s.printAs(list, n.table)
}

// setDefault makes a deployment the default one of its endpoint.
func setDefault(ctx context.Context, c *client.Client, endpoint, deployment string) error {
	d, err := c.Get(ctx, "batchEndpoints", endpoint)
	if err != nil {
		return err
	}
	d.Properties()["defaults"] = map[string]any{"deploymentName": deployment}
	_, err = c.Put(ctx, d, "batchEndpoints", endpoint)
	return err
}
