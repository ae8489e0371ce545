package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/spec"
)

// rerun submits a job again, under another name.
type rerun struct {
	s        *session
	name, on string
	set      wordGroups
	noWait   bool
}

func rerunCommand(s *session) *cobra.Command {
	r := &rerun{s: s}
	cmd := &cobra.Command{
		Use:   "rerun [JOB]",
		Short: "Run a job again, with the same code, environment and inputs",
		Long: "Submits a job again under another name, and streams its output. JOB is a name, a prefix of one, or `last`, the default.\n\n" +
			"  berth rerun last\n" +
			"  berth rerun --on gpus honest_basil\n" +
			"  berth rerun honest_basil --set inputs.lr=0.01 resources.instance_count=2",
		Args:              maxArgs(1),
		ValidArgsFunction: s.completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return r.run(ctx, selector(args))
		},
	}
	f := cmd.Flags()
	f.StringVarP(&r.name, "name", "n", "", "name of the new job (default: generated)")
	f.StringVar(&r.on, "on", "", "compute to run on (default: that of the job)")
	setFlag(cmd, &r.set)
	f.Lookup("set").Usage = "PATH=VALUE …: change fields of the job, named as in a job file"
	f.BoolVar(&r.noWait, "no-wait", false, "print the job's name and return")
	return cmd
}

func (r *rerun) run(ctx context.Context, which string) error {
	if r.name == "" {
		r.name = newName()
	} else if err := berth.CheckName("job", r.name); err != nil {
		return err
	}
	sets, err := setsOf(&r.set)
	if err != nil {
		return err
	}
	c, err := r.s.open(ctx)
	if err != nil {
		return err
	}
	j, err := r.s.job(ctx, c, which)
	if err != nil {
		return err
	}
	body, err := r.body(ctx, c, j.Name, sets)
	if err != nil {
		return err
	}
	_, rev, err := c.Submit(ctx, r.name, body)
	if err != nil {
		return err
	}
	if r.noWait {
		_, err := fmt.Fprintln(r.s.out, r.name)
		r.s.nextSteps(r.name)
		return err
	}
	r.s.say("submitted %s, which repeats %s", r.s.paint(r.s.err, bold, r.name), j.Name)
	r.s.nextSteps(r.name)
	return r.s.followTo(ctx, c, r.name, rev, nil)
}

// body is what a job was submitted with, as far as it is not the job's own.
func (r *rerun) body(ctx context.Context, c *client.Client, name string, sets []string) (json.RawMessage, error) {
	d, err := c.Get(ctx, "jobs", name)
	if err != nil {
		return nil, err
	}
	p := d.Properties()
	for _, own := range []string{"status", "berth", "parentJobName", "isArchived"} {
		delete(p, own)
	}
	if p["displayName"] == name {
		delete(p, "displayName")
	}
	if services, ok := p["services"].(map[string]any); ok { // those that every job has
		delete(services, "Studio")
		delete(services, "Tracking")
	}
	if r.on != "" {
		p["computeId"] = c.Workspace.ResourceID("computes", r.on)
	}
	if len(sets) == 0 {
		return json.Marshal(map[string]any{"properties": p})
	}
	return r.s.changedBody(ctx, c, d, sets)
}

// changedBody is a job with fields set that are named as in a file: it becomes one, and is read as
// one. What it then needs beside itself is made.
func (s *session) changedBody(ctx context.Context, c *client.Client, d client.Document, sets []string) (json.RawMessage, error) {
	job := jobNoun()
	file := entity(job, d)
	for _, own := range []string{"name", "id", "creation_context", "status"} {
		delete(file, own)
	}
	sets, err := inlineSteps(ctx, c, file, sets)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(file)
	if err != nil {
		return nil, err
	}
	r, err := spec.LoadBytes(text, withTypes(spec.Options{Kind: job.yaml(), Set: sets, Workspace: c.Workspace, File: "job " + d.Name(), Bare: true, Links: followLinks()}))
	if err != nil {
		return nil, err
	}
	for _, w := range r.Warnings {
		s.warn("%v", w)
	}
	last := len(r.Resources) - 1
	for i := range r.Resources[:last] {
		body, err := s.fill(ctx, c, &r.Resources[i])
		if err != nil {
			return nil, err
		}
		if _, err := s.put(ctx, c, &r.Resources[i], body); err != nil {
			return nil, err
		}
	}
	return s.fill(ctx, c, &r.Resources[last])
}

// inlineSteps writes what steps run back into the job, where they were written in its file and
// --set is to change it: the server keeps each as a component without a name. It gives the --set
// as they are then.
func inlineSteps(ctx context.Context, c *client.Client, file map[string]any, sets []string) ([]string, error) {
	steps, _ := file["jobs"].(map[string]any)
	sets = slices.Clone(sets)
	for i, set := range sets {
		path, _, err := splitSet(set)
		if err != nil || len(path) < 3 || path[0].key != "jobs" || !slices.Contains([]string{"command", "code", "environment"}, path[2].key) {
			continue
		}
		name := path[1].key
		node, _ := steps[name].(map[string]any)
		if version, own := strings.CutPrefix(fmt.Sprint(node["component"]), "azureml:"+spec.AnonymousComponents+":"); own {
			d, err := c.Get(ctx, "components", spec.AnonymousComponents, "versions", version)
			if err != nil {
				return nil, err
			}
			component, err := spec.Entity("components", d.Members)
			if err != nil {
				return nil, err
			}
			for _, own := range []string{"name", "version", "id", "creation_context"} {
				delete(component, own)
			}
			node["component"] = component
		}
		if _, inline := node["component"].(map[string]any); inline {
			sets[i] = strings.Replace(set, "jobs."+name+".", "jobs."+name+".component.", 1)
		}
	}
	return sets, nil
}
