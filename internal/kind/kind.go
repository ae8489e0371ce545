// Package kind says what each kind of job does next: pure functions from a job and its tasks to a step.
package kind

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// Job is what a kind sees of a job.
type Job struct {
	Name string
	// Key begins the ids of the job's tasks. It is the name with a mark that a later job of the same name does not have.
	Key    string
	Status berth.JobStatus
	State  berth.JobState
	Props  json.RawMessage
	// Children are the jobs that run its steps, by the names of the steps.
	Children map[string]Child
}

// Child is what a kind sees of a job that runs a step of another.
type Child struct {
	Status berth.JobStatus
	Reason string
	Cancel bool // it was asked to end
	Ended  time.Time
}

// Step is what should be made true now. It is the same for the same job and tasks, so a step that was computed and lost is
// computed again.
type Step struct {
	Start  []berth.Task // tasks to create; ID, Attempt and Compute are set
	Stop   []berth.TaskID
	Begin  []string // steps whose jobs are to be created
	Cancel []string // steps whose jobs are to be asked to end
	Status berth.JobStatus
	State  berth.JobState
}

// A Kind is one kind of job.
type Kind interface {
	// Validate says whether the job's properties can run at all.
	Validate(props json.RawMessage) error
	// Step is pure and idempotent.
	Step(j Job, tasks []*berth.Task) Step
}

// kinds is every kind this server can run.
var kinds = map[string]Kind{
	"command":  command{},
	"pipeline": pipeline{},
}

// Of is the kind of a jobType. A type that Azure has and this server cannot run yet is an error that says so.
func Of(jobType string) (Kind, error) {
	if k, ok := kinds[strings.ToLower(jobType)]; ok {
		return k, nil
	}
	if jobType == "" {
		return nil, berth.Errorf(berth.Invalid, "properties.jobType is missing; this server runs Command and Pipeline jobs")
	}
	return nil, berth.Errorf(berth.Unsupported, "jobs of type %s cannot run on this server yet; it runs Command and Pipeline jobs", jobType)
}
