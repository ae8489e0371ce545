package kubernetes

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// Labels and annotations of what the driver makes.
const (
	computeLabel   = "berth/compute"
	taskAnnotation = "berth/task"
	stopAnnotation = "berth/stop"
)

// Names in a pod.
const (
	initName  = "berth-runner"
	mainName  = "task"
	workDir   = "/berth"
	launchDir = "/berth-launch"
	launchKey = "launch.json"
)

// ProgramPath is where the server gives out its program, by the hash of it.
const ProgramPath = "/runner/v1/programs/"

// maxLaunch is how long a launch may be: a Secret holds 1 MiB.
const maxLaunch = 1000 << 10

// uploadTime is what a task has, after its grace, to keep what its command left.
const uploadTime = 30 * time.Second

type object = map[string]any

// runTask is the command of a task.
var runTask = []string{workDir + "/program", "_task", "--dir", workDir + "/task", "--container"}

// jobOf is the Job of a task, or of a gang. compute is the value of its label, and hash that of the
// program. With oneContainer, its pod has one container, which brings the program itself.
func jobOf(s site, oneContainer bool, all []berth.Launch, name, compute, hash string) (object, error) {
	l := all[0]
	t, err := s.instanceType(l.InstanceType)
	if err != nil {
		return nil, err
	}
	image := cmp.Or(l.Environment.Image, s.Image)
	switch {
	case l.Environment.Build != "":
		return nil, berth.Errorf(berth.Unsupported, "images are not built on Kubernetes computes; push the image to a registry and name it in the environment")
	case image == "":
		return nil, berth.Errorf(berth.Invalid, "the job's environment names no image and neither does the compute: name one in the environment, or set image in the properties of the compute")
	case len(l.DockerArgs) > 0:
		return nil, berth.Errorf(berth.Unsupported, "docker_args cannot be used on a Kubernetes compute")
	}
	if oneContainer {
		s.Tunnel = "never" // there is nobody to bring it to
	}
	pod, err := podOf(s, t, l, podPlan{image: image, secret: name, hash: hash, command: runTask, oneContainer: oneContainer})
	if err != nil {
		return nil, err
	}
	labels, notes := object{computeLabel: compute, "app.kubernetes.io/managed-by": "berth"}, object{taskAnnotation: string(l.Task)}
	spec := object{
		"backoffLimit": 0, "completions": 1, "parallelism": 1, "podReplacementPolicy": "Failed",
		"template": object{"metadata": object{"labels": labels, "annotations": notes}, "spec": pod},
	}
	if len(all) > 1 {
		if err := gangSpec(all, name, spec, pod, notes); err != nil {
			return nil, err
		}
	}
	if s.way() == wayTunnel {
		notes[tunnelAnnotation] = "yes"
	}
	of := maps.Clone(labels)
	if s.QueueName != "" { // Kueue lets it start
		of[queueLabel], spec["suspend"] = s.QueueName, true
	}
	return object{"apiVersion": "batch/v1", "kind": "Job", "metadata": object{"name": name, "labels": of, "annotations": notes}, "spec": spec}, nil
}

// podPlan is what a pod is for.
type podPlan struct {
	image        string
	secret       string // with the launch
	hash         string // of the program
	command      []string
	args         []string // more of initScript's
	oneContainer bool     // it brings the program, and its command is runTask
}

// podOf is what the pod of a task is made from. Its processes have no account of the cluster unless
// the compute names one.
func podOf(s site, t instanceType, l berth.Launch, plan podPlan) (object, error) {
	shm, err := shmSize(l.ShmSize)
	if err != nil {
		return nil, err
	}
	selector := object{"kubernetes.io/os": "linux", "kubernetes.io/arch": runtime.GOARCH} // as the program is
	for k, v := range t.NodeSelector {
		selector[k] = string(v)
	}
	task, before := containersOf(s, t, l, plan)
	secret := object{"secretName": plan.secret, "defaultMode": 0o444}
	if plan.oneContainer {
		secret["items"] = []object{{"key": readyKey, "path": "." + readyKey}}
	}
	pod := object{
		"restartPolicy": "Never", "enableServiceLinks": false, "automountServiceAccountToken": s.ServiceAccount != "",
		"terminationGracePeriodSeconds": seconds(l.Grace + uploadTime), "nodeSelector": selector, "containers": []object{task},
		"volumes": []object{
			{"name": "work", "emptyDir": object{}},
			{"name": "shm", "emptyDir": object{"medium": "Memory", "sizeLimit": shm}},
			{"name": "launch", "secret": secret},
		},
	}
	if before != nil {
		pod["initContainers"] = before
	}
	if s.ServiceAccount != "" {
		pod["serviceAccountName"] = s.ServiceAccount
	}
	if s.PriorityClass != "" {
		pod["priorityClassName"] = s.PriorityClass
	}
	if len(s.Tolerations) > 0 {
		pod["tolerations"] = s.Tolerations
	}
	var pull []object
	for _, name := range s.ImagePullSecrets {
		pull = append(pull, object{"name": name})
	}
	if pull != nil {
		pod["imagePullSecrets"] = pull
	}
	return pod, nil
}

// containersOf are the container of a task, and the init container before it where there is one.
func containersOf(s site, t instanceType, l berth.Launch, plan podPlan) (task object, before []object) {
	work, memory := object{"name": "work", "mountPath": workDir}, object{"name": "shm", "mountPath": "/dev/shm"}
	launch := object{"name": "launch", "mountPath": launchDir, "readOnly": true}
	args := append([]string{"berth", strings.TrimSuffix(l.Home.URL, "/") + ProgramPath + plan.hash, plan.hash, s.way(), l.Home.CA}, plan.args...)
	var env []object
	if l.Serves { // the secret of the replica is asked for of everybody who connects
		env = append(env, object{"name": "BERTH_BIND", "value": "0.0.0.0"})
	}
	task = object{"name": mainName, "image": plan.image, "command": plan.command, "volumeMounts": []object{work, memory}}
	if plan.oneContainer {
		from := object{"secretKeyRef": object{"name": plan.secret, "key": launchKey + ".0"}}
		env = append(env, object{"name": launchVariable, "valueFrom": from})
		task["command"] = append([]string{"/bin/sh", "-c", oneScript}, args...)
		// The Secret is made after the Job. For a volume the kubelet waits, but where a variable is
		// missing it comes back after a quarter of a minute.
		task["volumeMounts"] = []object{work, memory, launch}
	} else {
		before = []object{{
			"name": initName, "image": cmp.Or(s.RunnerImage, plan.image),
			"command": append([]string{"/bin/sh", "-c", initScript}, args...), "volumeMounts": []object{work, launch},
		}}
	}
	if env != nil {
		task["env"] = env
	}
	for _, c := range append(before, task) {
		c["terminationMessagePolicy"] = "FallbackToLogsOnError"
		c["resources"] = resources(t, l)
		if s.ImagePullPolicy != "" {
			c["imagePullPolicy"] = s.ImagePullPolicy
		}
	}
	return task, before
}

// resources are what a container of the task is given.
func resources(t instanceType, l berth.Launch) object {
	requests, limits := object{}, object{}
	for k, v := range t.Resources.Requests {
		requests[k] = string(v)
	}
	for k, v := range t.Resources.Limits {
		limits[k] = string(v)
	}
	if l.CPUs > 0 {
		limits["cpu"] = strconv.Itoa(int(math.Ceil(l.CPUs*1000))) + "m"
	}
	if l.Memory > 0 {
		limits["memory"] = strconv.FormatInt(l.Memory, 10)
	}
	if l.GPUCount > 0 {
		limits["nvidia.com/gpu"] = strconv.Itoa(l.GPUCount)
	}
	return object{"requests": requests, "limits": limits}
}

// secretOf is the Secret with the launches of a Job, by their index. The cluster deletes it with
// its owner.
func secretOf(all []berth.Launch, name, compute, uid string) (object, error) {
	data, size := object{readyKey: ""}, 0
	for i, l := range all {
		b, err := launchText(l)
		if err != nil {
			return nil, err
		}
		data[launchKey+"."+strconv.Itoa(i)], size = b, size+len(b)
	}
	if size > maxLaunch {
		return nil, berth.Errorf(berth.Invalid, "the job has %d bytes of settings, and a Secret of Kubernetes holds %d", size, maxLaunch)
	}
	return object{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true,
		"metadata": owned(name, compute, uid), "data": data,
	}, nil
}

// launchText is a launch as its pod gets it.
func launchText(l berth.Launch) ([]byte, error) {
	// The container is the image: nothing of it is left to prepare but packages.
	l.Environment.Image = ""
	return json.Marshal(l)
}

// owned is the metadata of what the cluster deletes with a Job.
func owned(name, compute, uid string) object {
	return object{
		"name": name, "labels": object{computeLabel: compute, "app.kubernetes.io/managed-by": "berth"},
		"ownerReferences": []object{{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}},
	}
}

// seconds is a time in whole seconds, at least one: none would be killing at once.
func seconds(d time.Duration) int64 { return max(1, int64(math.Ceil(d.Seconds()))) }

var dockerSize = pattern(`^([0-9]+)([bkmg]?)$`)

// shmSize is the size of shared memory as Kubernetes writes it. Azure's default is 2g.
func shmSize(s string) (string, error) {
	m := dockerSize().FindStringSubmatch(strings.ToLower(cmp.Or(s, "2g")))
	if m == nil {
		return "", berth.Errorf(berth.Invalid, "resources.shmSize %q must be a size such as 2g", s)
	}
	return m[1] + map[string]string{"k": "Ki", "m": "Mi", "g": "Gi"}[m[2]], nil
}
