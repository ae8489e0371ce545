package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// imageTime is how long an image may not be had before the task has failed: a registry may be away
// for a while, and Kubernetes would try for ever.
const imageTime = 10 * time.Minute

// lostTime is how long a pod may stay that was to end: then nobody on its node hears.
const lostTime = time.Minute

// lostExit is how a task ended whose node does not end its pod.
func lostExit(j *job, p *pod) *berth.Exit {
	if s := stopOf(j); s != nil {
		return s.exit()
	}
	return &berth.Exit{Code: -1, Cause: "evicted", Reason: "node " + p.Spec.NodeName + " of its pod does not answer"}
}

// exit is how a task ended that was stopped.
func (s *stopped) exit() *berth.Exit {
	e := &berth.Exit{Code: 143, Cause: s.Cause, Reason: s.Why}
	if s.Cause == imageCause {
		e.Code = -1 // it never ran
	}
	return e
}

// imageCause is the cause of a task that ended for want of its image.
const imageCause = "environment"

// look is the states of the tasks of a Job, of which there are several for a gang, by the newest of
// its pods. refusals are the reasons of [client.refusals]. Looking has no effects, see tend.
func (d *Driver) look(j *job, pods map[int]*pod, refusals func() map[string]refused) []driver.Observed {
	if j.size() == 1 {
		o := d.lookAt(j, pods[0], refusals)
		o.Task, o.Handle = berth.TaskID(j.Metadata.Annotations[taskAnnotation]), handle(j.Metadata.Name)
		return []driver.Observed{o}
	}
	return d.lookAtGang(j, pods, refusals)
}

// lookAt is the state of a task by its Job and its pod, nil when there is none.
func (d *Driver) lookAt(j *job, p *pod, refusals func() map[string]refused) driver.Observed {
	o := driver.Observed{State: berth.TaskPlaced}
	if p != nil {
		o.Node = p.Spec.NodeName
	}
	if takenBack(j, p, refusals) != "" {
		o.State = berth.TaskEnding
		return o
	}
	if exit := cmp.Or(d.misjudged(j, p), exitOf(j, p)); exit != nil {
		o.State, o.Exit, o.Final = berth.TaskDone, exit, j.size() == 1 // in a gang, the reason may be another's
		return o
	}
	switch {
	case p == nil:
		o.Why = whyNoPod(j, refusals)
	case p.Metadata.DeletionTimestamp != nil:
		o.State = berth.TaskEnding
		if d.since(p) > lostTime+time.Duration(p.Metadata.DeletionGrace)*time.Second {
			o.State, o.Exit = berth.TaskDone, lostExit(j, p)
		}
	case p.Status.Phase == "Running":
		o.State = berth.TaskRunning
	default:
		o.State, o.Why = pending(j, p)
	}
	return o
}

// pending is the state of a task whose pod does not run yet.
func pending(j *job, p *pod) (berth.TaskState, string) {
	for _, x := range p.Status.Conditions {
		if x.Type == "PodScheduled" && x.Status == "False" {
			return berth.TaskPlaced, x.Message
		}
	}
	why, _ := imageTrouble(p)
	switch {
	case why != "":
		return berth.TaskPlaced, why
	case p.Spec.NodeName == "":
		return berth.TaskPlaced, "Kubernetes has not looked for a node for it yet"
	case j.Metadata.Annotations[tunnelAnnotation] != "":
		return berth.TaskPlaced, "its pod on node " + p.Spec.NodeName + " is being connected to the server through the API server of the cluster"
	}
	return berth.TaskStarting, ""
}

// tend does what the tasks of a Job call for before they are looked at: it notes what their pods
// show, and ends the Job whose place was taken or whose image cannot be had.
func (d *Driver) tend(ctx context.Context, c *client, j *job, pods map[int]*pod, refusals func() map[string]refused) {
	for i := range j.size() {
		p := pods[i]
		if why := takenBack(j, p, refusals); why != "" {
			d.endTaken(ctx, c, j, why)
			return
		}
		if p == nil {
			continue
		}
		d.learn(j, p)
		why, forever := imageTrouble(p)
		waits := why != "" && p.Status.Phase != "Running" && !p.over()
		d.note(p, waits || p.Metadata.DeletionTimestamp != nil)
		if !waits || p.Metadata.DeletionTimestamp != nil || !forever && d.since(p) <= imageTime {
			continue
		}
		if err := c.end(ctx, j.Metadata.Name, stopped{Cause: imageCause, Why: why}, time.Second); err != nil {
			d.log.Warn("a Job without an image was not ended", "job", j.Metadata.Name, "err", err)
		}
	}
}

// note keeps since when a pod is stuck, or that it is not.
func (d *Driver) note(p *pod, stuck bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.stuck[p.Metadata.UID]; !stuck {
		delete(d.stuck, p.Metadata.UID)
	} else if !known {
		d.stuck[p.Metadata.UID] = time.Now()
	}
}

// since is for how long a pod has been seen to be stuck, 0 when it has not.
func (d *Driver) since(p *pod) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at, known := d.stuck[p.Metadata.UID]; known {
		return time.Since(at)
	}
	return 0
}

// imageTrouble says why a container of a pod cannot be made, and whether that is for good; "" when
// nothing is wrong.
func imageTrouble(p *pod) (why string, forever bool) {
	for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		w := s.State.Waiting
		if w == nil {
			continue
		}
		switch w.Reason {
		case "InvalidImageName", "ErrImageNeverPull":
			return "image " + s.Image + " cannot be used: " + said(w), true
		case "ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed":
			return "image " + s.Image + " cannot be pulled: " + said(w), false
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return "its container cannot be made: " + said(w), false
		}
	}
	return "", false
}

func said(w *waiting) string {
	if w.Message == "" {
		return w.Reason
	}
	return w.Message + " (" + w.Reason + ")"
}

// whyNoPod is the reason why a Job has no pod.
func whyNoPod(j *job, refusals func() map[string]refused) string {
	if j.Spec.Suspend {
		if queue := j.Metadata.Labels[queueLabel]; queue != "" {
			if why := refusals()[j.Metadata.UID].why; why != "" {
				return "Kueue has not let it start from queue " + queue + ": " + why
			}
			return "Kueue has not let it start from queue " + queue
		}
		return "its Job is suspended"
	}
	if why := refusals()[j.Metadata.UID].why; why != "" {
		return "Kubernetes cannot make its pod: " + why
	}
	return "Kubernetes has not made its pod yet"
}

func orReason(c condition) string {
	if c.Message != "" {
		return c.Message
	}
	return c.Reason
}

// exitOf is how a task ended, nil while it has not.
func exitOf(j *job, p *pod) *berth.Exit {
	if _, complete := is(j.Status.Conditions, "Complete"); complete || p != nil && p.Status.Phase == "Succeeded" {
		return &berth.Exit{}
	}
	_, suspended := is(j.Status.Conditions, "Suspended")
	stop := stopOf(j)
	switch {
	case p != nil && !p.over():
		return nil // even where the Job has given it up
	case stop != nil && (p != nil || suspended || over(j) || j.Spec.Parallelism != nil && *j.Spec.Parallelism == 0):
		return stop.exit() // Kueue lets start again what asks for nothing
	case p != nil:
		return podExit(p)
	case over(j):
		failed, _ := is(j.Status.Conditions, "Failed")
		if failed.Reason == "BackoffLimitExceeded" || failed.Reason == "PodFailurePolicy" {
			return podDeleted()
		}
		return &berth.Exit{Code: -1, Cause: "lost", Reason: "its Job failed in the cluster: " + orReason(failed)}
	}
	return nil
}

// podDeleted is how a task ended whose pod somebody else deleted. A Job of Kubernetes gets another
// pod then, and so the task may run again.
func podDeleted() *berth.Exit {
	return &berth.Exit{Code: -1, Cause: "evicted", Reason: "its pod was deleted in the cluster"}
}

// podExit is how a task ended whose pod has failed.
func podExit(p *pod) *berth.Exit {
	node := p.Spec.NodeName
	if why := taken(p); why != "" {
		return &berth.Exit{Code: -1, Cause: "evicted", Reason: why}
	}
	if p.Metadata.DeletionTimestamp != nil {
		return podDeleted()
	}
	for _, s := range p.Status.InitContainerStatuses {
		if t := s.State.Terminated; t != nil && t.ExitCode != 0 {
			return &berth.Exit{Code: -1, Cause: "staging", Reason: notBroughtTo(p, strings.TrimPrefix(lastLine(t), notBrought))}
		}
	}
	if why := unbrought(p); why != "" {
		return &berth.Exit{Code: -1, Cause: "staging", Reason: notBroughtTo(p, why)}
	}
	for _, s := range p.Status.ContainerStatuses {
		t := s.State.Terminated
		switch {
		case s.Name != mainName || t == nil:
		case t.Reason == "OOMKilled":
			return &berth.Exit{Code: 137, Signal: "SIGKILL", OOM: true, Reason: "its container on node " + node + " was ended because it ran out of memory"}
		case t.Reason == "ContainerStatusUnknown":
			return &berth.Exit{Code: -1, Cause: "evicted", Reason: "node " + node + " lost its container"}
		case t.ExitCode == berth.ExitRunner:
			return &berth.Exit{Code: -1, Cause: "staging", Reason: "the runner could not work on node " + node + ": " + lastLine(t)}
		case t.Reason == "StartError" || t.Reason == "ContainerCannotRun":
			return &berth.Exit{Code: -1, Cause: "staging", Reason: "its container on node " + node + " could not be started: " + lastLine(t)}
		case t.ExitCode != 0:
			return &berth.Exit{Code: t.ExitCode, Reason: fmt.Sprintf("the command ended with exit code %d", t.ExitCode)}
		}
	}
	return &berth.Exit{Code: -1, Cause: "lost", Reason: strings.TrimSpace("its pod failed: " + p.Status.Reason + " " + p.Status.Message)}
}

// taken is why the cluster took a pod's place away from it, "" when it did not. What a pod brought
// upon itself is not that.
func taken(p *pod) string {
	if strings.Contains(p.Status.Message, "exceeds the") { // its own limit of disk
		return ""
	}
	if c, ok := is(p.Status.Conditions, "DisruptionTarget"); ok {
		return "its pod was taken off node " + p.Spec.NodeName + ": " + orReason(c)
	}
	switch p.Status.Reason {
	case "Evicted", "Preempting", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "NodeAffinity", "OutOfcpu", "OutOfmemory", "OutOfpods", "UnexpectedAdmissionError":
		return strings.TrimSpace("its pod was taken off node " + p.Spec.NodeName + " (" + p.Status.Reason + "): " + p.Status.Message)
	}
	return ""
}

// lastLine is the last thing a container said.
func lastLine(t *terminated) string {
	lines := strings.Split(strings.TrimSpace(t.Message), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return last
	}
	return fmt.Sprintf("%s, exit code %d", t.Reason, t.ExitCode)
}
