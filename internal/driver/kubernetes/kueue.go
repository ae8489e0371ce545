package kubernetes

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
)

// Kueue lets Jobs of a queue start by their `suspend`, and says why not in a workload beside each.

const (
	kueueGroup = "kueue.x-k8s.io"
	queueLabel = kueueGroup + "/queue-name"
)

// workload is what Kueue makes of a Job.
type workload struct {
	Metadata struct {
		Labels          map[string]string
		OwnerReferences []struct{ Kind, UID string }
	} `json:"metadata"`
	Status struct {
		Conditions []condition `json:"conditions"`
	} `json:"status"`
}

// job is the uid of the workload's Job.
func (w *workload) job() string {
	for _, o := range w.Metadata.OwnerReferences {
		if o.Kind == "Job" {
			return o.UID
		}
	}
	return w.Metadata.Labels[kueueGroup+"/job-uid"]
}

// waits is why a workload has not been admitted.
func (w *workload) waits() string {
	for _, x := range w.Status.Conditions {
		if (x.Type == "QuotaReserved" || x.Type == "Admitted") && x.Status == "False" && x.Message != "" {
			return x.Message
		}
	}
	return ""
}

// evicted is why Kueue took a place back that it had given, "" while it has not, or the pods may
// never have begun.
func (w *workload) evicted() string {
	x, ok := is(w.Status.Conditions, "Evicted")
	if ok && slices.Contains([]string{"Preempted", "ClusterQueueStopped", "LocalQueueStopped"}, x.Reason) {
		return orReason(x)
	}
	return ""
}

// workloads are those of Kueue, in the version that the cluster prefers. They are hints: an account
// that may not read them goes without.
func (c *client) workloads(ctx context.Context) ([]workload, error) {
	c.mu.Lock()
	version := c.kueue
	c.mu.Unlock()
	if version != "" {
		all, err := list[workload](ctx, c, c.in(version, "workloads", ""), "", "")
		if !has(err, http.StatusNotFound) {
			return all, err
		}
	}
	version, err := c.prefers(ctx, kueueGroup)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.kueue = version
	c.mu.Unlock()
	return list[workload](ctx, c, c.in(version, "workloads", ""), "", "")
}

// prefers is the version of a group that a cluster prefers, with the group.
func (c *client) prefers(ctx context.Context, group string) (string, error) {
	var v struct {
		PreferredVersion struct{ GroupVersion string }
	}
	if err := c.do(ctx, http.MethodGet, "/apis/"+group, nil, nil, &v); err != nil {
		return "", err
	}
	if v.PreferredVersion.GroupVersion == "" {
		return "", &statusError{code: http.StatusNotFound}
	}
	return v.PreferredVersion.GroupVersion, nil
}

// takenBack is why a task has lost its place to Kueue, "" when it has not, or its Job has ended.
func takenBack(j *job, p *pod, refusals func() map[string]refused) string {
	queue := j.Metadata.Labels[queueLabel]
	if queue == "" || !j.Spec.Suspend || over(j) || stopOf(j) != nil {
		return ""
	}
	if p != nil && (p.Status.Phase != "Failed" || p.Metadata.DeletionTimestamp == nil) {
		return "" // it has not ended, or by itself
	}
	r := refusals()[j.Metadata.UID]
	if p == nil && !r.evicted {
		return ""
	}
	why := "Kueue took its place in queue " + queue + " back"
	if r.evicted {
		why += ": " + r.why
	}
	return why
}

// endTaken ends a Job whose place Kueue has taken: Kueue would start it again, and the command
// would run twice as one task. So this one was evicted, and another attempt gets in line. The next
// look tells how it went.
func (d *Driver) endTaken(ctx context.Context, c *client, j *job, why string) {
	note, err := json.Marshal(stopped{Cause: "evicted", Why: why})
	if err == nil {
		notes := object{stopAnnotation: string(note)}
		err = c.do(ctx, http.MethodPatch, c.in(batch, "jobs", j.Metadata.Name), nil, object{
			"metadata": object{"annotations": notes, "resourceVersion": j.Metadata.ResourceVersion}, // or it has started again
			"spec":     object{"parallelism": 0},
		}, nil)
	}
	if err != nil && !has(err, http.StatusConflict) {
		d.log.Warn("a Job that Kueue sent back was not ended", "job", j.Metadata.Name, "err", err)
	}
}
