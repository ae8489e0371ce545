package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// A gang is an Indexed Job: each task is a pod with an index. A headless Service of the same name
// gives the pods names, at which they find one another. All of it is the Job's and goes with it.

// gangAnnotation has the ids of a gang's tasks, by index; removedAnnotation the indices of those
// that were removed.
const (
	gangAnnotation    = "berth/gang"
	removedAnnotation = "berth/removed"
)

// mostNodes is how many nodes a job can have: how many the cluster can make is not known.
const mostNodes = 1000

// StartGang is [driver.Ganger.StartGang].
func (d *Driver) StartGang(ctx context.Context, all []berth.Launch) ([]driver.Handle, error) {
	name, err := d.start(ctx, all)
	if err != nil {
		return nil, err
	}
	hs := make([]driver.Handle, len(all))
	for i := range all {
		hs[i] = memberHandle(name, i)
	}
	return hs, nil
}

// memberHandle is the handle of a task of a gang.
func memberHandle(name string, index int) driver.Handle {
	return handle(name) + driver.Handle("/"+strconv.Itoa(index))
}

// addressed are the launches of a gang with the names that its pods will have.
func addressed(all []berth.Launch, name string) []berth.Launch {
	if len(all) == 1 {
		return all
	}
	out := slices.Clone(all)
	for i := range out {
		g := *out[i].Group
		g.Nodes = slices.Clone(g.Nodes)
		for k := range g.Nodes {
			host := name + "-" + strconv.Itoa(k)
			g.Nodes[k].Name, g.Nodes[k].Address = host, host+"."+name
		}
		out[i].Group = &g
	}
	return out
}

// gangSpec makes an Indexed Job of the specification of a Job. One pod that fails ends all.
func gangSpec(all []berth.Launch, name string, spec, pod, notes object) error {
	ids := make([]berth.TaskID, len(all))
	for i, l := range all {
		ids[i] = l.Task
	}
	b, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	notes[gangAnnotation] = string(b)
	spec["completions"], spec["parallelism"], spec["completionMode"] = len(all), len(all), "Indexed"
	pod["subdomain"] = name
	return nil
}

// serviceOf is the Service of a gang. Names are there before the pods are ready.
func serviceOf(name, compute, uid string) object {
	return object{
		"apiVersion": "v1", "kind": "Service", "metadata": owned(name, compute, uid),
		"spec": object{"clusterIP": "None", "publishNotReadyAddresses": true, "selector": object{"batch.kubernetes.io/job-name": name}},
	}
}

// size is how many tasks a Job has.
func (j *job) size() int { return max(1, j.Spec.Completions) }

// index is that of the pod in its Job.
func (p *pod) index() int {
	const name = "batch.kubernetes.io/job-completion-index"
	i, _ := strconv.Atoi(cmp.Or(p.Metadata.Labels[name], p.Metadata.Annotations[name]))
	return i
}

// lookAtGang is the states of the tasks of a gang. A task whose pod has not ended when the Job has,
// or was never made, ended because of the others.
func (d *Driver) lookAtGang(j *job, pods map[int]*pod, refusals func() map[string]refused) []driver.Observed {
	var ids []berth.TaskID
	_ = json.Unmarshal([]byte(j.Metadata.Annotations[gangAnnotation]), &ids) // one that was tampered with has no tasks
	gone := removed(j)
	failed := firstFailure(j, pods)
	var out []driver.Observed
	for i, id := range ids {
		if slices.Contains(gone, i) {
			continue
		}
		o := d.lookAt(j, pods[i], refusals)
		o.Task, o.Handle = id, memberHandle(j.Metadata.Name, i)
		if failed >= 0 && failed != i && stopOf(j) == nil && o.State == berth.TaskDone && !o.Exit.OK() {
			o.Exit = &berth.Exit{Code: 143, Cause: "peer", Reason: "the pod of task " + strconv.Itoa(failed) + " failed: " + podExit(pods[failed]).Reason}
		}
		out = append(out, o)
	}
	return out
}

// firstFailure is the index of the pod that ended a gang, -1 when there is none. Those that were
// ended for it have been deleted.
func firstFailure(j *job, pods map[int]*pod) int {
	if !over(j) && j.Status.Failed == 0 {
		return -1
	}
	for i := range j.size() {
		if p := pods[i]; p != nil && p.Status.Phase == "Failed" && (p.Metadata.DeletionTimestamp == nil || taken(p) != "") {
			return i
		}
	}
	return -1
}

// removed are the indices of the tasks of a gang that were removed.
func removed(j *job) (all []int) {
	_ = json.Unmarshal([]byte(j.Metadata.Annotations[removedAnnotation]), &all) // nothing was, then
	return all
}

// removeOne notes that a task of a gang is removed. last says that it is the last one, or the only
// one.
func (c *client) removeOne(ctx context.Context, j *job, index int) (last bool, err error) {
	all := removed(j)
	if index >= j.size() || slices.Contains(all, index) {
		return false, nil
	}
	if len(all)+1 >= j.size() {
		return true, nil
	}
	b, err := json.Marshal(append(all, index))
	if err != nil {
		return false, err
	}
	patch := object{"metadata": object{"annotations": object{removedAnnotation: string(b)}, "resourceVersion": j.Metadata.ResourceVersion}}
	return false, gone(c.do(ctx, http.MethodPatch, c.in(batch, "jobs", j.Metadata.Name), nil, patch, nil))
}
