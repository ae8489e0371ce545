package spec

import (
	"encoding/json"
	"strings"

	"github.com/berthml/berth"
)

// Entity turns a REST document into the form `az ml … show` prints: YAML's field names, references
// as azureml:NAME:VERSION, durations in seconds. It reads the tables backwards, so what Load takes
// apart Entity puts together. Members no table knows are left out; the raw document has them.
//
// collection is the REST collection: jobs, environments, data, models, components, computes,
// datastores, workspaces, onlineEndpoints, onlineEndpoints/deployments, … .
//
// doc is what encoding/json makes of the document, with numbers as json.Number; it stays as it is.
func Entity(collection string, doc map[string]any) (map[string]any, error) {
	e := newEntity(doc)
	out, ok := e.show(collection)
	if !ok {
		return nil, berth.Errorf(berth.Unsupported, "%s cannot be written as YAML", collection)
	}
	e.present(collection, out)
	return plain(out).(map[string]any), nil
}

func newEntity(doc map[string]any) *entity {
	root := copied(doc).(tree)
	e := &entity{root: root}
	e.base, _ = asTree(root["properties"])
	return e
}

// copied is a value of its own, its objects trees.
func copied(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := make(tree, len(x))
		for k, e := range x {
			out[k] = copied(e)
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = copied(e)
		}
		return out
	}
	return v
}

// plain is a value in the types of encoding/json.
func plain(v any) any {
	switch x := v.(type) {
	case tree:
		for k, e := range x {
			x[k] = plain(e)
		}
		return map[string]any(x)
	case map[string]any:
		return plain(tree(x))
	case *dict:
		return plain(x.tree)
	case []any:
		for i, e := range x {
			x[i] = plain(e)
		}
	case number:
		return json.Number(x)
	}
	return v
}

// entity is a document being shown.
type entity struct {
	root, base tree
}

func (e *entity) show(collection string) (tree, bool) {
	switch collection {
	case "jobs":
		return e.job()
	case "components":
		return e.component(), true
	}
	for _, k := range kinds() {
		if k.collection != collection || k.word == "feature_store" {
			continue
		}
		t := k.body
		if t.forms != nil {
			word, form := t.forms.pick(e.root, e.base)
			if form.table == nil && k.word == "compute" {
				return e.other("computeType", otherCompute)
			}
			if form.table == nil {
				return nil, false
			}
			out := e.table(form.table)
			out["type"] = word
			if k.word == "workspace" {
				e.workspace(out)
			}
			return out, true
		}
		if t.table == nil {
			t = e.alternative(k.word)
		}
		if t.table == nil {
			return nil, false
		}
		out := e.table(t.table)
		if word := e.base.text("endpointComputeType"); word != "" {
			out["type"] = strings.ToLower(word)
		}
		return out, true
	}
	return nil, false
}

// workspace adds what only a workspace has.
func (e *entity) workspace(out tree) {
	delete(out, "type")
	if segs := e.segments(); len(segs) > 3 {
		out["resource_group"] = segs[3]
	}
	if uri := e.base["mlFlowTrackingUri"]; uri != nil {
		out["mlflow_tracking_uri"] = uri
	}
}

// alternative is the table of a kind whose files are told apart by more than one key.
func (e *entity) alternative(word string) typ {
	switch word {
	case "online-endpoint":
		if e.base["compute"] != nil {
			return kubernetesEndpoint
		}
		return managedEndpoint
	case "online-deployment":
		if strings.EqualFold(e.base.text("endpointComputeType"), "Kubernetes") {
			return kubernetesDeployment
		}
		return managedDeployment
	case "batch-deployment":
		return plainDeployment
	case "schedule":
		return obj(scheduleCommon)
	}
	return typ{}
}

// table shows the document by a table: its fields under their YAML names, and what only the service
// says.
func (e *entity) table(t *table) tree {
	t.ready()
	out, _ := asTree(t.show(e.base))
	if out == nil {
		out = tree{}
	}
	for _, fd := range t.fields {
		var val any
		switch {
		case fd.readonly:
			val = e.served(fd.name)
		case strings.HasPrefix(fd.to, "/"):
			if val = e.root.at(fd.to[1:]); val != nil && fd.typ.shows() {
				val = fd.typ.show(val)
			}
		case fd.to == "@name":
			val = e.name()
		case fd.to == "@version":
			val = e.version()
		case fd.to == "@parent":
			val = e.parent()
		}
		if val != nil {
			out[fd.name] = val
		}
	}
	if id, ok := e.root["id"].(string); ok {
		out["id"] = id
	}
	if c := e.served("creation_context"); c != nil {
		out["creation_context"] = c
	}
	return out
}

// served is a member the service fills in.
func (e *entity) served(name string) any {
	switch name {
	case "creation_context":
		if data, ok := asTree(e.root["systemData"]); ok {
			out := tree{}
			for k, v := range data {
				out[snake(k)] = v
			}
			return out
		}
		return nil
	case "id":
		return e.root["id"]
	case "kind", "log_files", "parameters", "type", "category":
		return nil
	}
	val := e.base[camel(name)]
	if val == nil {
		val = e.base.at("properties." + camel(name))
	}
	return val
}

func (e *entity) name() any {
	segs := e.segments()
	if n := len(segs); n >= 4 && strings.EqualFold(segs[n-2], "versions") {
		return segs[n-3]
	}
	if name, ok := e.root["name"].(string); ok {
		return name
	}
	return nil
}

func (e *entity) version() any {
	segs := e.segments()
	if n := len(segs); n >= 2 && strings.EqualFold(segs[n-2], "versions") {
		return segs[n-1]
	}
	return nil
}

func (e *entity) parent() any {
	segs := e.segments()
	if n := len(segs); n >= 4 && strings.EqualFold(segs[n-2], "deployments") {
		return segs[n-3]
	}
	return nil
}

func (e *entity) segments() []string {
	id, _ := e.root["id"].(string)
	return strings.Split(strings.Trim(id, "/"), "/")
}

// component is a component's specification, with what the service says of it.
func (e *entity) component() tree {
	out := tree{}
	spec, _ := asTree(e.base["componentSpec"])
	for k, v := range spec {
		if k != "_source" && v != nil {
			out[k] = unworded(k, v)
		}
	}
	if conf, ok := asTree(out["conf"]); ok {
		out["conf"] = numbersIn(conf)
	}
	if jobs, ok := asTree(out["jobs"]); ok {
		nodes := tree{}
		for name, n := range jobs {
			nodes[name] = showNode(n)
		}
		out["jobs"] = nodes
	}
	for _, key := range []string{"description", "tags"} {
		if v := e.base[key]; v != nil {
			out[key] = v
		}
	}
	for key, v := range map[string]any{"name": e.name(), "version": e.version(), "id": e.root["id"], "creation_context": e.served("creation_context")} {
		if v != nil {
			out[key] = v
		}
	}
	return out
}

// numbersIn are the settings of Spark with numbers for texts of digits, as they are written in
// files; the service keeps texts.
func numbersIn(conf tree) tree {
	out := tree{}
	for k, v := range conf {
		out[k] = v
		if text, ok := v.(string); ok && text != "" && strings.Trim(text, "0123456789") == "" {
			if n := strings.TrimLeft(text, "0"); n != "" {
				out[k] = json.Number(n)
			} else {
				out[k] = json.Number("0")
			}
		}
	}
	return out
}

// show turns the object a table wrote back into the mapping it was read from: every field that is
// there, under its YAML name.
func (t *table) show(j any) any {
	t.ready()
	m, ok := asTree(j)
	if !ok {
		return j
	}
	out := tree{}
	for _, fd := range t.fields {
		path := strings.TrimPrefix(fd.to, "=")
		if path == "" {
			path = camel(fd.name)
		}
		if fd.hidden && fd.to == "" || fd.readonly || path[0] == '/' || path[0] == '@' {
			continue
		}
		val := m.at(path)
		if val == nil {
			continue
		}
		if fd.typ.shows() {
			val = fd.typ.show(val)
		}
		if val != nil {
			out[fd.name] = val
		}
	}
	for _, show := range t.shows {
		show(m, out)
	}
	return out
}

// backwards adds to the shown mapping what the fields alone do not give back.
func backwards(fn func(in, out tree)) part { return showing(fn) }

type showing func(in, out tree)

func (s showing) add(t *table) { t.shows = append(t.shows, s) }
