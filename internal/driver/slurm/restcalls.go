package slurm

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// What the API of slurmrestd does not have, or not of all versions:
//
//   - Which elements of an array wait is a list that slurmrestd shortens, and how many may run
//     cannot be changed. So each task is a job of its own.
//   - Before v0.0.40 a signal goes to all processes of a job. What asks a task to end must be one
//     that others do not mind.

// askSignal is SIGWINCH, which does nothing to processes that do not wait for it. Slurm knows it by
// its number only, which is that of Linux. A runner takes it for SIGUSR1.
const askSignal = "28"

// submit is [calls.submit].
func (r *rest) submit(ctx context.Context, name string, w work, tasks int) (string, error) {
	if tasks > 1 {
		return "", berth.Errorf(berth.Unsupported, "arrays cannot be submitted to slurmrestd")
	}
	version, err := r.api(ctx)
	if err != nil {
		return "", err
	}
	job, err := r.description(name, w, newer(version))
	if err != nil {
		return "", err
	}
	var out struct {
		restAnswer
		ID amount `json:"job_id"`
	}
	err = r.call(ctx, http.MethodPost, "/job/submit", map[string]any{"script": string(w.script), "job": job}, &out)
	if out.ID.n > 0 { // it may have said that the job will wait
		return strconv.FormatInt(out.ID.n, 10), nil
	}
	if err == nil {
		return "", berth.Errorf(berth.Unavailable, "slurmrestd does not say the number of the job")
	}
	failed, ok := errors.AsType[*commandError](err)
	if !ok || berth.CodeOf(err) == berth.Unavailable {
		return "", err
	}
	for _, word := range slices.Concat(refusals, []string{"failure during parsing"}) {
		if strings.Contains(strings.ToLower(failed.msg), word) {
			return "", berth.Errorf(berth.Invalid, "Slurm refuses the job: %s", failed.msg)
		}
	}
	return "", berth.Errorf(berth.Unavailable, "Slurm does not take the job: %w", err)
}

// description is what a job asks for.
func (r *rest) description(name string, w work, newer bool) (map[string]any, error) {
	s := w.site
	env := map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin", "USER": r.at.User, "LOGNAME": r.at.User}
	job := map[string]any{
		"name": name, "comment": "berth " + w.about, "standard_output": "/dev/null", "standard_error": "/dev/null", "current_working_directory": "/",
		"tasks": w.nodes, "tasks_per_node": 1,
	}
	if newer {
		list := []string{}
		for k, v := range env {
			list = append(list, k+"="+v)
		}
		slices.Sort(list)
		job["environment"], job["minimum_nodes"], job["maximum_nodes"], job["requeue"] = list, w.nodes, w.nodes, false
	} else {
		job["environment"], job["nodes"], job["no_requeue"] = env, strconv.Itoa(w.nodes), true
	}
	number := func(n int64) any {
		if newer {
			return map[string]any{"set": true, "number": n}
		}
		return n
	}
	for _, x := range [][2]string{{"partition", s.Partition}, {"account", s.Account}, {"qos", s.QOS}, {"constraints", s.Constraint}} {
		if x[1] != "" {
			job[x[0]] = x[1]
		}
	}
	if s.limit > 0 {
		job["time_limit"] = number(int64(math.Ceil(s.limit.Minutes())))
	}
	if w.cpus > 0 {
		job["cpus_per_task"] = int(math.Ceil(w.cpus))
	}
	if w.memory > 0 {
		job["memory_per_node"] = number((w.memory + 1<<20 - 1) >> 20)
	}
	options := s.Options
	if w.gpus > 0 {
		options = append([]string{"--gres=gpu:" + strconv.Itoa(w.gpus)}, options...)
	}
	for _, o := range options {
		if err := restOption(job, o, newer); err != nil {
			return nil, err
		}
	}
	return job, nil
}

// restOption adds an option of sbatch to a job.
func restOption(job map[string]any, option string, newer bool) error {
	name, value, _ := strings.Cut(strings.TrimPrefix(option, "--"), "=")
	var v any = value
	field := strings.ReplaceAll(name, "-", "_")
	switch name {
	case "constraint":
		field = "constraints"
	case "cpus-per-task", "nice", "threads-per-core":
		n, err := strconv.Atoi(value)
		if err != nil {
			return berth.Errorf(berth.Invalid, "properties.properties.options: %s must have a number", option)
		}
		v = n
	case "gres":
		if newer {
			field, v = "tres_per_node", "gres/"+strings.ReplaceAll(value, ",", ",gres/")
		}
	case "nodelist":
		if newer {
			field, v = "required_nodes", []string{value}
		}
	case "licenses", "reservation", "wckey":
	default:
		value = ""
	}
	if value == "" {
		return berth.Errorf(berth.Invalid, "properties.properties.options: slurmrestd takes no %s; it takes --constraint, --cpus-per-task, --gres, --licenses, --nice, --nodelist, --reservation, --threads-per-core and --wckey, each with a value", option)
	}
	job[field] = v
	return nil
}

// jobs is [calls.jobs]. slurmrestd lists those of everybody.
func (r *rest) jobs(ctx context.Context) ([]job, error) {
	var out struct {
		restAnswer
		Jobs []restJob `json:"jobs"`
	}
	if err := r.call(ctx, http.MethodGet, "/jobs", nil, &out); err != nil {
		return nil, unavailable(err)
	}
	var all []job
	for _, j := range out.Jobs {
		if j.User == r.at.User && j.ID.set {
			all = append(all, j.job())
		}
	}
	return all, nil
}

// past is [calls.past].
func (r *rest) past(ctx context.Context, number string) (j job, kept bool, err error) {
	version, err := r.api(ctx)
	if err != nil {
		return job{}, false, err
	}
	r.mu.Lock()
	kept = r.kept
	r.mu.Unlock()
	if !kept {
		return job{}, false, nil
	}
	var out struct {
		restAnswer
		Jobs []struct {
			Nodes string   `json:"nodes"`
			Exit  exitCode `json:"exit_code"`
			State struct {
				Current words `json:"current"`
			} `json:"state"`
		} `json:"jobs"`
	}
	err = r.send(ctx, http.MethodGet, "/slurmdb/"+version+"/job/"+url.PathEscape(number), nil, &out)
	if len(out.Jobs) == 0 {
		for _, e := range out.Errors {
			switch e.number() {
			case numNothing:
				return job{}, true, nil
			case numAuth: // the controller takes the token, and slurmdbd was not told to
				return job{}, false, nil
			}
		}
		return job{}, true, unavailable(err)
	}
	x := out.Jobs[len(out.Jobs)-1]
	j = job{number: number, node: x.Nodes, code: int(x.Exit), state: x.State.Current.state()}
	j.unsaid = j.state == "FAILED" && j.code == 0 // as of v0.0.38
	return j, true, nil
}

// ask is [calls.ask].
func (r *rest) ask(ctx context.Context, number string, atOnce bool) error {
	version, err := r.api(ctx)
	if err != nil {
		return err
	}
	q := url.Values{"signal": {askSignal}}
	switch {
	case newer(version) && atOnce:
		q = url.Values{"signal": {"USR2"}, "flags": {"BATCH_JOB"}}
	case newer(version):
		q = url.Values{"signal": {"USR1"}, "flags": {"BATCH_JOB"}}
	case atOnce:
		q.Set("signal", "USR2") // which ends others in the job, too
	}
	return r.end(ctx, number, "?"+q.Encode())
}

// end sends a signal to a job. One that has ended is success.
func (r *rest) end(ctx context.Context, number, query string) error {
	var out restAnswer
	return unlessOver(r.call(ctx, http.MethodDelete, "/job/"+url.PathEscape(number)+query, nil, &out))
}

// cancel is [calls.cancel].
func (r *rest) cancel(ctx context.Context, number string) error { return r.end(ctx, number, "") }

// cancelWaiting is [calls.cancelWaiting]. A job that is held does not begin between the question
// and its end.
func (r *rest) cancelWaiting(ctx context.Context, number string) error {
	path := "/job/" + url.PathEscape(number)
	var held restAnswer
	err := unlessOver(r.call(ctx, http.MethodPost, path, map[string]any{"hold": true}, &held))
	if _, refused := errors.AsType[*commandError](err); err != nil && !refused { // one that runs may be
		return err
	}
	var out struct {
		restAnswer
		Jobs []restJob `json:"jobs"`
	}
	if err := r.call(ctx, http.MethodGet, path, nil, &out); err != nil {
		return unlessOver(err)
	}
	if len(out.Jobs) == 0 || out.Jobs[0].State.state() != "PENDING" {
		return nil
	}
	return r.cancel(ctx, number)
}

// throttle is [calls.throttle], which is for arrays.
func (r *rest) throttle(context.Context, string, int) error {
	return berth.Errorf(berth.Unsupported, "slurmrestd cannot change how many jobs of an array run")
}

// cluster is [calls.cluster].
func (r *rest) cluster(ctx context.Context) (a about, err error) {
	var out struct {
		restAnswer
		Pings []struct {
			Host   string `json:"hostname"`
			Ping   string `json:"ping"`
			Pinged string `json:"pinged"` // since v0.0.40
		} `json:"pings"`
	}
	if err := r.call(ctx, http.MethodGet, "/ping", nil, &out); err != nil {
		return a, unavailable(err)
	}
	down := len(out.Pings) > 0
	for _, p := range out.Pings {
		if !strings.EqualFold(p.Ping+p.Pinged, "DOWN") {
			down = false
		}
	}
	if down {
		return a, berth.Errorf(berth.Unavailable, "slurmrestd says that Slurm's controller is down")
	}
	a = about{name: out.Meta.Slurm.Cluster, version: out.Meta.Slurm.Release, machine: "slurmrestd:" + r.at.Address, maxArray: 1}
	if a.name == "" && len(out.Pings) > 0 {
		a.name = out.Pings[0].Host
	}
	return a, nil
}

// nodes is [calls.nodes].
func (r *rest) nodes(ctx context.Context, partition string) ([]node, error) {
	limits, err := r.limits(ctx)
	if err != nil {
		return nil, err
	}
	list, err := r.nodeList(ctx)
	if err != nil {
		return nil, err
	}
	var all []node
	for _, x := range list {
		if partition != "" && !slices.Contains(x.Partitions, partition) {
			continue
		}
		n := node{CPUs: float64(x.CPUs.n), Memory: x.Memory.n << 20, GPUs: gpus(x.Gres), Longest: limits[partition]}
		for _, s := range slices.Concat(x.State, x.Flags) {
			switch strings.ToUpper(s) {
			case "DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL":
				n.Down = true
			}
		}
		if partition == "" && len(x.Partitions) > 0 {
			n.Longest = limits[x.Partitions[0]]
		}
		all = append(all, n)
	}
	if len(all) == 0 && partition != "" {
		return nil, berth.Errorf(berth.Invalid, "Slurm has no partition %q with nodes", partition)
	}
	return all, nil
}

// limits are the time limits of the partitions that have one.
func (r *rest) limits(ctx context.Context) (map[string]time.Duration, error) {
	var out struct {
		restAnswer
		Partitions []restPartition `json:"partitions"`
	}
	if err := r.call(ctx, http.MethodGet, "/partitions", nil, &out); err != nil {
		return nil, unavailable(err)
	}
	all := map[string]time.Duration{}
	for _, p := range out.Partitions {
		if n := max(p.Limit.n, p.Maximum.Time.n); n > 0 {
			all[p.Name] = time.Duration(n) * time.Minute
		}
	}
	return all, nil
}

func (r *rest) nodeList(ctx context.Context) ([]restNode, error) {
	var out struct {
		restAnswer
		Nodes []restNode `json:"nodes"`
	}
	if err := r.call(ctx, http.MethodGet, "/nodes", nil, &out); err != nil {
		return nil, unavailable(err)
	}
	return out.Nodes, nil
}

// addresses is [calls.addresses].
func (r *rest) addresses(ctx context.Context) (map[string]string, error) {
	list, err := r.nodeList(ctx)
	at := map[string]string{}
	for _, n := range list {
		at[n.Name] = n.Address
	}
	return at, err
}
