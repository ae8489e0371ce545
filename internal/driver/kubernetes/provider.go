package kubernetes

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// A node of a managed cluster is a Job with one pod that asks for what the node's size has and
// becomes `berth _node`. An autoscaler brings a machine for a pod that finds no room, leaves that
// machine alone while the pod is there, and takes it away when nothing is on it.

// Labels and annotations of nodes. Their Jobs do not have computeLabel, which is for tasks.
const (
	providerLabel     = "berth/provider" // of the compute that makes the node
	clusterAnnotation = "berth/cluster"
	nodeAnnotation    = "berth/node"
)

// joinFile is the file that a node connects with.
const joinFile = "join.json"

// nodeGrace is how long what runs on a node has to end that is given back.
const nodeGrace = 5 * time.Second

// stay keeps autoscalers from moving a pod.
func stay() object {
	return object{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
}

// nodeJob is the name of a node's Job.
func nodeJob(compute, cluster, name string) string {
	return driver.Key(compute, "node", strings.ToLower(cluster), name)
}

// MakeNode is [driver.Provider.MakeNode].
func (d *Driver) MakeNode(ctx context.Context, n driver.NodeSpec) error {
	if err := d.dir.Admit(ctx); err != nil {
		return err
	}
	c, s, compute, err := d.api()
	if err != nil {
		return err
	}
	hash, err := d.c.Program()
	if err != nil {
		return berth.Errorf(berth.Unavailable, "the server's program cannot be read: %w", err)
	}
	name := nodeJob(compute, n.Boot.Cluster, n.Name)
	manifest, err := nodeOf(s, n, name, compute, hash)
	if err != nil {
		return err
	}
	var made job
	err = c.do(ctx, http.MethodPost, c.in(batch, "jobs", ""), nil, manifest, &made)
	if has(err, http.StatusConflict) { // by an earlier attempt, which may not have come to its Secret
		err = c.do(ctx, http.MethodGet, c.in(batch, "jobs", name), nil, nil, &made)
		if err == nil && made.Metadata.Labels[providerLabel] != compute {
			return berth.Errorf(berth.Conflict, "somebody else has made a Job %s in namespace %s; delete it", name, c.namespace)
		}
	}
	if err != nil {
		return err
	}
	meta := owned(name, compute, made.Metadata.UID)
	meta["labels"] = object{providerLabel: compute, "app.kubernetes.io/managed-by": "berth"}
	secret := object{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true, "metadata": meta, "data": object{launchKey + ".0": n.Boot.Join},
	}
	err = c.do(ctx, http.MethodPost, c.in("", "secrets", ""), nil, secret, nil)
	if has(err, http.StatusConflict) {
		return nil
	}
	return err
}

// MadeNodes is [driver.Provider.MadeNodes].
func (d *Driver) MadeNodes(ctx context.Context, cluster string) ([]driver.MadeNode, error) {
	if err := d.dir.Admit(ctx); err != nil {
		return nil, err
	}
	c, s, compute, err := d.api()
	if err != nil {
		return nil, err
	}
	jobs, pods, err := c.tasks(ctx, "", providerLabel+"="+compute)
	if err != nil {
		return nil, err
	}
	refusals := sync.OnceValue(func() map[string]refused { return c.refusals(ctx, s.QueueName) })
	var out []driver.MadeNode
	for i := range jobs {
		j := &jobs[i]
		notes := j.Metadata.Annotations
		if !strings.EqualFold(notes[clusterAnnotation], cluster) || j.Metadata.DeletionTimestamp != nil {
			continue
		}
		out = append(out, madeNode(notes[nodeAnnotation], j, pods[j.Metadata.Name][0], refusals))
	}
	return out, nil
}

// madeNode is what is known of a node by its Job and its pod, nil when there is none.
func madeNode(name string, j *job, p *pod, refusals func() map[string]refused) driver.MadeNode {
	n := driver.MadeNode{Name: name}
	if exit := exitOf(j, p); exit != nil {
		n.Gone, n.Taken, n.Why = true, exit.Cause == "evicted", cmp.Or(exit.Reason, "its pod has ended")
		return n
	}
	if p == nil {
		n.Why = whyNoPod(j, refusals)
		return n
	}
	if p.Metadata.DeletionTimestamp != nil {
		n.Gone, n.Taken, n.Why = true, true, podDeleted().Reason
		return n
	}
	n.Address = p.Status.PodIP
	for _, x := range p.Status.Conditions {
		if x.Type == "PodScheduled" && x.Status == "False" {
			n.Why = x.Message
			return n
		}
	}
	if n.Why, _ = imageTrouble(p); n.Why == "" && p.Status.Phase != "Running" {
		n.Why = "its pod is being started on node " + cmp.Or(p.Spec.NodeName, "that Kubernetes has not chosen yet")
	}
	return n
}

// UnmakeNode is [driver.Provider.UnmakeNode].
func (d *Driver) UnmakeNode(ctx context.Context, cluster, name string) error {
	if err := d.dir.Admit(ctx); err != nil {
		return err
	}
	c, _, compute, err := d.api()
	if err != nil {
		return err
	}
	job := nodeJob(compute, cluster, name)
	if err := c.remove(ctx, job); err != nil {
		return err
	}
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		left, err := list[pod](ctx, c, c.in("", "pods", ""), "batch.kubernetes.io/job-name="+job, "")
		if err != nil || len(left) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return berth.Errorf(berth.Unavailable, "Kubernetes has not ended the pod of node %s yet", name)
		case <-time.After(wait):
		}
	}
}

// sized is the instance type of a size: the one of that name, with what the size has where it says
// nothing. One with "-low" after the name is for low priority.
func (s site) sized(n driver.NodeSpec) instanceType {
	var t instanceType
	for _, want := range []string{n.Size, n.Size + "-low"} {
		for name, x := range s.InstanceTypes {
			if strings.EqualFold(name, want) && (n.Low || want == n.Size) {
				t = x
			}
		}
	}
	size := map[string]string{"cpu": strconv.FormatFloat(n.CPUs, 'f', -1, 64), "memory": strconv.FormatInt(n.Memory, 10)}
	if len(n.GPUs) > 0 {
		size["nvidia.com/gpu"] = strconv.Itoa(len(n.GPUs))
	}
	limits := maps.Clone(t.Resources.Limits)
	if limits == nil {
		limits = map[string]berth.Scalar{}
	}
	for k, v := range size {
		_, asked := t.Resources.Requests[k]
		if _, limited := limits[k]; !limited && !asked {
			limits[k] = berth.Scalar(v)
		}
	}
	t.Resources.Limits = limits
	return t
}

// nodeOf is the Job of a node.
func nodeOf(s site, n driver.NodeSpec, name, compute, hash string) (object, error) {
	if s.Image == "" {
		return nil, berth.Errorf(berth.Invalid, "the compute names no image for the nodes of clusters: set image in its properties")
	}
	t := s.sized(n)
	s.Tunnel = "never" // a node connects to the server by itself
	l := berth.Launch{Home: n.Boot.Home, Grace: nodeGrace - uploadTime}
	run := []string{workDir + "/program", "_node", "--dir", workDir + "/task"}
	pod, err := podOf(s, t, l, podPlan{image: s.Image, secret: name, hash: hash, command: run, args: []string{joinFile}})
	if err != nil {
		return nil, err
	}
	labels, notes := object{providerLabel: compute, "app.kubernetes.io/managed-by": "berth"}, stay()
	notes[clusterAnnotation], notes[nodeAnnotation] = n.Boot.Cluster, n.Name
	spec := object{
		"backoffLimit": 0, "completions": 1, "parallelism": 1, "podReplacementPolicy": "Failed",
		"template": object{"metadata": object{"labels": labels, "annotations": notes}, "spec": pod},
	}
	of := maps.Clone(labels)
	if s.QueueName != "" { // Kueue lets it start
		of[queueLabel], spec["suspend"] = s.QueueName, true
	}
	return object{"apiVersion": "batch/v1", "kind": "Job", "metadata": object{"name": name, "labels": of, "annotations": notes}, "spec": spec}, nil
}
