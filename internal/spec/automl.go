package spec

import (
	"strings"
)

// automlTasks are the tasks of automated machine learning; the table of each writes taskDetails.
// They are made when a file first needs them: no other tables are as large.
var automlTasks = lazy[map[string]typ]{make: func() map[string]typ {
	return map[string]typ{
		"classification": tabular("Classification",
			metric("auc_weighted", classMetrics...),
			f("positive_label", text),
			f("training", trainingOf(classModels), to("trainingSettings")),
		),
		"regression": tabular("Regression",
			metric("normalized_root_mean_squared_error", regressionMetrics...),
			f("training", trainingOf(regressionModels), to("trainingSettings")),
		),
		"forecasting": tabular("Forecasting",
			metric("normalized_root_mean_squared_error", regressionMetrics...),
			f("training", trainingOf(forecastModels), to("trainingSettings")),
			f("forecasting", forecasting, to("forecastingSettings")),
		),
		"image_classification":            image("ImageClassification", imageClassifier(), metric("accuracy", classMetrics...)),
		"image_classification_multilabel": image("ImageClassificationMultilabel", imageClassifier(), metric("iou", append([]string{"IOU"}, classMetrics...)...)),
		"image_object_detection":          image("ImageObjectDetection", imageDetector(), metric("mean_average_precision", "MeanAveragePrecision")),
		"image_instance_segmentation":     image("ImageInstanceSegmentation", imageDetector(), metric("mean_average_precision", "MeanAveragePrecision")),
		"text_classification":             language("TextClassification", metric("accuracy", classMetrics...), f("target_column_name", text, required)),
		"text_classification_multilabel":  language("TextClassificationMultilabel", f("primary_metric", looseEnum("accuracy=Accuracy"), unsent, def("Accuracy")), f("target_column_name", text, required)),
		"text_ner": language("TextNER", f("primary_metric", looseEnum("accuracy=Accuracy"), unsent, def("Accuracy")),
			f("target_column_name", text, unsent)),
	}
}}

// The measures and algorithms, in the spelling of the service; in YAML they are in snake_case.
var (
	classMetrics      = []string{"AUCWeighted", "Accuracy", "NormMacroRecall", "AveragePrecisionScoreWeighted", "PrecisionScoreWeighted"}
	regressionMetrics = []string{"SpearmanCorrelation", "NormalizedRootMeanSquaredError", "R2Score", "NormalizedMeanAbsoluteError"}
	classModels       = []string{
		"LogisticRegression", "SGD", "MultinomialNaiveBayes", "BernoulliNaiveBayes", "SVM", "LinearSVM", "KNN",
		"DecisionTree", "RandomForest", "ExtremeRandomTrees", "LightGBM", "GradientBoosting", "XGBoostClassifier",
	}
	regressionModels = []string{
		"ElasticNet", "GradientBoosting", "DecisionTree", "KNN", "LassoLars", "SGD", "RandomForest",
		"ExtremeRandomTrees", "LightGBM", "XGBoostRegressor",
	}
	forecastModels = append([]string{
		"AutoArima", "Prophet", "Naive", "SeasonalNaive", "Average", "SeasonalAverage",
		"ExponentialSmoothing", "Arimax", "TCNForecaster",
	}, regressionModels...)
	metaLearners = []string{
		"None", "LogisticRegression", "LogisticRegressionCV", "LightGBMClassifier", "ElasticNet", "ElasticNetCV",
		"LightGBMRegressor", "LinearRegression",
	}
	transformers = []string{
		"TextTargetEncoder", "OneHotEncoder", "CatTargetEncoder", "TfIdf", "WoETargetEncoder", "LabelEncoder",
		"WordEmbedding", "NaiveBayes", "CountVectorizer", "HashOneHotEncoder",
	}
)

// served is an enum of words in the service's spelling.
func served(words ...string) typ {
	pairs := make([]string, len(words))
	for i, w := range words {
		pairs[i] = pythonSnake(w) + "=" + w
	}
	return typ{choice: &choice{words: pairs, fold: pythonSnake}}
}

// metric is the measure that is optimised; the task has one when the file names none.
func metric(fallback string, words ...string) part {
	becomes := ""
	for _, w := range words {
		if pythonSnake(w) == fallback {
			becomes = w
		}
	}
	return f("primary_metric", served(words...), def(becomes))
}

// automlJob is a job whose task says what else it has.
var automlJob = typ{name: "a job", readFunc: func(s *scope, v *value) any {
	t, ok := s.automlTask(v)
	if !ok {
		return nil
	}
	details := tree{}
	table := obj(
		is("jobType", "AutoML"),
		f("type", enum("automl"), required, unsent),
		f("environment_id", text),
		f("environment_variables", textMap),
		f("outputs", outputs, def(tree{})),
		f("resources", resources),
		f("queue_settings", queueSettings),
		jobCommon,
		tableFields(t),
	)
	table.table.fill(s, v)
	outs, _ := asTree(s.out["outputs"])
	for _, o := range outs {
		if out, ok := asTree(o); ok { // azure-ai-ml sends a folder whatever was written; steps of pipelines keep their types
			out["jobOutputType"] = "uri_folder"
		}
	}
	t.table.fill(s.into(details), v.only(t.table.names()))
	s.out["taskDetails"] = details
	return nil
}}

// tableFields are the keys of a table, allowed and not sent: another pass reads them.
func tableFields(t typ) part {
	var ps parts
	for _, fd := range t.table.ready().fields {
		ps = append(ps, f(fd.name, anything, unsent))
	}
	return ps
}

// only is v with some keys alone.
func (v *value) only(keys []string) *value {
	w := *v
	w.pairs = nil
	for _, k := range keys {
		for _, p := range v.pairs {
			if p.key == k {
				w.pairs = append(w.pairs, p)
			}
		}
	}
	return &w
}

func (s *scope) automlTask(v *value) (typ, bool) {
	task := v.get("task")
	if task == nil || task.shape != str {
		s.in("task").fail(or(task, v), "is required: one of %s", strings.Join(sortedWords(automlTasks.get()), ", "))
		return typ{}, false
	}
	t, ok := automlTasks.get()[pythonSnake(task.text)]
	if ok = ok && (s.bind || task.text == pythonSnake(task.text)) && task.text != strings.ToUpper(task.text); !ok {
		s.in("task").failWith(task, nearest(task.text, sortedWords(automlTasks.get())), "%s is not a known task", describe(task))
	}
	return t, ok
}

// automlCommon are the fields of every task.
func automlCommon(name string) parts {
	return parts{
		is("taskType", name),
		f("task", text, unsent),
		f("log_verbosity", served("NotSet", "Debug", "Info", "Warning", "Error", "Critical"), def("Info")),
		f("training_data", tableInput),
		f("validation_data", tableInput),
	}
}

// tableInput is an MLTable. In a node of a pipeline it may be named by a text.
var tableInput = typ{name: "an MLTable", yaml: func(s *scope, v *value) any {
	if v.shape == str {
		return v.text
	}
	got, ok := asTree(readTable(s, v))
	if !ok {
		return nil
	}
	out := tree{"type": "mltable", "path": got["uri"]}
	for _, key := range []string{"mode", "path_on_compute"} {
		if v.has(key) {
			out[key] = strings.ToLower(v.textOf(key))
		}
	}
	return out
}, readFunc: readTable}

func readTable(s *scope, v *value) any {
	m := s.mark()
	plain := *s
	plain.nodes, plain.yaml = false, false
	got, _ := asTree(dataInput.read(&plain, v))
	if v.shape == mapping && v.textOf("path") == "" {
		s.in("path").fail(v, "is required")
	}
	if s.failed(m) {
		return nil
	}
	if kind := v.get("type"); kind != nil && !strings.EqualFold(kind.text, "mltable") {
		s.in("type").fail(kind, "must be mltable, not %s", describe(kind))
		return nil
	}
	return tree{"jobInputType": "mltable", "uri": got["uri"]}
}

func tabular(name string, own ...part) typ {
	return obj(automlCommon(name), parts(own),
		f("target_column_name", text, required),
		f("validation_data_size", decimal),
		f("cv_split_column_names", listOf(text)),
		f("n_cross_validations", autoOr(whole, "value")),
		f("weight_column_name", text),
		f("test_data", tableInput),
		f("test_data_size", decimal),
		f("limits", tabularLimits, to("limitSettings")),
		f("featurization", featurization, to("featurizationSettings")),
	)
}

var tabularLimits = later(tabularLimitsParts)

func tabularLimitsParts() []part {
	return []part{
		f("enable_early_termination", flag),
		f("exit_score", decimal),
		f("max_concurrent_trials", whole),
		f("max_cores_per_trial", whole),
		f("max_nodes", whole),
		f("max_trials", whole),
		f("timeout_minutes", minutes, to("timeout")),
		f("trial_timeout_minutes", minutes, to("trialTimeout")),
		is("sweepConcurrentTrials", 0),
		is("sweepTrials", 0),
	}
}

// autoOr is "auto", or a value that travels under a name: {"mode": "Custom", "value": 5}.
func autoOr(t typ, name string) typ {
	return typ{name: "auto or " + t.name, yaml: func(s *scope, v *value) any {
		if v.shape == str && strings.EqualFold(v.text, "auto") {
			return "auto"
		}
		return t.take(s, v)
	}, readFunc: func(s *scope, v *value) any {
		if v.shape == str && strings.EqualFold(v.text, "auto") {
			return tree{"mode": "Auto"}
		}
		got := t.read(s, v)
		if got == nil || v.empty() {
			return nil
		}
		return tree{"mode": "Custom", name: got}
	}}
}

// oneOrList is a value or a list of them, and travels as a list.
func oneOrList(t typ) typ {
	return typ{name: t.name + " or a list", yaml: func(s *scope, v *value) any {
		if v.shape == list {
			return listOf(t).read(s, v)
		}
		return t.take(s, v)
	}, readFunc: func(s *scope, v *value) any {
		if v.shape == list {
			return listOf(t).read(s, v)
		}
		if got := t.read(s, v); got != nil {
			return []any{got}
		}
		return nil
	}}
}

var featurization = later(featurizationParts)

func featurizationParts() []part {
	return []part{
		f("mode", enum("auto", "off", "custom"), def("auto")),
		f("dataset_language", text),
		f("blocked_transformers", listOf(served(transformers...))),
		f("column_name_and_types", textMap),
		f("transformer_params", transformerParams),
		f("enable_dnn_featurization", flag),
	}
}

// transformerParams are settings of transformers by name.
var transformerParams = typ{name: "a mapping", readFunc: func(s *scope, v *value) any {
	names := map[string]string{"imputer": "Imputer", "tf_idf": "TfIdf", "hash_one_hot_encoder": "HashOneHotEncoder"}
	value := mapOf(orNull(oneOf(decimal, text)))
	m, ok := asTree(mapOf(listOf(obj(f("fields", listOf(text)), f("parameters", value)))).read(s, v))
	if !ok {
		return nil
	}
	out := tree{}
	for _, p := range v.pairs {
		name, ok := names[pythonSnake(p.key)]
		if s.yaml {
			name = pythonSnake(p.key)
		}
		if !ok {
			s.in(p.key).failWith(p.at, nearest(p.key, sortedWords(names)), "%s is not a transformer with parameters", p.key)
			continue
		}
		out[name] = m[p.key]
	}
	return out
}}

func trainingOf(models []string) typ {
	return obj(
		f("enable_dnn_training", flag),
		f("enable_model_explainability", flag),
		f("enable_onnx_compatible_models", flag),
		f("enable_stack_ensemble", flag),
		f("enable_vote_ensemble", flag),
		f("ensemble_model_download_timeout_minutes", minutes, to("ensembleModelDownloadTimeout")),
		f("stack_ensemble_settings", obj(
			f("stack_meta_learner_kwargs", freeMap, to("stackMetaLearnerKWargs")),
			f("stack_meta_learner_train_percentage", decimal),
			f("stack_meta_learner_type", served(metaLearners...), required),
		)),
		f("training_mode", served("Auto", "Distributed", "NonDistributed")),
		f("allowed_training_algorithms", listOf(served(models...))),
		f("blocked_training_algorithms", listOf(served(models...))),
	)
}

var forecasting = later(forecastingParts)

func forecastingParts() []part {
	return []part{
		f("time_column_name", text),
		f("forecast_horizon", autoOr(whole, "value")),
		f("time_series_id_column_names", oneOrList(text)),
		f("frequency", text),
		f("target_lags", autoOr(oneOrList(whole), "values")),
		f("target_rolling_window_size", autoOr(whole, "value")),
		f("seasonality", autoOr(whole, "value")),
		f("feature_lags", enum("none", "auto")),
		f("use_stl", enum("none", "season", "seasontrend")),
		f("short_series_handling_config", enum("none", "auto", "pad", "drop")),
		f("target_aggregate_function", enum("none", "sum", "max", "min", "mean")),
		f("country_or_region_for_holidays", text),
		f("cv_step_size", whole),
		f("features_unknown_at_forecast_time", oneOrList(text)),
	}
}

// language is a task on text.
func language(name string, own ...part) typ {
	return obj(automlCommon(name), parts(own),
		f("limits", obj(
			f("max_concurrent_trials", whole),
			f("max_trials", whole, def(1)),
			f("max_nodes", whole, def(1)),
			f("timeout_minutes", minutes, to("timeout")),
			f("trial_timeout_minutes", minutes, to("trialTimeout")),
		), to("limitSettings"), def(tree{"maxNodes": 1, "maxTrials": 1})),
		f("sweep", automlSweep, to("sweepSettings")),
		f("training_parameters", settingsOf(languageParameters(), nil), to("fixedParameters")),
		f("search_space", listOf(settingsOf(languageParameters(), drawn))),
		f("featurization", obj(f("dataset_language", text)), to("featurizationSettings")),
	)
}

// image is a task on pictures.
func image(name string, parameters []parameterSpec, own ...part) typ {
	return obj(automlCommon(name), parts(own),
		f("target_column_name", text, required),
		f("validation_data_size", decimal),
		f("test_data", tableInput),
		f("test_data_size", decimal),
		f("limits", obj(
			f("max_concurrent_trials", whole),
			f("max_trials", whole),
			f("timeout_minutes", minutes, to("timeout")),
		), to("limitSettings")),
		f("sweep", automlSweep, to("sweepSettings")),
		f("training_parameters", settingsOf(parameters, nil), to("modelSettings")),
		f("search_space", listOf(settingsOf(parameters, searched))),
	)
}

var automlSweep = later(automlSweepParts)

func automlSweepParts() []part {
	return []part{
		f("sampling_algorithm", looseEnum("random", "grid", "bayesian"), required),
		f("early_termination", earlyTermination),
	}
}
