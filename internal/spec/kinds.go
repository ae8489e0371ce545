package spec

import (
	"slices"
	"strings"
)

// kinds are the sorts of files there are. To add one, add a line.
func kinds() []kind {
	return []kind{
		jobKind,
		environmentKind,
		dataKind,
		modelKind,
		codeKind,
		datastoreKind,
		computeKind,
		workspaceKind,
		componentKind,
		onlineEndpointKind,
		onlineDeploymentKind,
		batchEndpointKind,
		batchDeploymentKind,
		scheduleKind,
		connectionKind,
		registryKind,
		capabilityHostKind,
		featureStoreKind,
		featureEntityKind,
		featureSetKind,
	}
}

var jobKind = kind{word: "job", collection: "jobs", base: "properties", body: typ{name: "a job", readFunc: readJob}}

// readJob reads a job by its type: command when it names none. Types are spelled as they are.
func readJob(s *scope, v *value) any {
	word := "command"
	if t := v.get("type"); t != nil {
		if t.shape != str {
			s.in("type").fail(t, "must be a string, not %s", t.shape)
			return nil
		}
		word = t.text
	}
	t, ok := jobTypes.get()[word]
	if !ok && slices.Contains(s.options.JobTypes, word) {
		t, ok = otherJob(word), true
	}
	if !ok {
		var words []string
		for w := range jobTypes.get() {
			words = append(words, w)
		}
		words = append(words, s.options.JobTypes...)
		s.in("type").failWith(v.get("type"), nearest(strings.ToLower(word), words), "%s is not a job type", describe(v.get("type")))
		return nil
	}
	if t.table != nil {
		t.table.fill(s, v)
		return nil
	}
	t.read(s, v)
	return nil
}

// jobTypes are the jobs that can stand alone.
var jobTypes = lazy[map[string]typ]{make: func() map[string]typ {
	return map[string]typ{
		"command":      commandJob,
		"sweep":        sweepJob,
		"spark":        sparkJob,
		"pipeline":     pipelineJob,
		"automl":       automlJob,
		"finetuning":   fineTuningJob,
		"distillation": distillationJob,
	}
}}
