// Package kubernetes is the driver for a namespace of a Kubernetes cluster.
//
// A task is a Job (batch/v1) with one pod. An init container brings the server's program into the
// pod, and the container itself, of any image, becomes a runner for this one task (package
// runner/alone), which reaches the server at its address. The launch is in a Secret that the Job
// owns.
//
// The Job is all there is to know of a task: its name is the key of the task, so that it cannot be
// made twice, and its annotations have the task's id and why it was stopped. It stays until Remove.
package kubernetes
