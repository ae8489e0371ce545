package spec

import "strings"

// guess is the kind of a file nobody named: what its $schema says, else what its keys look like,
// else job.
func guess(v *value) string {
	schema := v.textOf("$schema")
	name := strings.ToLower(schema[strings.LastIndexByte(schema, '/')+1:])
	for _, g := range schemas {
		// A $schema is often copied from elsewhere; what only a job has decides.
		if strings.Contains(name, g.part) && !(g.word == "component" && (v.get("experiment_name") != nil || v.get("name") == nil)) {
			return g.word
		}
	}
	if strings.Contains(name, "job") {
		return "job"
	}
	for _, g := range looks() {
		if g.fits(v) {
			return g.word
		}
	}
	return "job"
}

// schemas maps parts of the file names of $schema to kinds, the longer word first.
var schemas = []struct{ part, word string }{
	{"onlinedeployment", "online-deployment"},
	{"onlineendpoint", "online-endpoint"},
	{"batchdeployment", "batch-deployment"},
	{"modelbatch", "batch-deployment"},
	{"batchendpoint", "batch-endpoint"},
	{"component", "component"},
	{"compute", "compute"},
	{"environment", "environment"},
	{"connection", "connection"},
	{"datastore", "datastore"},
	{"azureblob", "datastore"},
	{"azurefile", "datastore"},
	{"azuredatalake", "datastore"},
	{"onelake", "datastore"},
	{"schedule", "schedule"},
	{"registry", "registry"},
	{"featurestoreentity", "feature_store_entity"},
	{"featureset", "feature_set"},
	{"featurestore", "feature_store"},
	{"workspace", "workspace"},
	{"hub", "workspace"},
	{"project", "workspace"},
	{"model.schema", "model"},
	{"data.schema", "data"},
	{"code.schema", "code"},
}

// look is what a kind of file looks like.
type look struct {
	word string
	fits func(v *value) bool
}

// looks are tried in order.
func looks() []look {
	return []look{
		{"schedule", anyKey("create_job", "create_monitor", "import_data")},
		{"batch-deployment", allOf(anyKey("endpoint_name"), anyKey("compute", "mini_batch_size", "output_action", "output_file_name", "settings", "component", "job_definition"))},
		{"online-deployment", anyKey("endpoint_name")},
		{"batch-endpoint", anyKey("defaults")},
		{"batch-endpoint", func(v *value) bool {
			return strings.EqualFold(v.textOf("auth_mode"), "aad_token") && v.get("traffic") == nil && v.get("identity") == nil && v.get("compute") == nil
		}},
		{"online-endpoint", anyKey("auth_mode", "traffic", "mirror_traffic")},
		{"compute", typeIn("agent", "amlcompute", "computeinstance", "kubernetes", "virtualmachine", "synapsespark")},
		{"connection", allOf(typeIn("azure_blob"), anyKey("url", "target", "metadata"))},
		{"datastore", allOf(typeIn("azure_blob", "azure_file", "azure_data_lake_gen1", "azure_data_lake_gen2", "one_lake", "s3", "google_storage"), anyKey("account_name", "store_name", "one_lake_workspace_name", "bucket"))},
		{"datastore", typeIn("http")},
		{"connection", typeIn("git", "container_registry", "python_feed", "s3", "snowflake", "azure_sql_db", "azure_synapse_analytics",
			"azure_my_sql_db", "azure_postgres_db", "custom", "azure_data_lake_gen2", "azure_blob", "azure_one_lake", "azure_open_ai",
			"azure_ai_services", "azure_ai_search", "azure_content_safety", "azure_speech_services", "api_key", "open_ai", "serp", "serverless")},
		{"registry", anyKey("replication_locations")},
		{"feature_set", anyKey("entities", "specification")},
		{"feature_store_entity", anyKey("index_columns")},
		{"feature_store", anyKey("offline_store", "online_store", "materialization_identity", "compute_runtime")},
		{"capability_host", anyKey("capability_host_kind")},
		{"component", isComponent},
		{"job", anyKey("jobs", "command", "trial", "task", "component", "search_space", "experiment_name")},
		{"environment", anyKey("image", "build", "conda_file")},
		{"model", allOf(anyKey("path"), typeIn("custom_model", "mlflow_model", "triton_model"))},
		{"model", anyKey("flavors", "default_deployment_template")},
		{"data", allOf(anyKey("path"), typeIn("uri_file", "uri_folder", "mltable"))},
		{"model", func(v *value) bool {
			path := strings.ToLower(v.textOf("path"))
			for _, end := range []string{".pkl", ".pt", ".pth", ".onnx", ".h5", ".joblib", ".safetensors"} {
				if strings.HasSuffix(path, end) {
					return true
				}
			}
			return strings.HasPrefix(path, "runs:/")
		}},
		{"data", allOf(anyKey("path"), anyKey("name"))},
		{"workspace", allOf(anyKey("name"), func(v *value) bool { return v.get("type") == nil })},
	}
}

func anyKey(keys ...string) func(*value) bool {
	return func(v *value) bool {
		for _, k := range keys {
			if v.get(k) != nil {
				return true
			}
		}
		return false
	}
}

func typeIn(words ...string) func(*value) bool {
	return func(v *value) bool {
		got := v.textOf("type")
		for _, w := range words {
			if snakeWords(got) == w || strings.EqualFold(got, w) {
				return true
			}
		}
		return false
	}
}

func allOf(a, b func(*value) bool) func(*value) bool {
	return func(v *value) bool { return a(v) && b(v) }
}

// isComponent tells a component from a job: it declares inputs and outputs instead of giving them,
// has a version, and no job has is_deterministic.
func isComponent(v *value) bool {
	word := v.textOf("type")
	if word == "parallel" || word == "data_transfer" || v.get("is_deterministic") != nil || v.get("additional_includes") != nil {
		return true
	}
	if v.get("experiment_name") != nil || v.get("settings") != nil && v.get("version") == nil {
		return false
	}
	for _, p := range v.get("inputs").entries() {
		switch p.val.textOf("type") {
		case "string", "integer", "number", "boolean":
			return true
		}
		if p.val.shape != mapping || p.val.get("path") != nil || p.val.get("value") != nil {
			return false
		}
	}
	if v.get("version") != nil && (v.get("command") != nil || v.get("jobs") != nil || v.get("entry") != nil || word != "") {
		return typeIn("command", "pipeline", "spark", "automl", "import")(v) || word == ""
	}
	for _, p := range v.get("inputs").entries() {
		if p.val.get("type") != nil {
			return true
		}
	}
	return false
}
