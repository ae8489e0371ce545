package spec

import (
	"strings"
)

// signalKind is a sort of thing a monitor looks at.
type signalKind struct {
	table typ
	// compares are the data it needs; a deployment that is watched can give them.
	compares []string
}

// signals are the sorts of signals there are.
var signals = lazy[map[string]signalKind]{make: func() map[string]signalKind {
	return map[string]signalKind{
		"data_drift": {compares: bothData, table: signalOf("DataDrift",
			f("production_data", productionData),
			f("reference_data", referenceData),
			f("metric_thresholds", driftThresholds.get()),
			featureFields,
			dataSegment,
			f("properties", freeMap),
		)},
		"data_quality": {compares: bothData, table: signalOf("DataQuality",
			f("production_data", productionData),
			f("reference_data", referenceData),
			f("metric_thresholds", thresholdsOf(0, qualityMetrics, qualityMetrics)),
			featureFields,
			f("properties", freeMap),
		)},
		"prediction_drift": {compares: bothData, table: signalOf("PredictionDrift",
			is("modelType", "classification"),
			f("production_data", productionData),
			f("reference_data", referenceData),
			f("metric_thresholds", driftThresholds.get(), required),
			f("properties", freeMap),
		)},
		"feature_attribution_drift": {compares: []string{"production_data"}, table: signalOf("FeatureAttributionDrift",
			f("production_data", listOf(attributedData)),
			f("reference_data", referenceData, required),
			f("metric_thresholds", obj(
				is("metric", "normalizedDiscountedCumulativeGain"),
				f("normalized_discounted_cumulative_gain", decimal, to("threshold.value")),
				f("threshold", decimal, unsent),
			), to("metricThreshold"), required),
		)},
		"model_performance": {table: signalOf("ModelPerformance",
			f("production_data", asList(productionData), required),
			f("reference_data", referenceData, required),
			f("metric_thresholds", performance, to("performance"), required),
			// The client sends this one whatever the file says; what it says is a property.
			is("metricThreshold", tree{"metric": "Accuracy", "modelType": "Classification", "threshold": tree{"value": number("0.9")}}),
			dataSegment,
			f("properties", freeMap),
			then(func(s *scope, _ *value) {
				if said, ok := s.out["performance"].(string); ok && said != "" {
					s.out.sub("properties")["azureml.modelmonitor.model_performance_thresholds"] = said
				}
				delete(s.out, "performance")
			}),
		)},
		"generation_safety_quality": {table: signalOf("GenerationSafetyQuality",
			f("production_data", listOf(spokenData)),
			f("connection_id", text, to("workspaceConnectionId")),
			f("metric_thresholds", aspects, required),
			f("sampling_rate", decimal),
			f("properties", freeMap),
		)},
		"generation_token_statistics": {table: signalOf("GenerationTokenStatistics",
			f("production_data", spokenData),
			f("metric_thresholds", tokenCounts, def([]any{limitOf("TotalTokenCount", number("0.0")), limitOf("TotalTokenCountPerGroup", number("0.0"))})),
			f("sampling_rate", decimal, def(number("0.1"))),
			f("properties", freeMap),
		)},
		"custom": {table: signalOf("Custom", customSignal)},
	}
}}

var bothData = []string{"production_data", "reference_data"}

func signalOf(name string, own ...part) typ {
	return later(func() []part {
		return []part{
			is("signalType", name),
			f("type", text, required, unsent),
			f("alert_enabled", onOff("Enabled", "Disabled"), to("mode"), def("Disabled")),
			parts(own),
		}
	})
}

// signal is one thing a monitor looks at.
var signal = typ{name: "a signal", readFunc: func(s *scope, v *value) any {
	if v.shape != mapping {
		s.fail(v, "must be a mapping, not %s", v.shape)
		return nil
	}
	word := strings.ToLower(v.textOf("type"))
	kind, ok := signals.get()[word]
	if !ok {
		at := or(v.get("type"), v)
		s.in("type").failWith(at, nearest(word, sortedWords(signals.get())), "%s is not a signal type", describe(at))
		return nil
	}
	return kind.table.read(s, v)
}}

var customSignal = lazyParts(func() parts {
	return parts{
		f("component_id", typ{name: "a component", readFunc: func(s *scope, v *value) any {
			if id, ok := readText(s, v).(string); ok && s.checkOwn(v, "components") {
				return strings.TrimPrefix(id, "azureml:")
			}
			return nil
		}}, required),
		f("connection", obj(f("environment_variables", textMap), f("secret_config", textMap, to("secrets"))), to("workspaceConnection"), def(tree{})),
		f("metric_thresholds", listOf(obj(
			f("metric_name", text, to("metric"), required),
			f("threshold", decimal, to("threshold.value")),
		)), required),
		f("input_data", mapOf(namedData), to("inputAssets")),
		f("inputs", mapOf(input)),
	}
})

var featureFields = lazyParts(func() parts {
	return parts{
		f("features", featureFilter),
		f("feature_type_override", freeMap, to("featureDataTypeOverride")),
	}
})

var dataSegment = lazyParts(func() parts {
	return parts{f("data_segment", obj(f("feature_name", text, to("feature")), f("feature_values", listOf(text), to("values"))))}
})

// featureFilter says which features are looked at: all, some by name, or those that matter most.
var featureFilter = typ{name: "all_features, a list or a mapping", readFunc: func(s *scope, v *value) any {
	switch v.shape {
	case str:
		if enum("all_features").read(s, v) == nil {
			return nil
		}
		return tree{"filterType": "AllFeatures"}
	case list:
		return tree{"filterType": "FeatureSubset", "features": listOf(text).read(s, v)}
	}
	return obj(is("filterType", "TopNByAttribution"), f("top_n_feature_importance", whole, to("top"), def(number("10")))).read(s, v)
}}

// watched are the fields of data that a signal looks at.
var watched = lazyParts(func() parts {
	return parts{
		f("input_data", dataInput, required, unsent),
		f("data_column_names", textMap, to("columns")),
		f("data_window", obj(
			f("lookback_window_size", text, to("windowSize")),
			f("lookback_window_offset", text, to("windowOffset")),
			f("window_start", text),
			f("window_end", text),
		), to("window")),
		then(func(s *scope, v *value) {
			in := v.get("input_data")
			if in == nil {
				return
			}
			if in.shape == mapping && in.textOf("path") == "" {
				s.in("input_data.path").fail(in, "is required")
			}
			if got, ok := asTree(dataInput.read(s.in("input_data"), in)); ok {
				s.out["jobInputType"], s.out["uri"] = got["jobInputType"], got["uri"]
			}
		}),
	}
})

var watchedContext = lazyParts(func() parts {
	return parts{
		watched,
		f("data_context", enum("model_inputs", "model_outputs", "training", "test", "validation", "ground_truth")),
		f("pre_processing_component", typ{name: "a component", readFunc: func(s *scope, v *value) any {
			ref, ok := readText(s, v).(string)
			if !ok {
				return nil
			}
			if !strings.HasPrefix(ref, "azureml:") { // a bare name is one too
				ref = "azureml:" + ref
			}
			if !s.checkAsset(v.newText(ref), "components", true) {
				return nil
			}
			return s.assetID("components", ref)
		}}, to("preprocessingComponentId")),
	}
})

// The data of the signals: what was asked of a model lately, as a rule, and what that is compared
// with.
var (
	productionData = later(func() []part {
		return []part{watchedContext, then(func(s *scope, v *value) {
			for _, key := range []string{"window_start", "window_end"} {
				if at := v.get("data_window").get(key); at != nil && !at.empty() {
					s.in("data_window."+key).fail(at, "is not supported for production data, whose window moves")
				}
			}
			s.trailing(true)
		})}
	})
	attributedData = later(func() []part {
		return []part{watchedContext, then(func(s *scope, v *value) {
			columns := []string{"prediction", "prediction_probability", "correlation_id"}
			for _, p := range v.get("data_column_names").entries() {
				enum(columns...).read(s.in("data_column_names."+p.key), p.at)
			}
			s.trailing(!v.has("data_window"))
		})}
	})
	spokenData = later(func() []part {
		return []part{f("data_column_names", freeMap, to("columns")), watched, then(func(s *scope, v *value) { s.trailing(!v.has("data_window")) })}
	})
	referenceData = later(func() []part {
		return []part{watchedContext, f("target_column_name", text, unsent), then(standing)}
	})
	// namedData is known to the service by its name.
	namedData = later(func() []part {
		return []part{more(referenceData), then(func(s *scope, v *value) {
			if short, ok := strings.CutPrefix(v.get("input_data").textOf("path"), "azureml:"); ok {
				s.out["uri"] = short
			}
		})}
	})
)

// trailing gives data a window that moves with the runs of the monitor.
func (s *scope) trailing(sized bool) {
	window, _ := asTree(s.out["window"])
	delete(s.out, "window")
	s.out["inputDataType"], s.out["windowOffset"] = "Trailing", "P0D"
	for _, key := range []string{"windowSize", "windowOffset"} {
		if window[key] != nil {
			s.out[key] = window[key]
		}
	}
	if sized && s.out["windowSize"] == nil {
		s.out["windowSize"] = defaultWindow
	}
}

// standing is the window of a reference: one that moves, one that stands, or all there is.
func standing(s *scope, v *value) {
	window, _ := asTree(s.out["window"])
	switch {
	case window["windowSize"] != nil:
		s.trailing(false)
		return
	case window["windowStart"] != nil && window["windowEnd"] != nil:
		s.out["inputDataType"] = "Static"
		for key, name := range map[string]string{"window_start": "windowStart", "window_end": "windowEnd"} {
			day, ok := isoDay(window.text(name))
			if !ok {
				s.in("data_window."+key).fail(v.get("data_window").get(key), "must be a date such as 2026-01-31, not %s", describe(v.get("data_window").get(key)))
			}
			s.out[name] = day
		}
	default:
		s.out["inputDataType"] = "Fixed"
		delete(s.out, "preprocessingComponentId")
	}
	delete(s.out, "window")
}

// asList is a value that travels as a list of one.
func asList(t typ) typ {
	read := t.read
	t.readFunc = func(s *scope, v *value) any {
		if got := read(s, v); got != nil {
			return []any{got}
		}
		return nil
	}
	return t
}
