// Package kind says what each kind of job does next: pure functions from a job and its tasks to a
// step.
package kind

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// Job is what a kind sees of a job.
type Job struct {
	Name string
	// Key begins the ids of the job's tasks. It is the name with a mark that a later job of the
	// same name does not have.
	Key    string
	Status berth.JobStatus
	State  berth.JobState
	Props  json.RawMessage
	// Children are those of its jobs that were created, by name; see Composite.
	Children map[string]Child
	// Work is how far its mini-batches are, of a job of a Puller that has begun.
	Work *berth.Work
}

// Child is what a kind sees of a child of a job.
type Child struct {
	Status berth.JobStatus
	Reason string
	Cancel bool // it was asked to end
	Ended  time.Time
}

// Step is what should be made true now. It is the same for the same job and tasks, so a step that
// was computed and lost is computed again.
type Step struct {
	Start  []berth.Task // tasks to create; ID, Attempt and Compute are set
	Stop   []berth.TaskID
	Begin  []string // children whose jobs are to be created
	Cancel []string // children whose jobs are to be asked to end
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
	"parallel": parallel{},
	"pipeline": pipeline{},
}

// Of is the kind of a jobType. A type that Azure has and this server cannot run yet is an error
// that says so.
func Of(jobType string) (Kind, error) {
	if k, ok := kinds[strings.ToLower(jobType)]; ok {
		return k, nil
	}
	if jobType == "" {
		return nil, berth.Errorf(berth.Invalid, "properties.jobType is missing; this server runs %s jobs", known())
	}
	return nil, berth.Errorf(berth.Unsupported, "jobs of type %s cannot run on this server yet; it runs %s jobs", jobType, known())
}

// known are the types of the table, for messages.
func known() string {
	words := Words()
	for i, w := range words {
		words[i] = wireName(w)
	}
	return joined(words, " and ")
}

// Words are the types of the table in lower case, as YAML has them.
func Words() []string { return slices.Sorted(maps.Keys(kinds)) }

// wireName is a type as documents have it.
func wireName(word string) string { return strings.ToUpper(word[:1]) + strings.ToLower(word[1:]) }

// joined is a list in a sentence, with a word before the last.
func joined(words []string, before string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + before + words[last]
}
