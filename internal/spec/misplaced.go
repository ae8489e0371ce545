package spec

import (
	"fmt"
	"slices"
	"strings"
)

// misplaced is what is wrong with a file as a whole, which comes before all that is wrong in it: it
// is not a job, or of a type that the server does not run, whatever else is mended.
func misplaced(v *value, o Options) (Error, bool) {
	e := Error{File: o.File}
	if schema := v.get("$schema"); schema != nil || v.get("create_job") != nil || v.get("create_monitor") != nil {
		switch word := guess(v); word {
		case "job", "workspace", "code":
		case "schedule", "registry", "feature_store", "capability_host":
			e.Msg = fmt.Sprintf("this is a %s, not a job; this server has none of these yet", strings.ReplaceAll(word, "_", " "))
			return e.at(or(schema, v)), true
		default:
			noun := strings.ReplaceAll(word, "_", "-")
			e.Msg = fmt.Sprintf("this is a file of kind %s, as its $schema says, not a job: `berth %s create -f %s` creates it", noun, noun, o.File)
			return e.at(or(schema, v)), true
		}
	}
	if len(o.JobTypes) == 0 {
		return e, false
	}
	if word := strings.ToLower(v.textOf("type")); notRun(word, o) {
		e.Field, e.Msg = "type", "jobs of type "+word+" cannot run on this server yet; it runs "+strings.Join(o.JobTypes, ", ")
		return e.at(v.get("type")), true
	}
	for _, p := range v.get("jobs").entries() {
		word := strings.ToLower(p.val.textOf("type"))
		if word == "" && p.val.has("trial") {
			word = "sweep"
		}
		if notRun(word, o) {
			e.Field, e.Msg = "jobs."+p.key+".type", "steps of type "+word+" cannot run on this server yet; it runs "+strings.Join(o.JobTypes, ", ")
			return e.at(or(p.val.get("type"), p.val)), true
		}
	}
	return e, false
}

// notRun reports whether a word is a type of jobs, and none that the server runs.
func notRun(word string, o Options) bool {
	_, job := jobTypes.get()[word]
	return (job || slices.Contains(nodeTypes, word)) && !slices.Contains(o.JobTypes, word)
}

// at is the error with a place.
func (e Error) at(v *value) Error {
	e.Line, e.Col = v.line, v.col
	return e
}
