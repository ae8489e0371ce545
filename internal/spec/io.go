package spec

import (
	"path/filepath"
	"strings"
)

// The types of data and models an input or output can have.
var (
	dataTypes  = []string{"uri_file", "uri_folder", "mltable"}
	modelTypes = []string{"mlflow_model", "custom_model", "triton_model"}
	portTypes  = append(append([]string{}, dataTypes...), modelTypes...)
)

// How an input or output reaches the job.
var (
	inputMode = typ{choice: &choice{
		words: words{"ro_mount=ReadOnlyMount", "download=Download", "direct=Direct", "eval_mount=EvalMount", "eval_download=EvalDownload"},
		fold:  strings.ToLower, instead: insteadOfWriting,
	}}
	outputMode = enum("rw_mount=ReadWriteMount", "mount=ReadWriteMount", "upload=Upload", "direct=Direct")
)

// insteadOfWriting is for modes that would write to an input, which files of Azure's do not have
// either.
func insteadOfWriting(mode string) string {
	if mode == "rw_mount" || mode == "mount" {
		return "a job cannot change its inputs: use download for a copy of its own, and write to an output"
	}
	return ""
}

// input is one input of a job: data, a model, or a plain value.
var input = typ{name: "data or a plain value", null: true, readFunc: readInput, showFunc: showInput}

var dataInput = later(dataInputParts)

func dataInputParts() []part {
	return []part{
		f("type", enum(portTypes...), to("jobInputType"), def("uri_folder")),
		f("path", text, to("uri")),
		f("mode", inputMode),
		f("path_on_compute", text, to("pathOnCompute")),
		f("datastore", text, unsent),
		then(func(s *scope, v *value) {
			if path := v.get("path"); path != nil && path.shape == str && !bound(path.text) {
				s.out["uri"] = s.in("path").dataPath(path, v)
			}
			kind, mode := s.out.text(s.dest(&field{to: "jobInputType"})), s.out.text("mode")
			if strings.HasPrefix(mode, "Eval") && kind != "mltable" && v.has("type") {
				s.in("mode").fail(v.get("mode"), "%s is supported for mltable inputs only", v.textOf("mode"))
			}
			if v.has("path_on_compute") && strings.HasSuffix(kind, "_model") {
				s.in("path_on_compute").fail(v.get("path_on_compute"), "is not supported for models")
			}
		}),
		backwards(func(_, out tree) { out["path"] = showAsset(out["path"]) }),
	}
}

var wrapped = later(wrappedParts)

func wrappedParts() []part { return []part{f("value", literal, required)} }

func readInput(s *scope, v *value) any {
	switch {
	case v.shape == null:
		s.fail(v, "must not be null")
		return nil
	case v.shape != mapping:
		return s.literalInput(literal.read(s, v))
	case v.get("value") != nil:
		got, _ := asTree(wrapped.read(s, v))
		return s.literalInput(got["value"])
	case strings.Contains(v.textOf("path"), "${{"):
		if _, ok := binding(v.textOf("path")); ok {
			return s.boundInput(v)
		}
	}
	if path := v.get("path"); path == nil || path.shape == str && path.text == "" {
		s.in("path").fail(v, "is required")
		return nil
	}
	return dataInput.read(s, v)
}

func (s *scope) literalInput(val any) any {
	if val == nil {
		return nil
	}
	return tree{s.dest(&field{to: "jobInputType"}): "literal", "value": val}
}

// boundInput is a mapping whose path is one expression: it travels as that expression.
func (s *scope) boundInput(v *value) any {
	got, _ := asTree(dataInput.read(s, v))
	in, _ := asTree(s.literalInput(v.textOf("path")))
	if got != nil && got["mode"] != nil && s.nodes {
		in["mode"] = got["mode"]
	}
	return in
}

func showInput(j any) any {
	m, ok := asTree(j)
	if !ok {
		return j
	}
	if strings.EqualFold(m.text("jobInputType"), "literal") {
		return m["value"]
	}
	return dataInput.show(j)
}

// dataPath is where the data of an input lies: an address stays, an asset becomes its id, a local
// path an upload.
func (s *scope) dataPath(v, in *value) any {
	path, kind := v.text, strings.ToLower(in.textOf("type"))
	if kind == "" {
		kind = "uri_folder"
	}
	collection := "data"
	if kind == "mlflow_model" || kind == "custom_model" {
		collection = "models"
	}
	switch {
	case urlForm.MatchString(path), armAsset.MatchString(path):
		return path
	case strings.HasPrefix(path, "runs:/"):
		s.fail(v, "runs:/ URIs are not supported; write azureml://jobs/NAME/outputs/artifacts/paths/PATH")
		return nil
	case filepath.IsAbs(path):
		if abs := filepath.Clean(path); kind == "uri_folder" && !isDir(abs) || kind == "uri_file" && (!exists(abs) || isDir(abs)) {
			s.fail(v, "%s is not an existing %s", path, strings.TrimPrefix(kind, "uri_"))
			return nil
		}
	case strings.HasPrefix(path, "file:"):
		s.fail(v, "write a local path without the file: prefix")
		return nil
	case strings.Contains(path, "://"):
		s.fail(v, "%s is not an address: nothing follows ://, or it begins with another /", describe(v))
		return nil
	case strings.HasPrefix(path, "azureml:"), strings.ContainsAny(path, ":@") && !exists(s.resolve(v, path)):
		if short := strings.TrimPrefix(path, "azureml:"); !armAsset.MatchString(short) && !strings.ContainsAny(short, ":@") {
			s.fail(v, "%s has no version; write azureml:NAME:VERSION or azureml:NAME@latest", describe(v))
			return nil
		}
		if !s.checkLabel(v, collection) {
			return nil
		}
		return s.assetID(collection, path)
	}
	if in.get("type") != nil && strings.HasPrefix(kind, "uri_") { // a path alone may be either
		s.checkShape(v, kind)
	}
	return s.upload(v, Upload{Kind: "data", Type: kind, Path: s.resolve(v, path), Datastore: in.textOf("datastore")})
}

// output is one output of a job; null is the default one.
var output = typ{name: "an output", null: true, readFunc: func(s *scope, v *value) any {
	if v.shape == null {
		return tree{s.dest(&field{to: "jobOutputType"}): "uri_folder"}
	}
	return dataOutput.read(s, v)
}, showFunc: func(j any) any { return dataOutput.show(j) }}

var dataOutput = later(dataOutputParts)

func dataOutputParts() []part {
	return []part{
		f("type", enum(portTypes...), to("jobOutputType"), def("uri_folder")),
		f("mode", outputMode),
		f("path", text, to("uri")),
		f("name", text, to("assetName")),
		f("version", version, to("assetVersion")),
		then(func(s *scope, v *value) {
			if name := v.get("name"); name != nil && !assetName.MatchString(name.text) {
				s.in("name").fail(name, "%s is not a valid asset name; use at most 255 letters, digits, '-' and '_'", describe(name))
			}
			if v.has("version") && !v.has("name") {
				s.in("version").fail(v.get("version"), "requires name to be set")
			}
		}),
	}
}

var (
	assetName = re(`^[A-Za-z0-9_-]{1,255}$`)
	ioName    = re(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	groupName = re(`^[a-zA-Z_][a-zA-Z0-9_]*(\.[a-zA-Z_][a-zA-Z0-9_]*)*$`)
)

// named is mapOf with a rule for the keys.
func named(t typ, ok *form, what string) typ {
	all := mapOf(t)
	read := all.read
	all.readFunc = func(s *scope, v *value) any {
		for _, p := range v.pairs {
			if v.shape == mapping && !ok.MatchString(p.key) {
				s.in(p.key).fail(p.at, "%q is not a valid %s name; use letters, digits and '_', not starting with a digit", shorten(p.key), what)
			}
		}
		return read(s, v)
	}
	return all
}

var (
	inputs  = named(input, ioName, "input")
	outputs = named(output, ioName, "output")
)

// checkExpressions reports ${{inputs.x}} and the like in text that name nothing declared. declared
// tells which first words are checked and what may follow them. Optional blocks are not checked.
func (s *scope) checkExpressions(v *value, text string, declared map[string]*value) {
	s.checkAll(v, text, declared, false)
}

// checkAll is checkExpressions; strict means that optional blocks are looked at too and that
// nothing but what is declared may be named.
func (s *scope) checkAll(v *value, text string, declared map[string]*value, strict bool) {
	seen := map[string]int{}
	for _, e := range Expressions(text) {
		piece := text[e.Start:e.End]
		nth := seen[piece]
		seen[piece]++
		if len(e.Path) < 2 || e.Optional && !strict {
			continue
		}
		decl, ok := declared[e.Path[0]]
		if !ok && !strict || ok && decl.declares(e.Path[1:]) {
			continue
		}
		if !ok {
			s.failWith(v.find(piece, nth), nearest(e.Path[0], sortedWords(declared)), "%s is not defined; expressions can refer to %s", piece, strings.Join(sortedWords(declared), ", "))
			continue
		}
		var names []string
		if decl != nil {
			for _, p := range decl.pairs {
				names = append(names, p.key)
			}
		}
		name := strings.Join(e.Path[1:], ".")
		s.failWith(v.find(piece, nth), nearest(name, names), "%s is not defined in %s", piece, e.Path[0])
	}
}

// declares says whether path names an entry of v, or a member of a group of entries.
func (v *value) declares(path []string) bool {
	if v == nil || v.shape != mapping {
		return false
	}
	if v.get(strings.Join(path, ".")) != nil || v.get(path[0]) != nil {
		return true
	}
	for _, p := range v.pairs {
		if strings.HasPrefix(p.key, strings.Join(path, ".")+".") {
			return true
		}
	}
	return false
}

// unreplaced warns of expressions that name nothing: the reference takes them, and the job then
// sees them as they are.
func (s *scope) unreplaced(v *value, text string, declared map[string]*value) {
	for _, e := range Expressions(text) {
		if len(e.Path) < 2 {
			continue
		}
		if decl, ok := declared[e.Path[0]]; ok && !decl.declares(e.Path[1:]) {
			s.warn(v.find(text[e.Start:e.End], 0), "%s is not defined in %s; it will not be replaced", text[e.Start:e.End], e.Path[0])
		}
	}
}
