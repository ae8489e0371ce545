package spec

import (
	"os"
	"path/filepath"
	"strings"
)

// A component travels in its YAML form: componentSpec holds the fields under their own names,
// references resolved, defaults as text.
var componentKind = kind{
	word: "component", collection: "components", base: "properties",
	body: typ{name: "a component", readFunc: func(s *scope, v *value) any {
		s.component(v, "YAML.COMPONENT", false)
		return nil
	}},
}

// component reads a component into s.out, the properties of its resource.
func (s *scope) component(v *value, source string, anonymous bool) {
	if isInternal(v) {
		s.fail(v, "internal components ($schema %s) are not supported; write a command component", v.textOf("$schema"))
		return
	}
	t, ok := s.componentType(v)
	if !ok {
		return
	}
	spec := tree{"_source": source}
	sub := s.into(spec)
	sub.nodes = true
	if schema := v.get("$schema"); schema != nil {
		spec["$schema"] = readText(s.in("$schema"), schema)
	}
	if anonymous {
		v = v.without("name", "version")
	} else if _, ok := nameOf(v); !ok {
		s.checkComponentName(v)
	}
	if t.table != nil {
		t.table.fill(sub, v)
	} else if more, ok := asTree(t.read(sub, v)); ok {
		for k, val := range more {
			spec[k] = val
		}
	}
	s.out["componentSpec"] = spec
	s.out["isAnonymous"], s.out["isArchived"] = anonymous, false
	s.out["description"] = spec["description"]
	s.out["tags"] = tree{}
	if spec["tags"] != nil {
		s.out["tags"] = clone(spec["tags"])
		delete(s.out.sub("tags"), "component_type_overwrite")
	}
	s.out["properties"] = tree{}
	if props, ok := asTree(spec["properties"]); ok && len(props) > 0 {
		s.out["properties"] = clone(spec["properties"])
	} else {
		delete(spec, "properties")
	}
	if s.out["description"] == nil {
		delete(s.out, "description")
	}
}

var componentName = re(`^[a-z][a-z0-9_]*$`)

func nameOf(v *value) (string, bool) {
	name := v.get("name")
	return v.textOf("name"), name != nil && name.shape == str && componentName.MatchString(name.text)
}

func (s *scope) checkComponentName(v *value) {
	name := v.get("name")
	here := s.in("name")
	switch {
	case name == nil:
		here.fail(v, "is required")
	case name.shape == null:
		here.fail(name, "must not be null")
	case name.shape == str:
		here.fail(name, "%s is not a valid component name; use lower-case letters, digits and '_', starting with a letter", describe(name))
	}
}

// isInternal says whether a file belongs to the component family that only some can use.
func isInternal(v *value) bool {
	schema := strings.ToLower(v.textOf("$schema"))
	return strings.Contains(schema, "componentsdk") && strings.Contains(schema, "jsonschema")
}

func (s *scope) componentType(v *value) (typ, bool) {
	word := "command"
	if t := v.get("type"); t != nil && t.shape != null {
		word = strings.ToLower(t.text)
	}
	t, ok := s.components[word]
	if !ok {
		var words []string
		for w := range s.components {
			words = append(words, w)
		}
		s.in("type").failWith(v.get("type"), nearest(word, words), "%s is not a component type", describe(v.get("type")))
	}
	return t, ok
}

// componentTypes are the kinds of components.
func componentTypes() map[string]typ {
	return map[string]typ{
		"command":       commandComponent,
		"parallel":      parallelComponent,
		"spark":         sparkComponent,
		"pipeline":      pipelineComponent,
		"data_transfer": dataTransferComponent,
		"automl":        automlComponent,
		"import":        importComponent,
	}
}

var componentCommon = lazyParts(func() parts {
	return parts{
		readonly("creation_context", "latest_version"),
		f("id", ownID("components", true)),
		f("name", both("@name"), to("name")),
		f("version", bothVersion, to("version")),
		f("display_name", text),
		f("description", text),
		f("tags", textMap),
		f("is_deterministic", flag, def(true)),
		f("inputs", componentInputs),
		f("outputs", componentOutputs),
		f("auto_delete_setting", autoDelete, unsent),
	}
})

// both is text that goes to the resource as well as into the specification.
func both(path string) typ {
	return typ{name: text.name, readFunc: func(s *scope, v *value) any {
		got := readText(s, v)
		s.store(path, got)
		return got
	}}
}

var bothVersion = typ{name: version.name, readFunc: func(s *scope, v *value) any {
	got := readVersion(s, v)
	s.store("@version", got)
	return got
}}

var commandComponent = later(commandComponentParts)

func commandComponentParts() []part {
	return []part{
		keep,
		componentCommon,
		f("type", enum("command"), nullable, def("command")),
		f("command", text, required),
		f("environment", componentEnvironment, required),
		f("code", componentCode),
		f("resources", componentResources),
		f("distribution", componentDistribution),
		f("queue_settings", queueSettings, unsent),
		f("additional_includes", listOf(text)),
		f("properties", freeMap),
		f("environment_variables", freeMap, nullable, unsent),
		then(func(s *scope, v *value) {
			s.includes(v)
			if cmd := v.get("command"); cmd != nil && cmd.shape == str {
				s.in("command").checkAll(cmd, cmd.text, map[string]*value{"inputs": v.get("inputs"), "outputs": v.get("outputs")}, true)
			}
		}),
	}
}

// prefixed writes azureml: before an id, as specifications do.
func prefixed(t typ) typ {
	read := t.read
	t.readFunc = func(s *scope, v *value) any {
		id, ok := read(s, v).(string)
		switch {
		case !ok:
			return nil
		case strings.HasPrefix(id, "/"), strings.HasPrefix(id, "upload:"):
			return "azureml:" + id
		}
		return id
	}
	return t
}

var (
	componentEnvironment = prefixed(environment)
	componentCode        = prefixed(typ{name: code.name, readFunc: func(s *scope, v *value) any {
		got := code.read(s, v)
		for i := range s.draft.uploads {
			if s.draft.uploads[i].Placeholder == got {
				s.draft.uploads[i].Ignore = []string{"__pycache__"}
			}
		}
		return got
	}})
)

// includes puts additional files beside the code.
func (s *scope) includes(v *value) {
	inc := v.get("additional_includes")
	if inc == nil || inc.shape != list {
		return
	}
	if len(inc.items) == 0 {
		delete(s.out, "additional_includes")
		return
	}
	here := s.in("additional_includes")
	base := ""
	if c := v.get("code"); c != nil && c.shape == str {
		base = s.resolve(c, c.text)
	}
	var paths []string
	for _, it := range inc.items {
		if it.shape != str {
			continue
		}
		abs := s.resolve(it, it.text)
		zipped := strings.HasSuffix(abs, ".zip") && isDir(strings.TrimSuffix(abs, ".zip"))
		switch {
		case filepath.Dir(abs) == abs:
			here.fail(it, "the root directory cannot be included")
		case !exists(abs) && !zipped:
			here.fail(it, "%s does not exist (looked for %s)", it.text, abs)
		case base != "" && !isDir(abs) && exists(filepath.Join(base, filepath.Base(abs))) && !sameFile(abs, filepath.Join(base, filepath.Base(abs))):
			here.fail(it, "the code folder already has a file named %s", filepath.Base(abs))
		default:
			paths = append(paths, abs)
		}
	}
	if base == "" {
		// Without code of its own, the includes alone are the code.
		s.out["code"] = "azureml:" + here.upload(inc, Upload{Kind: "code", Includes: paths, Ignore: []string{"__pycache__"}})
		return
	}
	for i := range s.draft.uploads {
		if u := &s.draft.uploads[i]; u.Path == base && u.Kind == "code" {
			s.draft.uploads = append(s.draft.uploads[:i], s.draft.uploads[i+1:]...)
			break
		}
	}
	s.out["code"] = "azureml:" + here.upload(inc, Upload{Kind: "code", Path: base, Includes: paths, Ignore: []string{"__pycache__"}})
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// componentResources are sent as they were written, less what is unknown.
var componentResources = later(componentResourcesParts)

func componentResourcesParts() []part {
	return []part{
		drop,
		f("instance_count", whole),
		f("max_instance_count", whole),
		f("instance_type", text),
		f("locations", listOf(text)),
		f("shm_size", text),
		f("docker_args", oneOf(text, listOf(text))),
		f("properties", freeMap, unsent),
	}
}

var componentDistribution = byKey("type", func() map[string]typ {
	return map[string]typ{
		"pytorch": obj(drop, f("type", enum("pytorch")), f("process_count_per_instance", whole)),
		"mpi":     obj(drop, f("type", enum("mpi")), f("process_count_per_instance", whole)),
		"tensorflow": obj(drop, f("type", enum("tensorflow")), f("worker_count", whole),
			f("parameter_server_count", whole, def(number("0")))),
		"ray": obj(drop, f("type", enum("ray")), f("port", whole), f("address", text), f("include_dashboard", flag),
			f("dashboard_port", whole), f("head_node_additional_args", text), f("worker_node_additional_args", text)),
	}
})

// The ports and parameters of a component.
var (
	portMode = exactEnum("ro_mount", "rw_mount", "mount", "download", "upload", "direct", "eval_mount", "eval_download", "link")
	portType = exactEnum(append([]string{"path"}, portTypes...)...)

	componentPort = later(func() []part {
		return []part{
			f("type", portType, required),
			f("description", text),
			f("optional", flag),
			f("default", noDefault),
			f("mode", portMode),
		}
	})
	componentOutput = later(func() []part {
		return []part{
			f("type", portType, required),
			f("description", text),
			f("mode", portMode),
		}
	})
	primitiveOutput = later(func() []part {
		return []part{
			keep,
			f("type", exactEnum("boolean", "integer", "number", "string"), required),
			f("description", text),
			f("mode", portMode),
			f("early_available", typ{name: flag.name, readFunc: func(_ *scope, v *value) any {
				return v.shape == boolean && v.yes || v.shape == str && strings.EqualFold(v.text, "true")
			}}),
			readonly("is_control"),
		}
	})
	componentInputs  = uniqueNames(named(typ{name: "an input", readFunc: readComponentInput}, groupName, "input"))
	componentOutputs = uniqueNames(named(oneOf(componentOutput, primitiveOutput), ioName, "output"))
)

// noDefault refuses a default where there can be none.
var noDefault = typ{name: "nothing", readFunc: func(s *scope, v *value) any {
	s.fail(v, "data and model inputs cannot have a default; make the input optional")
	return nil
}}

func readComponentInput(s *scope, v *value) any {
	if v.shape == mapping {
		switch word := v.textOf("type"); word {
		case "boolean", "integer", "number", "string":
			return parameter(word).read(s, v)
		}
	}
	return componentPort.read(s, v)
}

// parameter is an input that is a plain value; its default, min and max travel as text of its type.
func parameter(word string) typ {
	initial := typ{name: "a value", readFunc: func(s *scope, v *value) any { return s.parameterText(v, word) }}
	limit := initial
	if word == "string" || word == "boolean" {
		limit = typ{name: "nothing", readFunc: func(s *scope, v *value) any {
			s.fail(v, "applies to numbers only, not to type %s", word)
			return nil
		}}
	}
	return obj(
		f("type", exactEnum(word), required),
		f("optional", flag),
		f("default", initial),
		f("description", text),
		f("max", limit),
		f("min", limit),
		f("enum", listOf(text)),
	)
}

// parameterText is a value as text of a parameter's type: 10 of a number is 10.0.
func (s *scope) parameterText(v *value, word string) any {
	if s.bind && v.shape == str && bound(v.text) {
		return v.text
	}
	switch word {
	case "integer":
		if n, ok := readWhole(s, v).(number); ok {
			return string(n)
		}
		return nil
	case "number":
		if n, ok := readDecimal(s, v).(number); ok {
			return string(n)
		}
		return nil
	case "boolean":
		if low := strings.ToLower(v.text); v.shape != boolean && low != "true" && low != "false" {
			s.fail(v, "must be true or false, not %s", describe(v))
			return nil
		}
		b, ok := readFlag(s, v).(bool)
		if !ok {
			return nil
		}
		if b {
			return "True"
		}
		return "False"
	}
	if v.shape == integer { // 10 of text is 10.0 too
		n, _ := readDecimal(s, v).(number)
		return string(n)
	}
	return readLiteral(s, v)
}

// uniqueNames refuses two names that are equal but for case.
func uniqueNames(t typ) typ {
	read := t.read
	t.readFunc = func(s *scope, v *value) any {
		seen := map[string]string{}
		for _, p := range v.pairs {
			low := strings.ToLower(p.key)
			if other, ok := seen[low]; ok {
				s.in(p.key).fail(p.at, "%s and %s differ only in case; rename one of them", other, p.key)
			}
			seen[low] = p.key
		}
		return read(s, v)
	}
	return t
}

var automlComponent = later(automlComponentParts)

func automlComponentParts() []part {
	return []part{
		drop,
		componentCommon,
		f("type", enum("automl")),
		f("task", taskWord, required),
	}
}

// taskWord is the name of a task of automated machine learning.
var taskWord = typ{name: "a task", readFunc: func(s *scope, v *value) any {
	return served(sortedWords(automlTasks.get())...).read(s, v)
}}

var importParameter = typ{name: "a parameter", readFunc: readComponentInput}

// importComponent travels as a command component that is marked as an import.
var importComponent = later(importComponentParts)

func importComponentParts() []part {
	return []part{
		drop,
		componentCommon,
		f("type", enum("import"), unsent),
		f("source", obj(
			f("type", importParameter),
			f("connection", importParameter),
			f("query", importParameter),
			f("path", importParameter),
		), to("inputs"), required),
		f("output", componentOutput, to("outputs.output"), required),
		is("type", "command"),
		is("command", "import"),
		then(func(s *scope, v *value) { s.out.sub("tags")["component_type_overwrite"] = "import" }),
	}
}
