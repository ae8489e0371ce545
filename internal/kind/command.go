package kind

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/berthml/berth"
)

// command runs one command, on one node or on several together.
type command struct{}

func (command) Validate(props json.RawMessage) error {
	var c berth.CommandJob
	if err := json.Unmarshal(props, &c); err != nil {
		return berth.Errorf(berth.Invalid, "properties: %s", jsonReason(err))
	}
	if strings.TrimSpace(c.Command) == "" {
		return berth.Errorf(berth.Invalid, "properties.command is required: the command to run")
	}
	if strings.ContainsRune(c.Command, 0) {
		return berth.Errorf(berth.Invalid, "properties.command contains a NUL byte")
	}
	if _, err := berth.ParseDuration(c.Limits.Timeout); err != nil {
		return berth.Errorf(berth.Invalid, "properties.limits.timeout: %w", err)
	}
	if err := validateNodes(props); err != nil {
		return err
	}
	for name, in := range c.Inputs {
		if !in.Literal() && in.URI == "" {
			return berth.Errorf(berth.Invalid, "properties.inputs.%s has no uri", name)
		}
	}
	bound := func(where, name string) error {
		var ok bool
		switch where {
		case "inputs":
			_, ok = c.Inputs[name]
		case "outputs":
			_, ok = c.Outputs[name]
		default:
			return berth.Errorf(berth.Invalid, "${{%s.%s}}: a command can refer only to inputs and outputs", where, name)
		}
		if !ok {
			return berth.Errorf(berth.Invalid, "${{%s.%s}} is not an %s of the job", where, name, strings.TrimSuffix(where, "s"))
		}
		return nil
	}
	if err := berth.Bindings(c.Command, bound); err != nil {
		return berth.Errorf(berth.Invalid, "properties.command: %w", err)
	}
	for k, v := range c.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(string(v), 0) {
			return berth.Errorf(berth.Invalid, "properties.environmentVariables: %q cannot be an environment variable", k)
		}
		if err := berth.Bindings(string(v), bound); err != nil {
			return berth.Errorf(berth.Invalid, "properties.environmentVariables.%s: %w", k, err)
		}
	}
	return nil
}

// Step of a command job: an attempt is a gang of tasks that are placed, and end, together. One that
// fails ends the others. An attempt whose node was taken away is followed by another one; nothing
// else is ever tried again.
func (command) Step(j Job, tasks []*berth.Task) Step {
	s := Step{Status: j.Status, State: j.State}
	if j.Status.Terminal() {
		return s
	}
	g, attempt := lastAttempt(tasks)
	if len(g) == 0 {
		if j.State.Cancel {
			s.Status, s.State.Reason = berth.Canceled, "canceled before it was scheduled"
			s.stopped()
			return s
		}
		s.Start, s.Status = attemptOf(j, 1), berth.Queued
		return s
	}
	s.State.Attempt = 0
	if attempt > 1 {
		s.State.Attempt = attempt
	}
	s.State.Times, s.State.Usage, s.State.Services = g.times(), g.usage(), g[0].Services
	s.State.Times.Submitted = j.State.Times.Submitted
	s.State.Exit = nil
	evicted := g.evicted()
	if j.State.Cancel || evicted != nil || slices.ContainsFunc(g, broken) {
		s.Stop = g.toStop(j.State.Cancel)
	}
	switch {
	case !g.all(func(t *berth.Task) bool { return t.State == berth.TaskDone }):
		s.Status, s.State.Reason = g.status(tasks, attempt)
		if j.State.Cancel {
			s.Status = berth.CancelRequested
		}
	case evicted != nil && !j.State.Cancel:
		s.Start, s.Status = attemptOf(j, attempt+1), berth.Queued
		s.State.Attempt = attempt + 1
		s.State.Times = berth.Waterfall{Submitted: j.State.Times.Submitted}
		s.State.Usage, s.State.Services = berth.Usage{}, nil
		s.State.Reason = fmt.Sprintf("attempt %d follows, because of attempt %d: %s", attempt+1, attempt, whyEvicted(evicted))
	default:
		t := g.decisive()
		s.State.Exit = t.Exit
		s.Status, s.State.Reason = outcome(t.Exit, j.State.Cancel)
		if s.Status == berth.Failed && len(g) > 1 && t.Exit != nil && t.Exit.Log == "" {
			s.State.Reason = fmt.Sprintf("node %d: %s", t.Rank, s.State.Reason)
		}
		s.stopped()
	}
	return s
}

// outcome turns an exit into a final status and a sentence.
func outcome(e *berth.Exit, canceled bool) (berth.JobStatus, string) {
	switch {
	case e == nil:
		return berth.Failed, "the task ended, but how is not recorded"
	case e.Cause == "canceled":
		return berth.Canceled, orElse(e.Reason, "canceled by the user")
	case e.OK():
		return berth.Completed, orElse(e.Reason, "the command ended with exit code 0")
	case canceled && e.Cause == "" && e.Signal != "":
		return berth.Canceled, "canceled by the user"
	}
	reason := e.Reason
	if reason == "" {
		switch {
		case e.OOM:
			reason = "the kernel ended the command because it ran out of memory"
		case e.Signal != "":
			reason = "the command was ended by " + e.Signal
		default:
			reason = fmt.Sprintf("the command ended with exit code %d", e.Code)
		}
	}
	return berth.Failed, reason
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// What Go's types and JSON's values are called.
var (
	jsonWords = map[reflect.Kind]string{
		reflect.String: "a string", reflect.Bool: "true or false", reflect.Int: "a whole number", reflect.Int64: "a whole number", reflect.Float64: "a number",
		reflect.Slice: "a list", reflect.Map: "an object", reflect.Struct: "an object", reflect.Pointer: "an object",
	}
	jsonValues = map[string]string{"string": "a string", "bool": "true or false", "number": "a number", "array": "a list", "object": "an object"}
)

// jsonReason makes encoding/json's words fit for users.
func jsonReason(err error) string {
	if e, ok := err.(*json.UnmarshalTypeError); ok {
		given, number, _ := strings.Cut(e.Value, " ")
		return fmt.Sprintf("%s must be %s, not %s", orElse(e.Field, "the document"), jsonWords[e.Type.Kind()], orElse(number, orElse(jsonValues[given], e.Value)))
	}
	return err.Error()
}
