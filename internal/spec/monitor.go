package spec

var monitorSchedule = obj(
	scheduleCommon,
	f("create_monitor", monitor, to("action.monitorDefinition")),
	is("action.actionType", "CreateMonitor"),
)

// monitor watches the data and answers of a deployed model.
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
		f("endpoint_deployment_id", text, to("deploymentId")),
		f("model_id", text),
	)),
	f("monitoring_signals", mapOf(signal), to("signals")),
	f("alert_notification", oneOf(enum("azmonitoring"), obj(f("emails", listOf(text)))), to("alertNotificationSettings")),
)

// signal is one thing a monitor looks at. Its thresholds are the user's words: they travel as they are written.
var signal = typ{name: "a signal", read: func(s *scope, v *value) any {
	kinds := map[string]string{
		"data_drift": "DataDrift", "data_quality": "DataQuality", "prediction_drift": "PredictionDrift",
		"feature_attribution_drift": "FeatureAttributionDrift", "model_performance": "ModelPerformance",
		"generation_safety_quality": "GenerationSafetyQuality", "generation_token_statistics": "GenerationTokenStatistics",
		"custom": "Custom",
	}
	name, ok := kinds[snakeWords(v.textOf("type"))]
	if !ok {
		at := or(v.get("type"), v)
		s.in("type").failWith(at, nearest(v.textOf("type"), sortedWords(kinds)), "%s is no type of signal", describe(at))
		return nil
	}
	return obj(
		is("signalType", name),
		f("type", text, unsent),
		f("alert_enabled", flag, def(false)),
		f("production_data", oneOrList(monitorData)),
		f("reference_data", monitorData),
		f("metric_thresholds", anything),
		f("features", anything),
		f("data_segment", freeMap),
		f("feature_type_override", textMap),
		f("feature_importance", freeMap),
		f("connection_id", text),
		f("workspace_connection_id", text),
		f("workspace_connection", freeMap),
		f("sampling_rate", decimal),
		f("properties", freeMap),
		f("component_id", text),
		f("inputs", mapOf(input)),
		f("input_data", mapOf(monitorData)),
		f("input_literals", mapOf(input)),
	).read(s, v)
}}

var monitorData = obj(
	f("input_data", dataInput, required),
	f("data_context", looseEnum("model_inputs", "model_outputs", "training", "test", "validation", "ground_truth")),
	f("data_column_names", textMap, to("columns")),
	f("pre_processing_component", text, to("preprocessingComponentId")),
	f("data_window", obj(
		f("lookback_window_size", text),
		f("lookback_window_offset", text),
		f("window_start", text),
		f("window_end", text),
	)),
)
