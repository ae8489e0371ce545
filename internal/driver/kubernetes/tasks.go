package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// batch is the group of Jobs.
const batch = "batch/v1"

// Start is [driver.Driver.Start]. The cluster refuses a second Job of the same name.
func (d *Driver) Start(ctx context.Context, l berth.Launch) (driver.Handle, error) {
	name, err := d.start(ctx, []berth.Launch{l})
	if err != nil {
		return "", err
	}
	return handle(name), nil
}

// start makes the Job of a task, or of a gang, and returns its name.
func (d *Driver) start(ctx context.Context, all []berth.Launch) (name string, err error) {
	if err := d.dir.Admit(ctx); err != nil {
		return "", err
	}
	c, s, compute, err := d.api()
	if err != nil {
		return "", err
	}
	hash, err := d.c.Program()
	if err != nil {
		return "", berth.Errorf(berth.Unavailable, "the server's program cannot be read: %w", err)
	}
	name = driver.Key(compute, string(all[0].Task))
	all = addressed(all, name)
	s = d.way(s)
	manifest, err := jobOf(s, d.oneContainer(s, all), all, name, compute, hash)
	if err != nil {
		return "", err
	}
	release, err := d.dir.Hold(ctx, name)
	if err != nil {
		return "", err
	}
	defer release()
	if _, err := secretOf(all, name, compute, ""); err != nil {
		return "", err // before anything is made
	}
	made, err := c.makeJob(ctx, manifest, name, compute, all[0].Task)
	if err != nil {
		return "", err
	}
	// The pods wait for the Secret. An earlier attempt that was not answered may have made them.
	uid := made.Metadata.UID
	secret, err := secretOf(all, name, compute, uid)
	if err == nil && len(all) > 1 {
		err = c.do(ctx, http.MethodPost, c.in("", "services", ""), nil, serviceOf(name, compute, uid), nil)
	}
	if err == nil || has(err, http.StatusConflict) {
		err = c.do(ctx, http.MethodPost, c.in("", "secrets", ""), nil, secret, nil)
	}
	if err != nil && !has(err, http.StatusConflict) {
		if berth.CodeOf(err) != berth.Unavailable {
			_ = c.remove(ctx, name) // Observe shows it if that fails
		}
		return "", err
	}
	if s.way() == wayTunnel && d.c.Dial != nil {
		d.expectTunnels(c, name, len(all))
	}
	d.listing.expire()
	return name, nil
}

// makeJob makes a Job, or finds the one that an earlier attempt made.
func (c *client) makeJob(ctx context.Context, manifest object, name, compute string, id berth.TaskID) (made job, err error) {
	err = c.do(ctx, http.MethodPost, c.in(batch, "jobs", ""), nil, manifest, &made)
	if !has(err, http.StatusConflict) {
		return made, err
	}
	if err := c.do(ctx, http.MethodGet, c.in(batch, "jobs", name), nil, nil, &made); err != nil {
		return made, err
	}
	if m := made.Metadata; m.Labels[computeLabel] != compute || m.Annotations[taskAnnotation] != string(id) {
		return made, berth.Errorf(berth.Conflict, "somebody else has made a Job %s in namespace %s; delete it", name, c.namespace)
	}
	return made, nil
}

// handle and nameOf are the two ends of a handle: a version and the name of the Job.
func handle(name string) driver.Handle { return driver.Handle("kubernetes1:" + name) }

// nameOf also returns the index of the task in its gang.
func nameOf(h driver.Handle) (name string, index int, err error) {
	name, ok := strings.CutPrefix(string(h), "kubernetes1:")
	if !ok {
		return "", 0, berth.Errorf(berth.Invalid, "%q is not a handle of the Kubernetes driver", h)
	}
	name, number, indexed := strings.Cut(name, "/")
	if indexed {
		index, err = strconv.Atoi(number)
	}
	if err != nil || index < 0 {
		return "", 0, berth.Errorf(berth.Invalid, "%q is not a handle of the Kubernetes driver", h)
	}
	return name, index, nil
}

// remove deletes a Job with all that belongs to it. Unknown is success.
func (c *client) remove(ctx context.Context, name string) error {
	err := c.do(ctx, http.MethodDelete, c.in(batch, "jobs", name), url.Values{"propagationPolicy": {"Background"}}, nil, nil)
	if has(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// listingAge is how long a listing is good for: nobody likes to be asked all the time.
const listingAge = 250 * time.Millisecond

// listing is what the cluster said last.
type listing struct {
	fetching sync.Mutex
	mu       sync.Mutex
	at       time.Time // when it was asked for
	all      []driver.Observed
}

// expire makes the next question be asked anew.
func (l *listing) expire() {
	l.mu.Lock()
	l.at = time.Time{}
	l.mu.Unlock()
}

func (l *listing) fresh() ([]driver.Observed, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all, time.Since(l.at) < listingAge
}

// Observe is [driver.Driver.Observe].
func (d *Driver) Observe(ctx context.Context) ([]driver.Observed, error) {
	if err := d.dir.Admit(ctx); err != nil {
		return nil, err
	}
	c, s, compute, err := d.api()
	if err != nil {
		return nil, err
	}
	l := &d.listing
	l.fetching.Lock()
	defer l.fetching.Unlock()
	if all, ok := l.fresh(); ok {
		return all, nil
	}
	at := time.Now()
	jobs, pods, err := c.tasks(ctx, "", computeLabel+"="+compute)
	if err != nil {
		return nil, err
	}
	for i := range jobs {
		// A pod that was made and ended between the two lists is not in the first.
		if name := jobs[i].Metadata.Name; len(pods[name]) < jobs[i].size() && over(&jobs[i]) {
			_, again, err := c.tasks(ctx, "metadata.name="+name, "batch.kubernetes.io/job-name="+name)
			if err != nil {
				return nil, err
			}
			pods[name] = again[name]
		}
	}
	refusals := sync.OnceValue(func() map[string]refused { return c.refusals(ctx, s.QueueName) })
	all := make([]driver.Observed, 0, len(jobs))
	for i := range jobs {
		j, of := &jobs[i], pods[jobs[i].Metadata.Name]
		d.tend(ctx, c, j, of, refusals)
		all = append(all, d.look(j, of, refusals)...)
	}
	d.forget(pods)
	d.keepTunnels(c, s, jobs, pods)
	l.mu.Lock()
	l.at, l.all = at, all
	l.mu.Unlock()
	return all, nil
}

// tasks lists Jobs, either one by its field or all with the labels, and the newest pods with the
// labels by the name of the Job and their index. The pods are asked for first, so that the end of a
// Job is never seen without the end of its pod.
func (c *client) tasks(ctx context.Context, field, labels string) ([]job, map[string]map[int]*pod, error) {
	pods, err := list[pod](ctx, c, c.in("", "pods", ""), labels, "")
	if err != nil {
		return nil, nil, err
	}
	if field != "" {
		labels = ""
	}
	jobs, err := list[job](ctx, c, c.in(batch, "jobs", ""), labels, field)
	if err != nil {
		return nil, nil, err
	}
	of := map[string]map[int]*pod{}
	for i := range pods {
		p := &pods[i]
		name := cmp.Or(p.Metadata.Labels["batch.kubernetes.io/job-name"], p.Metadata.Labels["job-name"])
		if of[name] == nil {
			of[name] = map[int]*pod{}
		}
		if was := of[name][p.index()]; was == nil || was.Metadata.CreationTimestamp.Before(p.Metadata.CreationTimestamp) {
			of[name][p.index()] = p
		}
	}
	return jobs, of, nil
}

// forget drops what is known of pods that are gone.
func (d *Driver) forget(pods map[string]map[int]*pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.stuck) == 0 {
		return
	}
	there := map[string]bool{}
	for _, of := range pods {
		for _, p := range of {
			there[p.Metadata.UID] = true
		}
	}
	maps.DeleteFunc(d.stuck, func(uid string, _ time.Time) bool { return !there[uid] })
}

// refused is why a Job has no pods.
type refused struct {
	why     string
	evicted bool // it had them, and Kueue took their place back
}

// refusals are the reasons why Jobs could not have their pods, by the Job's uid. They are hints: an
// account that may not read them goes without.
func (c *client) refusals(ctx context.Context, queue string) map[string]refused {
	out := map[string]refused{}
	if queue != "" {
		all, _ := c.workloads(ctx)
		for _, w := range all {
			if why := w.evicted(); why != "" {
				out[w.job()] = refused{why: why, evicted: true}
			} else if why := w.waits(); why != "" {
				out[w.job()] = refused{why: why}
			}
		}
	}
	events, err := list[event](ctx, c, c.in("", "events", ""), "", "involvedObject.kind=Job,reason=FailedCreate")
	if err != nil {
		return out
	}
	slices.SortStableFunc(events, func(a, b event) int { return a.LastTimestamp.Compare(b.LastTimestamp) })
	for _, e := range events {
		out[e.InvolvedObject.UID] = refused{why: e.Message, evicted: out[e.InvolvedObject.UID].evicted}
	}
	return out
}

// stopped is why a Job is ended, as it is kept in its annotation.
type stopped struct {
	Cause string `json:"cause"`
	Why   string `json:"why"`
}

func stopOf(j *job) *stopped {
	text, ok := j.Metadata.Annotations[stopAnnotation]
	if !ok {
		return nil
	}
	s := &stopped{Cause: "canceled", Why: "it was asked to stop"}
	_ = json.Unmarshal([]byte(text), s) // what cannot be read was a cancellation as any
	return s
}

// Stop is [driver.Driver.Stop]. The reason is written down first: whatever becomes of the pod, it
// ended because of that.
func (d *Driver) Stop(ctx context.Context, h driver.Handle, s driver.Stop) error {
	name, _, err := nameOf(h) // a gang is stopped as a whole
	if err == nil {
		err = d.dir.Admit(ctx)
	}
	if err != nil {
		return err
	}
	c, _, _, err := d.api()
	if err != nil {
		return err
	}
	err = c.end(ctx, name, stopped{Cause: cmp.Or(s.Cause, "canceled"), Why: cmp.Or(s.Why, "it was asked to stop")}, s.Grace)
	d.listing.expire()
	return err
}

// finished says whether the pods that a query finds have all ended by themselves.
func (c *client) finished(ctx context.Context, query url.Values) (bool, error) {
	var list struct {
		Items []pod `json:"items"`
	}
	if err := c.do(ctx, http.MethodGet, c.in("", "pods", ""), query, nil, &list); err != nil {
		return false, err
	}
	for _, p := range list.Items {
		if p.Status.Phase != "Succeeded" && p.Status.Phase != "Failed" {
			return false, nil
		}
	}
	return len(list.Items) > 0, nil
}

// end ends the pods of a Job and lets it have no more; the Job itself stays. After the grace there
// is time to keep outputs. A grace of 0 is that of the pod.
func (c *client) end(ctx context.Context, name string, s stopped, grace time.Duration) error {
	note, err := json.Marshal(s)
	if err != nil {
		return err
	}
	var j job
	err = c.do(ctx, http.MethodGet, c.in(batch, "jobs", name), nil, nil, &j)
	if has(err, http.StatusNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if over(&j) {
		return nil
	}
	query := url.Values{"labelSelector": {"batch.kubernetes.io/job-name=" + name}}
	if done, err := c.finished(ctx, query); err != nil || done {
		return err // how it ended is known, although its Job does not say so yet
	}
	if stopOf(&j) == nil {
		patch := object{"metadata": object{"annotations": object{stopAnnotation: string(note)}}}
		if err := c.do(ctx, http.MethodPatch, c.in(batch, "jobs", name), nil, patch, nil); err != nil {
			return gone(err)
		}
	}
	if grace > 0 {
		query.Set("gracePeriodSeconds", strconv.FormatInt(seconds(grace+uploadTime), 10))
	}
	if err := c.do(ctx, http.MethodDelete, c.in("", "pods", ""), query, nil, nil); err != nil {
		return err
	}
	patch := object{"spec": object{"suspend": true, "parallelism": 0}}
	return gone(c.do(ctx, http.MethodPatch, c.in(batch, "jobs", name), nil, patch, nil))
}

// gone takes what is not there for success.
func gone(err error) error {
	if has(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// over says whether a Job has ended.
func over(j *job) bool {
	_, complete := is(j.Status.Conditions, "Complete")
	_, failed := is(j.Status.Conditions, "Failed")
	return complete || failed
}

// Remove is [driver.Driver.Remove].
func (d *Driver) Remove(ctx context.Context, h driver.Handle) error {
	name, index, err := nameOf(h)
	if err == nil {
		err = d.dir.Admit(ctx)
	}
	if err != nil {
		return err
	}
	c, _, _, err := d.api()
	if err != nil {
		return err
	}
	jobs, pods, err := c.tasks(ctx, "metadata.name="+name, "batch.kubernetes.io/job-name="+name)
	if err != nil || len(jobs) == 0 {
		return err
	}
	j := &jobs[0]
	for _, o := range d.look(j, pods[name], func() map[string]refused { return nil }) {
		if o.State != berth.TaskDone {
			return berth.Errorf(berth.Conflict, "task %s is not over: stop it first", o.Task)
		}
	}
	if last, err := c.removeOne(ctx, j, index); err != nil || !last {
		d.listing.expire()
		return err
	}
	err = c.remove(ctx, name)
	d.listing.expire()
	return err
}
