package spec

import (
	"encoding/json"
	"slices"
)

// What is true or false, and what is a whole number, in the specification of a component. The
// service shows all of it as text.
var (
	specFlags  = []string{"is_deterministic", "optional", "early_available", "include_dashboard", "dynamic_allocation_enabled"}
	specCounts = []string{
		"instance_count", "max_instance_count", "process_count_per_instance", "worker_count", "parameter_server_count", "port", "dashboard_port",
		"error_threshold", "mini_batch_error_threshold", "max_concurrency_per_instance", "max_retries", "timeout",
		"driver_cores", "executor_cores", "executor_instances", "dynamic_allocation_min_executors", "dynamic_allocation_max_executors",
	}
)

var countForm = re(`^[0-9]{1,18}$`)

// unworded is a member of a specification as a file has it.
func unworded(name string, v any) any {
	if m, ok := asTree(v); ok {
		if name == "tags" || name == "properties" || name == "environment_variables" {
			return v
		}
		out := tree{}
		for k, val := range m {
			out[k] = unworded(k, val)
		}
		return out
	}
	word, _ := v.(string)
	switch {
	case slices.Contains(specFlags, name) && (word == "True" || word == "False"):
		return word == "True"
	case slices.Contains(specCounts, name) && countForm.MatchString(word):
		return json.Number(word)
	}
	return v
}
