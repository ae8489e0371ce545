package spec

import (
	"slices"
	"strconv"
	"strings"
)

var monitorSchedule = obj(
	scheduleCommon,
	f("create_monitor", monitor, to("action.monitorDefinition"), required),
	is("action.actionType", "CreateMonitor"),
	then(monitorWindows),
)

// drifts are the signals that compare production with a reference, each over a window.
var drifts = map[string]bool{"data_drift": true, "data_quality": true, "prediction_drift": true}

// monitorWindows completes the signals: what is compared, and over which days when the file does not say.
func monitorWindows(s *scope, v *value) {
	if len(s.errs) > 0 {
		return
	}
	in := v.get("create_monitor")
	deployed := in.get("monitoring_target").has("endpoint_deployment_id")
	if len(in.get("monitoring_signals").entries()) == 0 && !deployed {
		s.in("create_monitor.monitoring_signals").fail(in, "is required unless monitoring_target names a deployment")
	}
	all, _ := s.out.at("action.monitorDefinition.signals").(tree)
	days := triggerDays(v.get("trigger"))
	for _, p := range in.get("monitoring_signals").entries() {
		one, ok := all[p.key].(tree)
		if !ok || !drifts[snakeWords(p.val.textOf("type"))] {
			continue
		}
		here := s.in("create_monitor.monitoring_signals." + p.key)
		for _, key := range []string{"production_data", "reference_data"} {
			if !p.val.has(key) && !deployed {
				here.in(key).fail(p.val, "is required unless monitoring_target names a deployment")
			}
		}
		if list, ok := one["productionData"].([]any); ok && len(list) == 1 {
			data, _ := list[0].(tree)
			here.in("production_data").monitored(data, p.val.get("production_data"), days)
			if data["windowSize"] == nil {
				data["windowSize"] = isoDays(days)
			}
			data["windowOffset"] = orElse(data["windowOffset"], "P0D")
			data["inputDataType"] = "Trailing"
			one["productionData"] = data
		}
		if data, ok := one["referenceData"].(tree); ok {
			here.in("reference_data").monitored(data, p.val.get("reference_data"), 2*days)
			if data["windowOffset"] == "default" {
				data["windowOffset"] = isoDays(days)
			}
			if data["windowSize"] != nil {
				data["windowOffset"] = orElse(data["windowOffset"], "P0D")
			}
		}
		rules, _ := one["metricThresholds"].([]any)
		for _, r := range rules {
			if rule, ok := r.(tree); ok {
				rule["metric"] = lowerFirst(rule.text("metric"))
			}
		}
	}
}

// monitored names the data a signal looks at, and the days of a window of default size.
func (s *scope) monitored(data tree, v *value, days int64) {
	if v != nil && v.shape == list {
		v = v.items[0]
	}
	if got, ok := dataInput.read(s.in("input_data"), v.get("input_data")).(tree); ok {
		data["uri"] = got["uri"]
	}
	if data["windowSize"] == "default" {
		data["windowSize"] = isoDays(days)
	}
}

// triggerDays is how many days pass between two runs of a monitor.
func triggerDays(v *value) int64 {
	n, ok := wholeOf(or(v.get("interval"), v))
	if !ok || !n.IsInt64() {
		return 7
	}
	switch strings.ToLower(v.textOf("frequency")) {
	case "minute", "hour":
		return 1
	case "day":
		return n.Int64()
	case "week":
		return 7 * n.Int64()
	case "month":
		return 30 * n.Int64()
	}
	return 7
}

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

func isoDays(n int64) string { return "P" + strconv.FormatInt(n, 10) + "D" }

func orElse(v, otherwise any) any {
	if v == nil {
		return otherwise
	}
	return v
}

// monitor watches the data and the answers of a deployed model.
var monitor = obj(
	f("compute", obj(
		is("computeType", "ServerlessSpark"),
		is("computeIdentity.computeIdentityType", "AmlToken"),
		f("instance_type", text, required),
		f("runtime_version", numberVersion, required),
	), to("computeConfiguration"), required),
	f("monitoring_target", obj(
		f("ml_task", enum("classification", "regression", "questionanswering"), to("taskType")),
		f("endpoint_deployment_id", deploymentID, to("deploymentId")),
		f("model_id", typ{name: "a model", read: func(s *scope, v *value) any {
			ref, ok := readText(s, v).(string)
			if !ok || !strings.HasPrefix(ref, "azureml:") {
				return readText(s, v)
			}
			return s.assetID("models", ref)
		}}),
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
	f("data_segment", obj(f("feature_name", text, to("feature")), f("feature_values", listOf(text), to("values")))),
	f("feature_type_override", textMap, to("featureDataTypeOverride")),
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
	groups := append([]pair(nil), v.pairs...)
	last := map[string]int{"categorical": 1}
	slices.SortStableFunc(groups, func(a, b pair) int { return last[a.key] - last[b.key] })
	for _, p := range groups {
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
