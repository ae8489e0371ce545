package spec

import (
	"strconv"
	"strings"
)

var onlineDeploymentKind = kind{
	word: "online-deployment", collection: "onlineEndpoints/deployments", base: "properties",
	body: typ{name: "a deployment", readFunc: func(s *scope, v *value) any {
		t := managedDeployment
		if strings.EqualFold(v.textOf("type"), "kubernetes") {
			t = kubernetesDeployment
		}
		t.table.fill(s, v)
		return nil
	}},
}

// deploymentCommon are the fields of every deployment of a model.
var deploymentCommon = lazyParts(func() parts {
	return parts{
		f("id", text, unsent),
		f("name", deploymentName, to("@name"), required),
		f("endpoint_name", text, to("@parent"), required),
		f("description", text),
		f("tags", freeMap, to("/tags"), def(tree{})),
		f("properties", freeMap, def(tree{})),
		f("environment", deploymentEnvironment, to("environmentId")),
		f("environment_variables", freeMap, def(tree{})),
	}
})

var deploymentName = typ{name: "a name", readFunc: func(s *scope, v *value) any {
	name, ok := readText(s, v).(string)
	if ok && (!endpointForm.MatchString(name) || len(name) < 3 || len(name) > 32) {
		s.fail(v, "%s is not a valid deployment name; use 3 to 32 letters, digits and '-', starting with a letter", describe(v))
		return nil
	}
	return strings.ToLower(name)
}}

var codeConfiguration = later(codeConfigurationParts)

func codeConfigurationParts() []part {
	return []part{
		f("code", deploymentCode, to("codeId"), required),
		f("scoring_script", text, required),
	}
}

// deploymentCode is code that may also be the bare id of a code asset.
var deploymentCode = typ{name: code.name, showFunc: showAsset, readFunc: func(s *scope, v *value) any {
	if v.shape == str && armAsset.MatchString(v.text) {
		return v.text
	}
	return code.read(s, v)
}}

var onlineDeployment = lazyParts(func() parts {
	return parts{
		deploymentCommon,
		f("code_configuration", codeConfiguration),
		f("model", deploymentModel),
		f("model_mount_path", text),
		f("app_insights_enabled", flag, def(false)),
		f("provisioning_state", text, unsent, to("provisioningState")),
		f("instance_count", whole, to("/sku.capacity")),
		f("scale_settings", scaleSettings),
		f("request_settings", obj(
			f("request_timeout_ms", milliseconds, to("requestTimeout")),
			f("max_concurrent_requests_per_instance", whole),
			f("max_queue_wait_ms", milliseconds, to("maxQueueWait")),
		)),
		f("liveness_probe", probe),
		f("readiness_probe", probe),
		f("type", looseEnum("managed", "kubernetes"), unsent),
		f("data_collector", dataCollector),
		is("/sku.name", "Default"),
		then(collectionData),
	}
})

var scaleSettings = byKey("type", func() map[string]typ {
	return map[string]typ{
		"default": obj(is("scaleType", "Default"), f("type", text, unsent)),
		"target_utilization": obj(is("scaleType", "TargetUtilization"),
			f("type", text, unsent),
			f("min_instances", whole),
			f("max_instances", whole),
			f("polling_interval", seconds),
			f("target_utilization_percentage", whole),
		),
	}
})

var probe = later(probeParts)

func probeParts() []part {
	return []part{
		f("initial_delay", seconds),
		f("period", seconds),
		f("timeout", seconds),
		f("success_threshold", whole),
		f("failure_threshold", whole),
	}
}

var managedDeployment = later(managedDeploymentParts)

func managedDeploymentParts() []part {
	return []part{
		onlineDeployment,
		is("endpointComputeType", "Managed"),
		f("instance_type", text, required),
		f("egress_public_network_access", enum("enabled", "disabled")),
		f("private_network_connection", flag, to("properties.private-network-connection")),
		readonly("creation_context"),
		then(func(s *scope, v *value) {
			if kind := v.get("scale_settings").get("type"); kind != nil && snakeWords(kind.text) == "target_utilization" {
				s.in("scale_settings.type").fail(kind, "is not supported by a managed deployment; use default")
			}
		}),
	}
}

var kubernetesDeployment = later(kubernetesDeploymentParts)

func kubernetesDeploymentParts() []part {
	return []part{
		onlineDeployment,
		is("endpointComputeType", "Kubernetes"),
		f("instance_type", text),
		f("resources", obj(
			f("requests", containerAmounts, to("containerResourceRequests")),
			f("limits", containerAmounts, to("containerResourceLimits")),
		), to("containerResourceRequirements")),
		then(func(s *scope, v *value) {
			for path, ref := range map[string]*value{"environment": v.get("environment"), "model": v.get("model"), "code_configuration.code": v.get("code_configuration").get("code")} {
				if ref != nil && registryForm.MatchString(ref.text) {
					s.in(path).fail(ref, "a Kubernetes deployment cannot use assets from a registry; use one from the workspace")
				}
			}
		}),
	}
}

var containerAmounts = later(containerAmountsParts)

func containerAmountsParts() []part {
	return []part{
		f("cpu", text),
		f("memory", text),
		f("gpu", text),
		first(func(s *scope, v *value) *value {
			if gpu := v.get("nvidia.com/gpu"); gpu != nil {
				return v.without("nvidia.com/gpu").with("gpu", gpu)
			}
			return v
		}),
	}
}

// dataCollector says which of the requests and answers are kept.
var dataCollector = later(dataCollectorParts)

func dataCollectorParts() []part {
	return []part{
		f("collections", mapOf(obj(
			f("enabled", enum("true=enabled", "false=disabled"), to("dataCollectionMode"), required),
			f("data", oneOf(obj(f("name", text), f("path", text), f("version", text), f("data_id", text)), text), unsent),
			f("client_id", text),
		))),
		f("rolling_rate", enum("minute", "hour", "day")),
		f("sampling_rate", typ{name: "a number", readFunc: func(s *scope, v *value) any {
			got := readDecimal(s, v)
			if n, ok := got.(number); ok {
				if rate, err := strconv.ParseFloat(string(n), 64); err == nil && (rate < 0 || rate > 1) {
					s.fail(v, "must be between 0 and 1, not %s", v.python())
				}
			}
			return got
		}}, unsent),
		f("request_logging", obj(f("capture_headers", listOf(text)))),
	}
}

// collectionData names the data asset of each collection: a given one, or one called after the
// deployment.
func collectionData(s *scope, v *value) {
	all, ok := asTree(s.out.at("dataCollector.collections"))
	if !ok {
		return
	}
	in := v.get("data_collector")
	for _, p := range in.get("collections").entries() {
		one, ok := asTree(all[p.key])
		if !ok {
			continue
		}
		data := p.val.get("data")
		switch {
		case data != nil && data.shape == str:
			one["dataId"] = data.text
		default:
			name := s.draft.parent + "-" + s.draft.name + "-" + p.key
			version := "1"
			if n := data.textOf("name"); n != "" {
				name = n
			}
			if n := data.textOf("version"); n != "" {
				version = n
			}
			path := data.textOf("path")
			if path == "" {
				path = "azureml://datastores/workspaceblobstore/paths/modelDataCollector/" + s.draft.parent + "/" + s.draft.name + "/" + p.key
			}
			one["dataId"] = s.collected(name, version, path)
		}
		if rate := in.get("sampling_rate"); rate != nil {
			one["samplingRate"] = readDecimal(s, rate)
		}
	}
}

// collected makes the data asset a collection is written to, and gives its id.
func (s *scope) collected(name, version, path string) string {
	s.keep(&draft{collection: "data", name: name, version: version, body: tree{"properties": tree{
		"dataType": "uri_folder", "dataUri": path, "isAnonymous": false, "isArchived": false, "properties": tree{}, "tags": tree{},
	}}})
	return s.workspace().ResourceID("data", name, "versions", version)
}

// deploymentEnvironment is an environment of a deployment: an inline one that has a name keeps it.
var deploymentEnvironment = typ{name: "an environment", showFunc: showAsset, readFunc: func(s *scope, v *value) any {
	if path := strings.TrimPrefix(v.text, "file:"); v.shape == str && path != v.text {
		if v = s.follow(v, path); v == nil {
			return nil
		}
	}
	if v.shape != mapping || !v.has("name") {
		return environment.read(s, v)
	}
	if id := v.textOf("id"); strings.HasPrefix(id, "azureml:") {
		return s.assetID("environments", id)
	}
	return s.namedAsset(environmentKind, v.without("id"))
}}

// deploymentModel is the model of a deployment: a reference, or one to register on the way.
var deploymentModel = typ{name: "a model", showFunc: showAsset, readFunc: func(s *scope, v *value) any {
	switch {
	case v.shape == mapping:
		return s.inlineModel(v)
	case v.shape != str:
		s.fail(v, "must be a reference or a mapping, not %s", v.shape)
	case registryForm.MatchString(v.text):
		return v.text
	case s.checkAsset(v, "models", true):
		return s.assetID("models", v.text)
	}
	return nil
}}

// inlineModel registers a model: under its name when it has one, else under the hash of its
// content.
func (s *scope) inlineModel(v *value) any {
	if v.has("name") && v.has("version") {
		s.in("path").checkPlace(v.get("path"))
		return s.namedAsset(modelKind, v)
	}
	name := v.textOf("name")
	if name == "" && v.has("version") {
		s.in("name").fail(v, "is required when version is set")
		return nil
	}
	if path := v.get("path"); path == nil || path.shape == null {
		s.in("path").fail(v, "is required")
		return nil
	}
	s.in("path").checkPlace(v.get("path"))
	d := &draft{collection: "models", body: tree{}, anonymous: name == ""}
	sub := &scope{load: s.load, draft: d, out: d.body.sub("properties"), field: s.field}
	m := sub.mark()
	w := v
	if !v.has("name") {
		w = v.with("name", v.newText("anonymous"))
	}
	modelBody.table.fill(sub, w)
	if sub.failed(m) {
		return nil
	}
	if name == "" {
		sub.out["isAnonymous"] = true
		d.name = strings.ReplaceAll(s.contentID(d), "-", "")
	}
	if d.version == "" {
		d.version = "1"
	}
	s.keep(d)
	return s.workspace().ResourceID("models", d.name, "versions", d.version)
}

// checkPlace refuses an azureml:// address that is not a place of files.
func (s *scope) checkPlace(path *value) {
	if path != nil && path.shape == str && strings.HasPrefix(path.text, "azureml://") && !placeForm.MatchString(path.text) {
		s.fail(path, "%s is not a storage location; write azureml://datastores/NAME/paths/PATH or azureml://jobs/NAME/outputs/NAME/paths/PATH", describe(path))
	}
}

var placeForm = re(`^azureml://(subscriptions/[^/]+/resourcegroups/[^/]+/workspaces/[^/]+/)?(datastores/[^/]+/paths/|jobs/[^/]+/outputs/[^/]+)`)

// namedAsset makes the resource of an asset that is written where it is used, and gives its id.
func (s *scope) namedAsset(k kind, v *value) any {
	d := &draft{collection: k.collection, body: tree{}}
	sub := &scope{load: s.load, draft: d, out: d.body, field: s.field}
	m := sub.mark()
	k.fill(sub, v)
	if sub.failed(m) {
		return nil
	}
	if d.version == "" {
		d.version = "1"
	}
	s.keep(d)
	return s.workspace().ResourceID(d.collection, d.name, "versions", d.version)
}
