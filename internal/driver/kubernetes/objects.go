package kubernetes

import "time"

// The parts of Kubernetes' objects that the driver reads.

type meta struct {
	Name              string            `json:"name"`
	UID               string            `json:"uid"`
	ResourceVersion   string            `json:"resourceVersion"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	DeletionTimestamp *time.Time        `json:"deletionTimestamp"`
	DeletionGrace     int64             `json:"deletionGracePeriodSeconds"`
	CreationTimestamp time.Time         `json:"creationTimestamp"`
}

type condition struct {
	Type, Status, Reason, Message string
}

// is finds a condition that holds.
func is(all []condition, name string) (condition, bool) {
	for _, c := range all {
		if c.Type == name && c.Status == "True" {
			return c, true
		}
	}
	return condition{}, false
}

type job struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		Suspend     bool `json:"suspend"`
		Completions int  `json:"completions"`
		Parallelism *int `json:"parallelism"`
	} `json:"spec"`
	Status struct {
		Conditions  []condition `json:"conditions"`
		Active      int         `json:"active"`
		Failed      int         `json:"failed"`
		Terminating int         `json:"terminating"`
	} `json:"status"`
}

type pod struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		NodeName   string `json:"nodeName"`
		Containers []struct {
			Name  string `json:"name"`
			Image string `json:"image"`
		} `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase                 string            `json:"phase"`
		PodIP                 string            `json:"podIP"`
		Reason                string            `json:"reason"`
		Message               string            `json:"message"`
		Conditions            []condition       `json:"conditions"`
		InitContainerStatuses []containerStatus `json:"initContainerStatuses"`
		ContainerStatuses     []containerStatus `json:"containerStatuses"`
	} `json:"status"`
}

type containerStatus struct {
	Name  string `json:"name"`
	Image string `json:"image"`
	State struct {
		Waiting    *waiting    `json:"waiting"`
		Running    *struct{}   `json:"running"`
		Terminated *terminated `json:"terminated"`
	} `json:"state"`
}

type waiting struct{ Reason, Message string }

type terminated struct {
	ExitCode int    `json:"exitCode"`
	Reason   string `json:"reason"`
	Message  string `json:"message"`
}

// over says whether all containers of a pod have ended.
func (p *pod) over() bool { return p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" }

type event struct {
	InvolvedObject struct{ UID string } `json:"involvedObject"`
	Reason         string               `json:"reason"`
	Message        string               `json:"message"`
	LastTimestamp  time.Time            `json:"lastTimestamp"`
}

type node struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		Unschedulable bool `json:"unschedulable"`
	} `json:"spec"`
	Status struct {
		Allocatable map[string]string `json:"allocatable"`
		Conditions  []condition       `json:"conditions"`
	} `json:"status"`
}
