package spec

import (
	"fmt"
	"strings"
)

// fineTuningJob trains a model further; who made the model decides what can be set.
var fineTuningJob = flat(fineTuningJobParts)

func fineTuningJobParts() []part {
	return []part{
		is("jobType", "FineTuning"),
		f("type", enum("finetuning"), required, unsent),
		f("outputs", outputs, def(tree{})),
		f("queue_settings", queueSettings),
		f("resources", obj(f("instance_types", listOf(text)))),
		f("compute", bareName, to("computeId")),
		f("model_provider", looseEnum("azure_open_ai=AzureOpenAI", "custom=Custom"), to("fineTuningDetails.modelProvider"), required),
		f("task", tuningTask, to("fineTuningDetails.taskType"), required),
		f("model", tunedModel, to("fineTuningDetails.model"), required),
		f("training_data", tuningData, to("fineTuningDetails.trainingData")),
		f("validation_data", tuningData, to("fineTuningDetails.validationData")),
		f("hyperparameters", anything, unsent),
		jobCommon,
		then(func(s *scope, v *value) {
			details := s.out.sub("fineTuningDetails")
			if m, ok := asTree(details["model"]); ok {
				m["jobInputType"] = "mlflow_model"
				delete(m, "mode")
			}
			h := v.get("hyperparameters")
			if h == nil {
				return
			}
			t := jobMap
			if details["modelProvider"] == "AzureOpenAI" {
				t = obj(f("n_epochs", whole), f("learning_rate_multiplier", decimal), f("batch_size", whole))
			}
			details["hyperParameters"] = t.read(s.in("hyperparameters"), h)
		}),
	}
}

// bareName is a reference without azureml: before it; the service resolves it.
var bareName = typ{name: "a reference", readFunc: func(s *scope, v *value) any {
	ref, ok := readText(s, v).(string)
	if !ok || registryForm.MatchString(ref) {
		return readText(s, v)
	}
	return strings.TrimPrefix(ref, "azureml:")
}}

// tunedModel is the model that is trained further: nothing of it is uploaded.
var tunedModel = typ{name: "a model", readFunc: func(s *scope, v *value) any {
	m := s.mark()
	got, _ := asTree(dataInput.read(s, v))
	if s.failed(m) || got == nil {
		return nil
	}
	_ = s.back(m) // what it would upload
	if path := v.get("path"); path != nil {
		got["uri"] = bareName.read(s, path)
	}
	return got
}}

var tuningTask = looseEnum("chat_completion=chatCompletion", "text_completion=textCompletion", "text_classification=textClassification",
	"question_answering=questionAnswering", "text_summarization=textSummarization", "token_classification=tokenClassification",
	"text_translation=textTranslation", "image_classification=imageClassification",
	"image_instance_segmentation=imageInstanceSegmentation", "image_object_detection=imageObjectDetection",
	"video_multi_object_tracking=videoMultiObjectTracking")

// tuningData is a file, as a path or as an input.
var tuningData = typ{name: "a path or an input", readFunc: func(s *scope, v *value) any {
	if path := v.get("path"); v.shape == mapping && (path == nil || path.empty()) || v.shape == str && v.text == "" {
		s.in("path").fail(v, "is required")
		return nil
	}
	if v.shape == str {
		return tree{"jobInputType": "uri_file", "uri": s.dataPath(v, v.newMap().with("type", v.newText("uri_file")))}
	}
	got, _ := asTree(dataInput.read(s, v))
	if got == nil {
		return nil
	}
	return tree{"jobInputType": "uri_file", "uri": got["uri"]}
}}

// distillationJob trains a small model on the answers of a large one. It travels as fine-tuning
// with properties.
var distillationJob = flat(distillationJobParts)

func distillationJobParts() []part {
	return []part{
		is("jobType", "FineTuning"),
		is("fineTuningDetails.taskType", "ChatCompletion"),
		is("fineTuningDetails.modelProvider", "Custom"),
		f("type", enum("distillation"), required, unsent),
		f("outputs", outputs, def(tree{})),
		f("compute", text, unsent),
		f("resources", obj(f("instance_count", whole), f("instance_type", text), f("properties", freeMap)), unsent),
		f("data_generation_type", enum("label_generation", "data_generation"), unsent, required),
		f("data_generation_task_type", enum("nli=NLI", "nlu_qa=NLU_QA", "conversation=CONVERSATION", "math=MATH", "summarization=SUMMARIZATION"), unsent, required),
		f("teacher_model_endpoint_connection", typ{name: "a connection", readFunc: func(s *scope, v *value) any {
			d := *s
			d.draft = &draft{body: tree{}}
			connectionKind.fill((&d).into(tree{}), v)
			return nil
		}}, unsent, required),
		f("teacher_model_settings", obj(
			f("inference_parameters", freeMap),
			f("endpoint_request_settings", obj(f("request_batch_size", whole), f("min_endpoint_success_ratio", decimal))),
		), unsent),
		f("prompt_settings", obj(f("enable_chain_of_thought", flag), f("enable_chain_of_density", flag), f("max_len_summary", whole)), unsent),
		f("student_model", oneOf(typ{name: "a reference", readFunc: func(s *scope, v *value) any {
			if v.shape != str || !s.checkAsset(v, "models", false) {
				if v.shape != str {
					s.fail(v, "must be a reference, not %s", v.shape)
				}
				return nil
			}
			return tree{"jobInputType": "mlflow_model", "uri": bareName.read(s, v)}
		}}, tunedModel), to("fineTuningDetails.model"), required),
		f("training_data", tuningData, to("fineTuningDetails.trainingData")),
		f("validation_data", tuningData, to("fineTuningDetails.validationData")),
		f("hyperparameters", jobMap, to("fineTuningDetails.hyperParameters")),
		jobCommon,
		then(distillation),
	}
}

// distillation writes the settings that travel as properties, all of them text.
func distillation(s *scope, v *value) {
	props := s.out.sub("properties")
	if m, ok := asTree(s.out.at("fineTuningDetails.model")); ok {
		m["jobInputType"] = "mlflow_model"
		delete(m, "mode")
	}
	teacher := v.get("teacher_model_endpoint_connection")
	if teacher == nil || teacher.shape != mapping {
		return // that was said
	}
	if !teacher.has("name") {
		s.in("teacher_model_endpoint_connection.name").fail(teacher, "is required")
	}
	props["azureml.enable_distillation"] = "True"
	props["azureml.data_generation_task_type"] = strings.ToUpper(v.textOf("data_generation_task_type"))
	props["azureml.data_generation_type"] = strings.ToLower(v.textOf("data_generation_type"))
	props["azureml.teacher_model.endpoint_name"] = teacher.textOf("name")
	props["azureml.connection_information"] = connectionText(teacher)
	prompt := v.get("prompt_settings")
	if prompt != nil {
		for _, key := range []string{"enable_chain_of_thought", "enable_chain_of_density"} {
			props["azureml."+key] = "False"
			if w := prompt.get(key); w != nil && readFlag(&scope{load: &load{}}, w) == true {
				props["azureml."+key] = "True"
			}
		}
		if w := prompt.get("max_len_summary"); w != nil {
			props["azureml.max_len_summary"] = w.python()
		}
	}
	settings := v.get("teacher_model_settings")
	for _, p := range settings.get("inference_parameters").entries() {
		props["azureml.teacher_model."+p.key] = p.val.python()
	}
	for _, p := range settings.get("endpoint_request_settings").entries() {
		props["azureml."+p.key] = p.val.python()
	}
	if size := v.get("resources").textOf("instance_type"); size != "" {
		props["azureml.instance_type.data_generation"] = size
	}
}

// connectionText is a connection as JSON text.
func connectionText(v *value) string {
	creds, target, more := `{"type": "none"}`, v.textOf("target"), ""
	if key := v.get("api_key"); key != nil {
		target = v.textOf("endpoint")
		creds = fmt.Sprintf(`{"type": "api_key", "key": %s}`, quoteJSON(key.text))
		more = fmt.Sprintf(`, "api_key": %s, "endpoint": %s`, quoteJSON(key.text), quoteJSON(target))
	} else if c := v.get("credentials").textOf("type"); c != "" {
		creds = fmt.Sprintf(`{"type": %s}`, quoteJSON(snakeWords(c)))
	}
	about := ""
	for _, key := range []string{"id", "description"} {
		if d := v.get(key); d != nil {
			about += fmt.Sprintf(`, %q: %s`, key, quoteJSON(d.text))
		}
	}
	meta := v.newMap()
	for _, key := range []string{"tags", "metadata"} { // the old name and the new
		for _, p := range v.get(key).entries() {
			meta.set(p.key, p.val)
		}
	}
	labels, shared := meta.blankedJSON(), "true"
	if w := v.get("is_shared"); w != nil && readFlag(&scope{load: &load{}}, w) == false {
		shared = "false"
	}
	return fmt.Sprintf(`{"name": %s%s, "tags": %s, "type": %s, "target": %s, "credentials": %s, "is_shared": %s, "metadata": %s%s}`,
		quoteJSON(v.textOf("name")), about, labels, quoteJSON(snakeWords(v.textOf("type"))), quoteJSON(target), creds, shared, labels, more)
}

// blankedJSON is v as JSON in one line, with a blank after each comma and colon.
func (v *value) blankedJSON() string {
	var parts []string
	switch v.shape {
	case mapping:
		for _, p := range v.pairs {
			parts = append(parts, quoteJSON(p.key)+": "+p.val.blankedJSON())
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case list:
		for _, it := range v.items {
			parts = append(parts, it.blankedJSON())
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	b, err := encode(v.raw())
	if err != nil {
		return "null"
	}
	return string(b)
}
