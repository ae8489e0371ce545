package spec

import (
	"encoding/json"
	"strings"

	"github.com/berthml/berth"
)

// jobCommon are the fields of every job.
var jobCommon = lazyParts(func() parts {
	return parts{
		readonly("id", "status", "creation_context", "log_files"),
		f("name", text, to("@name")),
		f("display_name", text),
		f("experiment_name", text),
		f("description", text),
		f("tags", jobMap, def(tree{})),
		f("properties", jobMap, def(tree{})),
		f("compute", compute, to("computeId")),
		f("identity", jobIdentity),
		f("services", mapOf(service)),
		is("isArchived", false),
		then(jobDefaults),
	}
})

// jobDefaults fills in what the client invents for a job.
func jobDefaults(s *scope, v *value) {
	if s.scheduled {
		return
	}
	if title, _ := s.out["displayName"].(string); title == "" && s.draft.name != "" {
		s.out["displayName"] = s.draft.name
	}
	if name, _ := s.out["experimentName"].(string); name == "" && s.options.Experiment != "" {
		s.out["experimentName"] = s.options.Experiment
	}
	if s.out["computeId"] == "local" {
		delete(s.out, "computeId")
		res := s.out.sub("resources.properties")
		res["IsLocal"] = tree{"IsLocal": true}
	}
}

// lowerName is the name of a job of one step: it travels in lower case, a pipeline's as it is.
var lowerName = typ{name: text.name, readFunc: func(s *scope, v *value) any {
	name, ok := readText(s, v).(string)
	if !ok {
		return nil
	}
	return strings.ToLower(name)
}}

var commandJob = later(commandJobParts)

func commandJobParts() []part {
	return []part{
		is("jobType", "Command"),
		f("type", enum("command"), unsent),
		f("name", lowerName, to("@name")),
		f("command", text, required),
		f("environment", environment, to("environmentId")),
		f("code", code, to("codeId")),
		f("environment_variables", environmentVariables, def(tree{})),
		f("inputs", inputs, def(tree{})),
		f("outputs", outputs, def(tree{})),
		f("resources", resources),
		f("distribution", distribution),
		f("limits", commandLimits),
		f("queue_settings", queueSettings),
		f("parent_job_name", text),
		readonly("parameters"),
		jobCommon,
		then(checkCommand),
	}
}

// checkCommand looks at what the command refers to.
func checkCommand(s *scope, v *value) {
	if props, ok := asTree(s.out["properties"]); ok {
		delete(props, "_azureml.ComputeTargetType") // the service's own
	}
	if v.get("environment") == nil && !s.options.Bare && !strings.EqualFold(v.get("properties").textOf(berth.EnvironmentProperty), berth.OnHost) {
		s.in("environment").fail(v, "is required")
	}
	if env, ok := asTree(s.out["environmentVariables"]); ok && strings.EqualFold(v.textOf("compute"), "local") && env[commonRuntime] == nil {
		env[commonRuntime] = "true"
	}
	cmd := v.get("command")
	if cmd == nil || cmd.shape != str {
		return
	}
	text := doubleBrackets(cmd.text)
	s.out["command"] = text
	s.in("command").checkExpressions(cmd, text, map[string]*value{"inputs": v.get("inputs")})
	s.in("command").unreplaced(cmd, text, map[string]*value{"outputs": v.get("outputs")})
	s.registryCode(v.get("code"))
}

// registryCode refuses code in a registry, which components can have and jobs cannot.
func (s *scope) registryCode(v *value) {
	if v != nil && v.shape == str && (registryForm.MatchString(v.text) || strings.HasPrefix(v.text, "azureml://feeds/")) {
		s.in("code").fail(v, "a job cannot use code from a registry; use a local folder or code from the workspace")
	}
}

// commonRuntime is set for jobs that run on the submitting machine.
const commonRuntime = "AZUREML_COMPUTE_USE_COMMON_RUNTIME"

var oldBrackets = re(`(^|[^{])\{(inputs|outputs|search_space)\.([^}]*)\}($|[^}])`)

// doubleBrackets turns the old {inputs.x} into ${{inputs.x}}.
func doubleBrackets(text string) string {
	for i := 0; i < 2; i++ { // twice, for neighbours share a character
		text = oldBrackets.ReplaceAllString(text, "${1}$${{${2}.${3}}}${4}")
	}
	return text
}

// environmentVariables keep the types of their values.
var environmentVariables = freeMap

var jobIdentity = byKey("type", func() map[string]typ {
	return map[string]typ{
		"aml_token":        obj(f("type", anything, unsent), is("identityType", "AMLToken")),
		"user_identity":    obj(f("type", anything, unsent), is("identityType", "UserIdentity")),
		"managed":          managedIdentity,
		"managed_identity": managedIdentity,
	}
})

var managedIdentity = later(managedIdentityParts)

func managedIdentityParts() []part {
	return []part{
		is("identityType", "Managed"),
		f("type", anything, unsent),
		f("client_id", text),
		f("object_id", text),
		f("msi_resource_id", text, to("resourceId")),
	}
}

var resources = later(resourcesParts)

func resourcesParts() []part {
	return []part{
		f("instance_count", whole),
		f("max_instance_count", whole, to("=maxInstanceCount")),
		f("instance_type", text),
		f("locations", listOf(text)),
		f("shm_size", text),
		f("docker_args", oneOf(text, listOf(text))),
		f("properties", computeProperties, def(tree{})),
		then(func(s *scope, v *value) {
			// A list of arguments has a member of its own, and the client then forgets two others.
			at := func(name string) string { return s.dest(&field{to: name}) }
			if args, ok := s.out[at("dockerArgs")].([]any); ok && len(args) > 0 {
				s.out[at("dockerArgsList")] = args
				for _, lost := range []string{"dockerArgs", "locations", "=maxInstanceCount"} {
					delete(s.out, at(lost))
				}
			}
		}),
		backwards(func(in, out tree) {
			if args := in["dockerArgsList"]; args != nil {
				out["docker_args"] = args
			}
		}),
	}
}

// computeProperties is a free map in which the groups of known services are spelled their way.
var computeProperties = typ{name: "a mapping", readFunc: func(s *scope, v *value) any {
	m, ok := asTree(freeMap.read(s, v))
	if !ok {
		return nil
	}
	spelled := map[string]string{"aisupercomputer": "AISuperComputer", "singularity": "AISuperComputer", "itp": "itp", "target_selector": "target_selector"}
	out := tree{}
	for k, val := range m {
		if right, ok := spelled[strings.ToLower(k)]; ok {
			k = right
		}
		out[k] = val
	}
	return out
}}

var distribution = byKey("type", func() map[string]typ {
	return map[string]typ{
		"pytorch":    distributionOf("PyTorch", f("process_count_per_instance", whole)),
		"mpi":        distributionOf("Mpi", f("process_count_per_instance", whole)),
		"tensorflow": distributionOf("TensorFlow", f("worker_count", whole), f("parameter_server_count", whole, def(number("0")))),
		// Its members have these names in a pipeline too.
		"ray": distributionOf("Ray", f("port", whole), f("address", text), f("include_dashboard", flag, to("=includeDashboard")),
			f("dashboard_port", whole, to("=dashboardPort")), f("head_node_additional_args", text, to("=headNodeAdditionalArgs")),
			f("worker_node_additional_args", text, to("=workerNodeAdditionalArgs"))),
	}
})

func distributionOf(name string, fields ...field) typ {
	ps := parts{is("distributionType", name), f("type", text, unsent)}
	for _, fd := range fields {
		ps = append(ps, fd)
	}
	return obj(ps)
}

var commandLimits = later(commandLimitsParts)

func commandLimitsParts() []part {
	return []part{
		is("jobLimitsType", "Command"),
		f("timeout", seconds),
	}
}

var queueSettings = later(queueSettingsParts)

func queueSettingsParts() []part {
	return []part{
		f("job_tier", enum("null=Null", "spot=Spot", "basic=Basic", "standard=Standard", "premium=Premium")),
		f("priority", priority),
	}
}

func priorityWord(s *scope, v *value) any { return enum("low", "medium", "high").read(s, v) }

var priority = typ{name: "low, medium, high", yaml: priorityWord, readFunc: func(s *scope, v *value) any {
	w, _ := enum("low=1", "medium=2", "high=3").read(s, v).(string)
	if w == "" {
		return nil
	}
	return number(w)
}, showFunc: func(j any) any {
	words := map[string]string{"1": "low", "2": "medium", "3": "high"}
	if n, ok := j.(json.Number); ok && words[n.String()] != "" {
		return words[n.String()]
	}
	return j
}}

// service is an interactive door into a job.
var service = typ{name: "a service", readFunc: func(s *scope, v *value) any {
	if v.shape == mapping && v.get("type") == nil {
		// Without a type it is what the first of the client's forms makes of it.
		kind := "ssh"
		if v.get("log_dir") != nil {
			kind = "tensor_board"
		}
		v = v.with("type", v.newText(kind))
	}
	switch strings.ToLower(v.textOf("type")) {
	case "ssh":
		return serviceOf("SSH", f("ssh_public_keys", text, to("=properties.sshPublicKeys"))).read(s, v)
	case "tensor_board":
		return serviceOf("TensorBoard", f("log_dir", text, to("=properties.logDir"))).read(s, v)
	case "vs_code":
		return serviceOf("VSCode").read(s, v)
	case "jupyter_lab":
		return serviceOf("JupyterLab").read(s, v)
	}
	return serviceOf("").read(s, v)
}, showFunc: func(j any) any {
	m, ok := asTree(j)
	if !ok {
		return j
	}
	out := tree{}
	for k, v := range m {
		out[snake(k)] = v
	}
	out["type"] = m["jobServiceType"]
	delete(out, "job_service_type")
	return out
}}

func serviceOf(name string, own ...field) typ {
	ps := parts{
		readonly("endpoint", "status", "error_message"),
		f("type", text, unsent),
		f("nodes", enum("all"), unsent),
		f("port", whole),
		f("properties", freeMap),
		then(func(s *scope, v *value) {
			if v.has("nodes") && !s.yaml {
				s.out["nodes"] = tree{s.dest(&field{to: "nodesValueType"}): "All"}
			}
		}),
	}
	if name != "" {
		ps = append(ps, is("jobServiceType", name))
	}
	for _, fd := range own {
		ps = append(ps, fd)
	}
	return obj(ps)
}
