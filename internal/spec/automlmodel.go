package spec

// A setting of a model can be given, searched over, or both.
func setting(name string, t typ) parameterSpec { return parameterSpec{name, t, true, true} }

func onlyGiven(name string, t typ) parameterSpec {
	return parameterSpec{name: name, typ: t, fixed: true}
}

func onlySearched(name string, t typ) parameterSpec {
	return parameterSpec{name: name, typ: t, search: true}
}

var (
	learningSchedule = looseEnum("none=None", "warmup_cosine=WarmupCosine", "step=Step")
	optimizer        = looseEnum("none=None", "sgd=Sgd", "adam=Adam", "adamw=Adamw")
	modelSize        = looseEnum("none=None", "small=Small", "medium=Medium", "large=Large", "extra_large=ExtraLarge")
	validationMetric = looseEnum("none=None", "coco=Coco", "voc=Voc", "coco_voc=CocoVoc")
	textSchedule     = looseEnum("none=None", "linear=Linear", "cosine=Cosine", "cosine_with_restarts=CosineWithRestarts",
		"polynomial=Polynomial", "constant=Constant", "constant_with_warmup=ConstantWithWarmup")
)

// imageParameters are the settings of every image model.
func imageParameters() []parameterSpec {
	return []parameterSpec{
		setting("ams_gradient", flag),
		onlyGiven("advanced_settings", text),
		onlySearched("augmentations", text),
		setting("beta1", decimal),
		setting("beta2", decimal),
		onlyGiven("checkpoint_frequency", whole),
		onlyGiven("checkpoint_run_id", text),
		setting("distributed", flag),
		setting("early_stopping", flag),
		setting("early_stopping_delay", whole),
		setting("early_stopping_patience", whole),
		setting("evaluation_frequency", whole),
		setting("enable_onnx_normalization", flag),
		setting("gradient_accumulation_step", whole),
		setting("layers_to_freeze", whole),
		setting("learning_rate", decimal),
		setting("learning_rate_scheduler", learningSchedule),
		setting("model_name", text),
		setting("momentum", decimal),
		setting("nesterov", flag),
		setting("number_of_epochs", whole),
		setting("number_of_workers", whole),
		setting("optimizer", optimizer),
		setting("random_seed", whole),
		setting("step_lr_gamma", decimal),
		setting("step_lr_step_size", whole),
		setting("training_batch_size", whole),
		setting("validation_batch_size", whole),
		setting("warmup_cosine_lr_cycles", decimal),
		setting("warmup_cosine_lr_warmup_epochs", whole),
		setting("weight_decay", decimal),
	}
}

// imageClassifier are the settings of models that say what a picture shows.
func imageClassifier() []parameterSpec {
	return append(imageParameters(),
		setting("training_crop_size", whole),
		setting("validation_crop_size", whole),
		setting("validation_resize_size", whole),
		setting("weighted_loss", whole),
	)
}

// imageDetector are the settings of models that say where in a picture something is.
func imageDetector() []parameterSpec {
	return append(imageParameters(),
		setting("box_detections_per_image", whole),
		setting("box_score_threshold", decimal),
		setting("image_size", whole),
		setting("max_size", whole),
		setting("min_size", whole),
		setting("model_size", modelSize),
		setting("multi_scale", flag),
		setting("nms_iou_threshold", decimal),
		setting("tile_grid_size", text),
		setting("tile_overlap_ratio", decimal),
		setting("tile_predictions_nms_threshold", decimal),
		setting("validation_iou_threshold", decimal),
		setting("validation_metric_type", validationMetric),
		onlyGiven("log_training_metrics", text),
		onlyGiven("log_validation_loss", text),
	)
}

// languageParameters are the settings of every text model.
func languageParameters() []parameterSpec {
	return []parameterSpec{
		setting("gradient_accumulation_steps", whole),
		setting("learning_rate", decimal),
		setting("learning_rate_scheduler", textSchedule),
		setting("model_name", text),
		setting("number_of_epochs", whole),
		setting("training_batch_size", whole),
		setting("validation_batch_size", whole),
		setting("warmup_ratio", decimal),
		setting("weight_decay", decimal),
	}
}
