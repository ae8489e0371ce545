package spec

import "strings"

var batchDeploymentKind = kind{
	word: "batch-deployment", collection: "batchEndpoints/deployments", base: "properties",
	body: typ{name: "a deployment", readFunc: func(s *scope, v *value) any {
		word := strings.ToLower(v.textOf("type"))
		switch {
		case word == "pipeline", word == "" && (v.get("component") != nil || v.get("job_definition") != nil):
			pipelineDeployment.table.fill(s, v)
		case word == "model" || word == "" && v.get("settings") != nil:
			modelDeployment.table.fill(s, v)
		case word == "":
			plainDeployment.table.fill(s, v)
		default:
			s.in("type").failWith(v.get("type"), nearest(word, []string{"pipeline", "model"}), "%s is not one of model, pipeline", describe(v.get("type")))
		}
		return nil
	}},
}

var batchModel = typ{name: deploymentModel.name, readFunc: func(s *scope, v *value) any {
	id := deploymentModel.read(s, v)
	if id == nil {
		return nil
	}
	return tree{"referenceType": "Id", "assetId": id}
}}

// batchCode is the code of a batch deployment; what the service generates for a model needs no
// script.
var batchCode = later(batchCodeParts)

func batchCodeParts() []part {
	return []part{
		f("code", deploymentCode, to("codeId"), required),
		f("scoring_script", text),
	}
}

// batchRun are the settings of a batch run.
var batchRun = lazyParts(func() parts {
	return parts{
		f("mini_batch_size", whole),
		f("max_concurrency_per_instance", whole),
		f("output_action", enum("append_row=AppendRow", "summary_only=SummaryOnly")),
		f("output_file_name", text),
		f("retry_settings", obj(f("max_retries", whole), f("timeout", seconds))),
		f("logging_level", text),
		f("error_threshold", whole),
	}
})

// plainDeployment is the older layout: everything at the top level.
var plainDeployment = later(plainDeploymentParts)

func plainDeploymentParts() []part {
	return []part{
		readonly("creation_context", "provisioning_state"),
		f("name", lowerName, to("@name"), required),
		deploymentCommon,
		f("code_configuration", batchCode),
		f("model", batchModel),
		f("compute", cluster),
		f("resources", resources),
		f("type", enum("model", "pipeline"), unsent),
		batchRun,
	}
}

// modelDeployment is the newer layout: the settings of the run under settings.
var modelDeployment = later(modelDeploymentParts)

func modelDeploymentParts() []part {
	return []part{
		readonly("creation_context", "provisioning_state"),
		f("name", lowerName, to("@name"), required),
		f("environment_variables", freeMap, unsent), // those of the settings count
		is("environmentVariables", tree{}),
		deploymentCommon,
		f("code_configuration", batchCode),
		f("model", batchModel),
		f("compute", cluster, required),
		f("resources", resources),
		f("type", enum("model", "pipeline"), unsent),
		f("error_threshold", whole, unsent),
		f("settings", anything, unsent),
		first(func(s *scope, v *value) *value {
			if set := v.get("settings"); set != nil {
				obj(batchRun, f("instance_count", whole, to("resources.instanceCount")), f("environment_variables", freeMap)).table.fill(s.in("settings"), set)
			}
			return v
		}),
		then(func(s *scope, v *value) {
			if set := v.get("settings"); set.has("environment_variables") {
				s.out["environmentVariables"] = set.get("environment_variables").raw()
			}
			if res, ok := asTree(s.out["resources"]); ok && res["properties"] == nil {
				res["properties"] = tree{}
			}
		}),
	}
}

// pipelineDeployment runs a pipeline component.
var pipelineDeployment = later(pipelineDeploymentParts)

func pipelineDeploymentParts() []part {
	return []part{
		f("name", text, to("@name"), required),
		f("endpoint_name", text, to("@parent"), required),
		f("description", text),
		f("tags", freeMap, to("/tags")),
		f("type", enum("pipeline", "model"), unsent),
		f("component", anything, unsent),
		f("job_definition", oneOf(reference("jobs"), checked(jobDefinition)), unsent),
		f("settings", freeMap, to("deploymentConfiguration.settings")),
		is("deploymentConfiguration.deploymentConfigurationType", "PipelineComponent"),
		is("errorThreshold", -1),
		is("maxConcurrencyPerInstance", 1),
		is("miniBatchSize", 10),
		is("outputFileName", "predictions.csv"),
		then(func(s *scope, v *value) {
			ref := v.get("component")
			if ref == nil {
				ref = v.get("job_definition").get("component")
			}
			config := s.out.sub("deploymentConfiguration")
			s.draft.name = strings.ToLower(s.draft.name)
			switch {
			case ref == nil:
				job := v.get("job_definition")
				if job == nil || job.shape != str {
					s.in("component").fail(v, "a pipeline deployment requires component or job_definition")
					return
				}
				config.put("componentId", tree{"referenceType": "Id", "assetId": s.componentOfJob(strings.TrimPrefix(job.text, "azureml:"))})
				return
			case ref.shape != str:
				s.in("component").fail(ref, "must be a reference or a path, not %s", ref.shape)
				return
			case remote(ref.text):
				if s.in("component").checkAsset(ref, "components", true) {
					config.put("componentId", tree{"referenceType": "Id", "assetId": s.componentID(ref.text)})
				}
				return
			}
			comp := s.in("component").follow(ref, strings.TrimPrefix(ref.text, "file:"))
			if comp == nil {
				return
			}
			if comp.textOf("type") != "pipeline" {
				s.in("component").fail(ref, "%s is not a pipeline component; use one of type pipeline", ref.text)
				return
			}
			if id := s.in("component").anonymousComponent(comp, "YAML.COMPONENT"); id != "" {
				config.put("componentId", tree{"referenceType": "Id", "assetId": id})
				if d := comp.textOf("description"); d != "" {
					config["description"] = d
				}
				if tags := comp.get("tags"); tags != nil {
					config["tags"] = tags.raw()
				}
			}
		}),
	}
}

// jobDefinition is a node of type pipeline that a deployment runs.
var jobDefinition = typ{name: "a mapping", readFunc: func(s *scope, v *value) any {
	sub := *s
	sub.bind = true
	return obj(
		keep,
		f("type", enum("pipeline")),
		f("component", typ{name: "a component", readFunc: func(s *scope, v *value) any {
			switch ref, ok := readText(s, v).(string); {
			case !ok:
			case remote(ref):
				s.checkAsset(v, "components", false)
			default:
				s.follow(v, ref)
			}
			return nil
		}}, required),
		f("inputs", mapOf(input)),
		f("outputs", mapOf(orNull(oneOf(nodeOutput, outputBinding)))),
		f("properties", jobMap),
		f("comment", text),
	).read(&sub, v)
}}

// componentOfJob makes a component of a pipeline job that ran, and gives its id. What the job did
// is the service's to look up.
func (s *scope) componentOfJob(job string) string {
	d := &draft{collection: "components", name: AnonymousComponents, anonymous: true, body: tree{"properties": tree{
		"isAnonymous": true, "properties": tree{}, "tags": tree{}, "componentSpec": tree{
			"type": "pipeline", "name": AnonymousComponents, "version": "1", "_source": "CLASS", "jobs": tree{},
			"source_job_id": job, "sourceJobId": job,
		},
	}}}
	d.version = s.contentID(d)
	s.keep(d)
	return s.workspace().ResourceID("components", d.name, "versions", d.version)
}
