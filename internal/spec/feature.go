package spec

import (
	"encoding/json"
	"path/filepath"
	"strings"
)

var featureStoreKind = kind{word: "feature_store", collection: "workspaces", base: "properties", body: later(func() []part {
	return []part{
		workspaceCommon,
		is("/kind", "featurestore"),
		f("compute_runtime", obj(f("spark_runtime_version", text)), to("featureStoreSettings.computeRuntime"),
			def(tree{"sparkRuntimeVersion": "3.4.0"})),
		f("offline_store", materializationStore, unsent),
		f("online_store", materializationStore, unsent),
		f("materialization_identity", obj(f("principal_id", text), f("client_id", text), f("resource_id", text)), unsent),
	}
})}

var materializationStore = later(materializationStoreParts)

func materializationStoreParts() []part {
	return []part{
		f("type", text, required),
		f("target", storeID, required),
	}
}

// storeID is the id of the storage a feature store keeps its values in.
var storeID = typ{name: "an ARM resource ID", readFunc: func(s *scope, v *value) any {
	id, ok := readText(s, v).(string)
	if ok && !storeForm.MatchString(id) {
		s.fail(v, "%s is not an ARM resource ID; write /subscriptions/ID/resourceGroups/NAME/providers/…", describe(v))
		return nil
	}
	return id
}}

var storeForm = re(`^/?subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.[^/]+/[^/]+/[^/]+`)

var stage = exactEnum("Development", "Production", "Archived")

var featureEntityKind = kind{word: "feature_store_entity", collection: "featurestoreEntities", base: "properties", body: later(func() []part {
	return []part{
		readonly("latest_version", "creation_context", "id"),
		f("name", text, to("@name"), required),
		f("version", text, to("@version"), required),
		f("description", text),
		f("index_columns", listOf(obj(
			f("name", text, to("columnName"), required),
			f("type", enum("string=String", "integer=Integer", "long=Long", "float=Float", "double=Double", "binary=Binary",
				"datetime=Datetime", "boolean=Boolean"), to("dataType"), required),
		)), required),
		f("stage", stage, def("Development")),
		f("tags", textMap, def(tree{})),
		f("properties", textMap, def(tree{})),
	}
})}

var featureSetKind = kind{word: "feature_set", collection: "featuresets", base: "properties", body: later(func() []part {
	return []part{
		readonly("latest_version", "creation_context", "id"),
		f("name", text, to("@name"), required),
		f("version", text, to("@version"), required),
		f("description", text),
		f("entities", listOf(text), required),
		f("specification", obj(f("path", text, required)), required, unsent),
		f("stage", stage, def("Development")),
		f("tags", textMap, def(tree{})),
		f("materialization_settings", obj(
			f("schedule", obj(f("type", enum("recurrence"), required, unsent), more(recurrence))),
			f("notification", obj(
				f("email_on", listOf(exactEnum("JobCompleted", "JobFailed", "JobCancelled")), required),
				f("emails", listOf(text), required),
			)),
			f("resource", obj(f("instance_type", text))),
			f("spark_configuration", freeMap),
			f("offline_enabled", flag),
			f("online_enabled", flag),
			then(func(s *scope, _ *value) {
				on, off, store := s.out["onlineEnabled"] == true, s.out["offlineEnabled"] == true, "None"
				switch {
				case on && off:
					store = "OnlineAndOffline"
				case on:
					store = "Online"
				case off:
					store = "Offline"
				}
				delete(s.out, "onlineEnabled")
				delete(s.out, "offlineEnabled")
				s.out["storeType"] = store
			}),
		)),
		backwards(func(in, out tree) {
			if path := in.at("specification.path"); path != nil {
				out["specification"] = tree{"path": path}
			}
		}),
		then(func(s *scope, v *value) {
			path := v.get("specification").get("path")
			if path == nil || path.shape != str {
				return
			}
			here := s.in("specification.path")
			s.out["specification"] = tree{"path": here.uri(path, "featuresets", Upload{Kind: "data"})}
			if remote(path.text) {
				return
			}
			spec := here.follow(path, filepath.ToSlash(filepath.Join(path.text, "FeatureSetSpec.yaml")))
			if spec == nil {
				return
			}
			s.out["properties"] = tree{"featuresetPropertiesVersion": "1", "featuresetProperties": featureText(spec)}
		}),
	}
})}

// featureText is a feature set's specification as the JSON text the service wants, its members in a
// fixed order.
func featureText(v *value) string {
	var w jsonText
	w.open("{")
	if src := v.get("source"); src != nil {
		w.key("source")
		w.open("{")
		w.text("type", src.get("type"))
		w.text("path", src.get("path"))
		if ts := src.get("timestamp_column"); ts != nil {
			w.key("timestampColumn")
			w.open("{")
			w.text("name", ts.get("name"))
			w.text("format", ts.get("format"))
			w.close("}")
		}
		w.window("sourceDelay", src.get("source_delay"))
		w.close("}")
	}
	if code := v.get("feature_transformation_code"); code != nil {
		w.key("featureTransformationCode")
		w.open("{")
		w.text("Path", code.get("path"))
		w.text("TransformerClass", code.get("transformer_class"))
		w.close("}")
	}
	w.columns("features", "FeatureName", v.get("features"))
	w.columns("indexColumns", "ColumnName", v.get("index_columns"))
	w.window("sourceLookback", v.get("source_lookback"))
	w.window("temporalJoinLookback", v.get("temporal_join_lookback"))
	w.close("}")
	return w.b.String()
}

// jsonText writes JSON with blanks after commas and colons, members in the order they are written.
type jsonText struct {
	b     strings.Builder
	first bool
}

func (w *jsonText) open(bracket string)  { w.b.WriteString(bracket); w.first = true }
func (w *jsonText) close(bracket string) { w.b.WriteString(bracket); w.first = false }

func (w *jsonText) comma() {
	if !w.first {
		w.b.WriteString(", ")
	}
	w.first = false
}

func (w *jsonText) key(name string) {
	w.comma()
	w.b.WriteString(quoteJSON(name) + ": ")
}

func quoteJSON(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(b)
}

func (w *jsonText) text(name string, v *value) {
	if v == nil || v.shape == null {
		return
	}
	w.key(name)
	w.b.WriteString(quoteJSON(v.python()))
}

func (w *jsonText) window(name string, v *value) {
	if v == nil || v.shape != mapping {
		return
	}
	w.key(name)
	w.open("{")
	for _, part := range []string{"days", "hours", "minutes"} {
		if n := v.get(part); n != nil && n.shape == integer {
			w.key(pascal(part))
			w.b.WriteString(n.num.String())
		}
	}
	w.close("}")
}

func (w *jsonText) columns(name, column string, v *value) {
	if v == nil || v.shape != list {
		return
	}
	w.key(name)
	w.open("[")
	for _, it := range v.items {
		w.comma()
		w.open("{")
		w.text(column, it.get("name"))
		w.text("DataType", it.get("type"))
		w.text("Description", it.get("description"))
		if tags := it.get("tags"); tags != nil && tags.shape == mapping {
			w.key("Tags")
			w.open("{")
			for _, p := range tags.pairs {
				w.text(p.key, p.val)
			}
			w.close("}")
		}
		w.close("}")
	}
	w.close("]")
}
