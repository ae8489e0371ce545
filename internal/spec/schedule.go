package spec

import "strings"

var scheduleKind = kind{
	word: "schedule", collection: "schedules", base: "properties",
	body: typ{name: "a schedule", readFunc: func(s *scope, v *value) any {
		t := jobSchedule
		switch {
		case v.get("create_monitor") != nil:
			t = monitorSchedule
		case v.get("import_data") != nil:
			t = importSchedule
		}
		t.table.fill(s, v)
		return nil
	}},
}

var scheduleCommon = lazyParts(func() parts {
	return parts{
		readonly("creation_context", "is_enabled", "provisioning_state"),
		f("id", text, unsent),
		f("name", text, to("@name"), required),
		f("display_name", text),
		f("description", text),
		f("tags", namedMap, def(tree{})),
		f("properties", jobMap, def(tree{})),
		f("trigger", trigger, required),
	}
})

var triggerTimes = lazyParts(func() parts {
	return parts{
		f("type", text, unsent),
		f("start_time", moment),
		f("end_time", moment),
		f("time_zone", text, def("UTC")),
	}
})

var trigger = byKey("type", func() map[string]typ {
	return map[string]typ{
		"cron": obj(
			is("triggerType", "Cron"),
			f("expression", text, required),
			triggerTimes,
		),
		"recurrence": recurrence,
	}
})

var recurrence = later(recurrenceParts)

func recurrenceParts() []part {
	return []part{
		is("triggerType", "Recurrence"),
		f("frequency", frequency, required),
		f("interval", whole, required),
		f("schedule", obj(
			f("hours", oneOrList(whole), required),
			f("minutes", oneOrList(whole), required),
			f("week_days", oneOrList(weekDay)),
			f("month_days", oneOrList(whole)),
		), def(tree{"hours": []any{}, "minutes": []any{}})),
		triggerTimes,
	}
}

var jobSchedule = later(jobScheduleParts)

func jobScheduleParts() []part {
	return []part{
		scheduleCommon,
		f("create_job", typ{name: "a job", readFunc: readScheduled}, to("action.jobDefinition"), required),
		is("action.actionType", "CreateJob"),
	}
}

// readScheduled reads the job a schedule starts: a job that exists, a file, or either with changes.
func readScheduled(s *scope, v *value) any {
	ref, changes := v, v.newMap()
	if v.shape == mapping {
		if ref = v.get("job"); ref == nil {
			s.in("job").fail(v, "is required; write the path of a job file or azureml:NAME")
			return nil
		}
		changes = v.without("job")
	}
	if ref.shape != str {
		s.fail(ref, "must be the path of a job file or azureml:NAME, not %s", ref.shape)
		return nil
	}
	if name, ok := strings.CutPrefix(ref.text, "azureml:"); ok { // the service knows jobs by their names
		return s.scheduledJob(v, changes, name)
	}
	if strings.HasPrefix(ref.text, "file:") {
		s.fail(ref, "write the path without the file: prefix")
		return nil
	}
	if jobs := changes.get("jobs"); jobs != nil {
		s.in("jobs").fail(jobs, "a schedule cannot change the steps of its job; change the job")
		return nil
	}
	job := s.follow(ref, ref.text)
	if job == nil {
		return nil
	}
	return s.scheduledJob(v, merge(job, changes), "")
}

// scheduledJob reads a job as part of a schedule. Only pipelines can be scheduled.
func (s *scope) scheduledJob(at, job *value, source string) any {
	out := tree{}
	if source != "" && at.shape == str {
		return tree{"jobType": "Pipeline", "sourceJobId": source, "experimentName": "", "isArchived": false}
	}
	word := job.textOf("type")
	if word != "pipeline" {
		if source != "" && word == "" {
			s.in("type").fail(at, "is required to change an existing job")
		} else {
			s.fail(at, "jobs of type %s cannot be scheduled; use a pipeline", orCommand(word))
		}
		return nil
	}
	// The name, title and experiment are those of each job the schedule starts.
	d := &draft{collection: "schedules", body: tree{}}
	sub := *s
	sub.draft = d
	sub.scheduled = true
	pipelineJob.table.fill((&sub).into(out), job)
	s.draft.uploads = append(s.draft.uploads, d.uploads...)
	if source != "" {
		out["sourceJobId"] = source
	}
	return out
}

// merge lays changes over a mapping, deep.
func merge(base, changes *value) *value {
	out := base
	for _, p := range changes.pairs {
		old := out.get(p.key)
		if old != nil && old.shape == mapping && p.val.shape == mapping {
			out = out.with(p.key, merge(old, p.val))
			continue
		}
		out = out.with(p.key, p.val)
	}
	return out
}

var importSchedule = later(importScheduleParts)

func importScheduleParts() []part {
	return []part{
		scheduleCommon,
		f("import_data", typ{name: "a data import", readFunc: func(s *scope, v *value) any {
			if v.shape == str {
				if v = s.follow(v, strings.TrimPrefix(v.text, "file:")); v == nil {
					return nil
				}
			}
			return dataImport.read(s, v)
		}}, to("action.dataImportDefinition")),
		is("action.actionType", "ImportData"),
	}
}

// dataImport is data that is fetched into an asset. Its type is not sent: the client's document
// says uri_folder.
var dataImport = later(dataImportParts)

func dataImportParts() []part {
	return []part{
		readonly("creation_context", "latest_version", "properties"),
		f("id", text, unsent),
		f("name", text, to("assetName"), required),
		f("version", version, unsent),
		f("description", text),
		f("tags", freeMap, def(tree{})),
		f("path", text, to("dataUri"), required),
		f("type", exactEnum(dataTypes...), unsent),
		f("datastore", text, unsent),
		f("auto_delete_setting", autoDelete, unsent),
		f("source", byKey("type", func() map[string]typ {
			return map[string]typ{
				"database": obj(
					is("sourceType", "database"),
					f("type", text, unsent),
					f("query", text),
					// The client forgets these.
					f("table_name", text, unsent),
					f("stored_procedure", text, unsent),
					f("stored_procedure_params", procedureParams, unsent),
					f("connection", text, required),
				),
				"file_system": obj(
					is("sourceType", "file_system"),
					f("type", text, unsent),
					f("path", text),
					f("connection", text, required),
				),
			}
		}), required),
		is("dataType", "uri_folder"),
		is("properties", tree{}),
		is("isAnonymous", false),
		is("isArchived", false),
	}
}
