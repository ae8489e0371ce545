package spec

import "strings"

// dataTransferComponent moves data between stores; its task says how.
var dataTransferComponent = typ{name: "a component", readFunc: func(s *scope, v *value) any {
	switch word := strings.ToLower(v.textOf("task")); word {
	case "copy_data", "import_data", "export_data":
		return map[string]typ{"copy_data": copyComponent, "import_data": importDataComponent, "export_data": exportDataComponent}[word].read(s, v)
	}
	s.in("task").fail(or(v.get("task"), v), "must be copy_data, import_data or export_data")
	return nil
}}

var endOfTransfer = later(endOfTransferParts)

func endOfTransferParts() []part { return []part{f("type", enum("file_system", "database"), required)} }

var copyComponent = later(copyComponentParts)

func copyComponentParts() []part {
	return []part{
		keep,
		componentCommon,
		f("type", enum("data_transfer")),
		f("task", enum("copy_data"), required),
		f("data_copy_mode", enum("merge_with_overwrite", "fail_if_conflict")),
		then(func(s *scope, v *value) {
			if n := len(v.get("outputs").entries()); n != 1 {
				s.in("outputs").fail(or(v.get("outputs"), v), "copy_data must have exactly one output; got %d", n)
				return
			}
			out := v.get("outputs").entries()[0].val
			switch in := v.get("inputs").entries(); {
			case len(in) == 0:
				s.in("inputs").fail(or(v.get("inputs"), v), "is required by copy_data")
			case len(in) == 1 && in[0].val.textOf("type") != out.textOf("type"):
				s.in("outputs").fail(out, "must have the type of the input, %s, not %s", describe(or(in[0].val.get("type"), in[0].val)), describe(or(out.get("type"), out)))
			case len(in) > 1 && out.textOf("type") != "uri_folder":
				s.in("outputs").fail(out, "must be of type uri_folder for several inputs, not %s", describe(or(out.get("type"), out)))
			}
		}),
	}
}

var importDataComponent = later(importDataComponentParts)

func importDataComponentParts() []part {
	return []part{
		keep,
		componentCommon,
		f("type", enum("data_transfer")),
		f("task", enum("import_data"), required),
		f("source", endOfTransfer, required),
		then(func(s *scope, v *value) {
			s.refuseField(v, "inputs", "import_data")
			if v.has("outputs") {
				s.onlyEntry(v, "outputs", "sink", "import_data")
				return
			}
			s.out["outputs"] = tree{"sink": tree{"type": "mltable"}}
		}),
	}
}

var exportDataComponent = later(exportDataComponentParts)

func exportDataComponentParts() []part {
	return []part{
		keep,
		componentCommon,
		f("type", enum("data_transfer")),
		f("task", enum("export_data"), required),
		f("sink", endOfTransfer, required),
		then(func(s *scope, v *value) {
			s.refuseField(v, "outputs", "export_data")
			if v.has("inputs") {
				s.onlyEntry(v, "inputs", "source", "export_data")
			}
			if kind := v.get("inputs").get("source").get("type"); kind != nil && kind.text != "uri_folder" && kind.text != "uri_file" {
				s.in("inputs.source.type").fail(kind, "must be uri_folder or uri_file, not %s", describe(kind))
			}
		}),
	}
}

func (s *scope) refuseField(v *value, name, task string) {
	if w := v.get(name); w != nil {
		s.in(name).fail(w, "%s does not take %s", task, name)
	}
}

// onlyEntry checks that a mapping has one entry of a fixed name.
func (s *scope) onlyEntry(v *value, name, key, task string) {
	w := v.get(name)
	if e := w.entries(); len(e) != 1 || e[0].key != key {
		s.in(name).fail(or(w, v), "%s requires exactly one entry in %s, named %s", task, name, key)
	}
}

// procedureParams are the arguments of a stored procedure.
var procedureParams = listOf(obj(f("name", text), f("value", text), f("type", text)))

// The ends of a transfer in a node: a database or a file system behind a connection.
var transferEnd = byKey("type", func() map[string]typ {
	return map[string]typ{
		"database": obj(
			f("type", enum("database"), required),
			f("table_name", text),
			f("query", text),
			f("stored_procedure", text),
			f("stored_procedure_params", procedureParams),
			f("connection", text, required),
		),
		"file_system": obj(
			f("type", enum("file_system")),
			f("path", text),
			f("connection", text, required),
		),
	}
})

var copyNode = nodeOf(copyNodeParts)

func copyNodeParts() []part {
	return []part{
		f("task", enum("copy_data"), required),
		f("data_copy_mode", enum("merge_with_overwrite", "fail_if_conflict")),
		then(func(s *scope, v *value) {
			if len(v.get("inputs").entries()) == 0 && !remote(v.textOf("component")) {
				s.in("inputs").fail(v, "is required by copy_data")
			}
			for _, p := range v.get("inputs").entries() {
				if in := p.val; v.get("component") == nil && in.scalar() && !(in.shape == str && bound(in.text)) {
					s.in("inputs."+p.key).fail(in, "copy_data requires a mapping with a path, or an expression")
				}
			}
		}),
	}
}

var importNode = nodeOf(importNodeParts)

func importNodeParts() []part {
	return []part{
		f("task", enum("import_data"), required),
		f("source", transferEnd, required),
		then(func(s *scope, v *value) {
			s.refuseField(v, "inputs", "import_data")
			s.onlyEntry(v, "outputs", "sink", "import_data")
			kind := v.get("source").textOf("type")
			want := map[string]string{"database": "mltable", "file_system": "uri_folder"}[kind]
			if sink := v.get("outputs").get("sink"); sink.has("type") && sink.textOf("type") != want {
				s.in("outputs.sink.type").fail(sink.get("type"), "must be %s when the source is a %s", want, kind)
			}
			s.builtin("import_data_" + kind)
		}),
	}
}

var exportNode = nodeOf(exportNodeParts)

func exportNodeParts() []part {
	return []part{
		f("task", enum("export_data"), required),
		f("sink", transferEnd, required),
		then(func(s *scope, v *value) {
			s.refuseField(v, "outputs", "export_data")
			s.onlyEntry(v, "inputs", "source", "export_data")
			kind := v.get("sink").textOf("type")
			if kind == "file_system" {
				s.in("sink").fail(v.get("sink"), "exporting to a file system is not supported")
			}
			src := v.get("inputs").get("source")
			if _, tied := binding(src.textOf("path")); src != nil && src.shape == mapping && !tied && src.textOf("type") != "uri_file" {
				s.in("inputs.source.type").fail(or(src.get("type"), src), "must be uri_file when the sink is a database")
			}
			s.builtin("export_data_" + kind)
		}),
	}
}

// builtin makes a node run a component that comes with the service.
func (s *scope) builtin(name string) {
	if s.out["componentId"] == nil {
		s.out["componentId"] = "azureml://registries/azureml/components/" + name + "/versions/0.0.1"
	}
}
