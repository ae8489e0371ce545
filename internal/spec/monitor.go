package spec

import "strings"

var monitorSchedule = obj(
	scheduleCommon,
	f("create_monitor", monitor, to("action.monitorDefinition"), required),
	is("action.actionType", "CreateMonitor"),
)

// monitor watches the data and the answers of a deployed model.
var monitor = obj(
	f("compute", obj(
		is("computeType", "ServerlessSpark"),
		is("computeIdentity.computeIdentityType", "AmlToken"),
		f("instance_type", text, required),
		f("runtime_version", numberVersion, required),
	), to("computeConfiguration"), required),
	f("monitoring_target", obj(
		f("ml_task", looseEnum("classification=Classification", "regression=Regression", "question_answering=QuestionAnswering",
			"questionanswering=QuestionAnswering"), to("taskType")),
		f("endpoint_deployment_id", deploymentID, to("deploymentId")),
		f("model_id", text),
	)),
	f("monitoring_signals", mapOf(signal), to("signals")),
	f("alert_notification", alertNotification, to("alertNotificationSetting")),
)

// deploymentID is azureml:ENDPOINT:DEPLOYMENT, or a full id.
var deploymentID = typ{name: "a deployment", read: func(s *scope, v *value) any {
	t, ok := readText(s, v).(string)
	if !ok {
		return nil
	}
	short := strings.TrimPrefix(t, "azureml:")
	if strings.HasPrefix(short, "/") {
		return short
	}
	endpoint, deployment, ok := strings.Cut(short, ":")
	if !ok || endpoint == "" || deployment == "" || strings.Contains(deployment, ":") {
		s.fail(v, "%s is no deployment: write azureml:ENDPOINT:DEPLOYMENT", describe(v))
		return nil
	}
	return s.workspace().ResourceID("onlineEndpoints", endpoint, "deployments", deployment)
}}

var alertNotification = typ{name: "azmonitoring or a mapping", read: func(s *scope, v *value) any {
	if v.shape == str {
		if enum("azmonitoring").read(s, v) == nil {
			return nil
		}
		return tree{"alertNotificationType": "AzureMonitor"}
	}
	return obj(
		is("alertNotificationType", "Email"),
		is("emailNotificationSetting.emailOn", []any{"JobFailed", "JobCompleted"}),
		f("emails", listOf(text), to("emailNotificationSetting.emails"), required),
	).read(s, v)
}}

// signals are the kinds of signals, as YAML and as the service spell them.
var signals = map[string]string{
	"data_drift": "DataDrift", "data_quality": "DataQuality", "prediction_drift": "PredictionDrift",
	"feature_attribution_drift": "FeatureAttributionDrift", "model_performance": "ModelPerformance",
	"generation_safety_quality": "GenerationSafetyQuality", "generation_token_statistics": "GenerationTokenStatistics",
	"custom": "Custom",
}

// signal is one thing a monitor looks at.
var signal = typ{name: "a signal", read: func(s *scope, v *value) any {
	if v.shape != mapping {
		s.fail(v, "must be a mapping, this is %s", v.shape)
		return nil
	}
	word := snakeWords(v.textOf("type"))
	name, ok := signals[word]
	if !ok {
		at := or(v.get("type"), v)
		s.in("type").failWith(at, nearest(word, sortedWords(signals)), "%s is no type of signal", describe(at))
		return nil
	}
	ps := parts{
		is("signalType", name),
		f("type", text, unsent),
		f("alert_enabled", onOff("Enabled", "Disabled"), to("mode"), def("Disabled")),
		f("properties", freeMap),
	}
	if word == "custom" {
		return obj(ps, customSignal).read(s, v)
	}
	return obj(ps, dataSignal).read(s, v)
}}

var dataSignal = parts{
	f("production_data", oneOrList(monitorData)),
	f("reference_data", monitorData),
	f("metric_thresholds", thresholds),
	f("features", featureFilter),
	f("data_segment", obj(f("feature_name", text), f("feature_values", listOf(text)))),
	f("feature_type_override", textMap),
	f("model_type", looseEnum("classification=Classification", "regression=Regression")),
	f("connection_id", text, to("workspaceConnectionId")),
	f("sampling_rate", decimal),
}

var customSignal = parts{
	f("component_id", text),
	f("connection", obj(f("environment_variables", textMap), f("secret_config", textMap, to("secrets"))), to("workspaceConnection"), def(tree{})),
	f("metric_thresholds", listOf(obj(
		f("metric_name", text, to("metric"), required),
		f("threshold", decimal, to("threshold.value")),
	))),
	f("input_data", mapOf(monitorData), to("inputAssets")),
	f("inputs", mapOf(input)),
	then(func(s *scope, v *value) {
		s.out["componentId"] = strings.TrimPrefix(v.textOf("component_id"), "azureml:")
	}),
}

// featureFilter says which features are looked at: all, some by name, or those that matter most.
var featureFilter = typ{name: "all_features, a list or a mapping", read: func(s *scope, v *value) any {
	switch v.shape {
	case str:
		if enum("all_features").read(s, v) == nil {
			return nil
		}
		return tree{"filterType": "AllFeatures"}
	case list:
		return tree{"filterType": "FeatureSubset", "features": listOf(text).read(s, v)}
	}
	return obj(is("filterType", "TopNByAttribution"), f("top_n_feature_importance", whole, to("top"), required)).read(s, v)
}}

// thresholds are numbers by metric, in groups: numerical and categorical features, or the aspects of an answer. They
// travel as a list.
var thresholds = typ{name: "a mapping", read: func(s *scope, v *value) any {
	if v.shape != mapping {
		s.fail(v, "must be a mapping, this is %s", v.shape)
		return nil
	}
	var out []any
	add := func(here *scope, p pair, kind string) {
		n := readDecimal(here, p.val)
		if n == nil {
			return
		}
		one := tree{"metric": pascal(p.key), "threshold": tree{"value": n}}
		if kind != "" {
			one["dataType"] = kind
		}
		out = append(out, one)
	}
	for _, p := range v.pairs {
		here := s.in(p.key)
		if p.val.shape != mapping {
			add(here, p, "")
			continue
		}
		kind := map[string]string{"numerical": "Numerical", "categorical": "Categorical"}[p.key]
		for _, q := range p.val.pairs {
			add(here.in(q.key), q, kind)
		}
	}
	return out
}}

// monitorData is data that a signal compares: all of it, a window that moves, or one that stands.
var monitorData = obj(
	f("input_data", dataInput, required, unsent),
	f("data_context", looseEnum("model_inputs", "model_outputs", "training", "test", "validation", "ground_truth")),
	f("data_column_names", textMap, to("columns")),
	f("target_column_name", text, unsent),
	f("pre_processing_component", text, to("preprocessingComponentId")),
	f("data_window", obj(
		f("lookback_window_size", text, to("windowSize")),
		f("lookback_window_offset", text, to("windowOffset")),
		f("window_start", text),
		f("window_end", text),
	), to("window")),
	then(func(s *scope, v *value) {
		if in, ok := dataInput.read(s.in("input_data"), or(v.get("input_data"), v.newMap())).(tree); ok {
			s.out["jobInputType"] = in["jobInputType"]
			s.out["uri"] = strings.TrimPrefix(v.get("input_data").textOf("path"), "azureml:")
		}
		if t, ok := s.out["preprocessingComponentId"].(string); ok {
			s.out["preprocessingComponentId"] = strings.TrimPrefix(t, "azureml:")
		}
		kind := "Fixed"
		window, _ := s.out["window"].(tree)
		delete(s.out, "window")
		for k, val := range window {
			s.out[k] = val
			kind = "Static"
		}
		if window["windowSize"] != nil {
			kind = "Trailing"
		}
		if kind == "Fixed" {
			delete(s.out, "preprocessingComponentId")
		}
		s.out["inputDataType"] = kind
	}),
)
