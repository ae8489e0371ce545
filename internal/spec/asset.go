package spec

import (
	"path/filepath"
	"strings"

	"github.com/berthml/berth"
)

// assetCommon are the fields of every versioned asset.
var assetCommon = lazyParts(func() parts {
	return parts{
		readonly("creation_context", "latest_version"),
		f("name", text, to("@name"), required),
		f("version", version, to("@version")),
		f("description", text),
		f("datastore", text, unsent),
		is("isArchived", false),
		is("isAnonymous", false),
	}
})

var dataKind = kind{word: "data", collection: "data", base: "properties", body: dataBody}

var dataBody = later(dataBodyParts)

func dataBodyParts() []part {
	return []part{
		f("name", text, to("@name")),
		assetCommon,
		f("id", text, unsent),
		f("path", text, required, unsent, to("dataUri")),
		f("type", exactEnum(dataTypes...), to("dataType"), def("uri_folder")),
		f("tags", namedMap, def(tree{})),
		f("auto_delete_setting", autoDelete),
		readonly("properties"),
		is("properties", tree{}),
		then(func(s *scope, v *value) {
			if s.draft.name == "" && v.has("version") {
				s.in("name").fail(v, "is required when version is set")
			}
			if s.draft.name == "" { // nobody will look for it by name
				s.draft.name, s.draft.version, s.draft.anonymous = berth.NewGUID(), "1", true
				s.out["isAnonymous"] = true
			}
			path := v.get("path")
			if path == nil || path.shape != str {
				return
			}
			if short, ok := strings.CutPrefix(path.text, "azureml:"); ok && !strings.HasPrefix(short, "//") {
				s.in("path").fail(path, "%s refers to an asset; use a local path or a URL", describe(path))
			}
			kind := s.out.text("dataType")
			if !remote(path.text) {
				s.in("path").checkShape(path, kind)
			}
			s.out["dataUri"] = s.in("path").uri(path, "data", Upload{Kind: "data", Type: kind, Datastore: v.textOf("datastore")})
			if dir := s.resolve(path, path.text); kind == "mltable" && isDir(dir) && !exists(filepath.Join(dir, "MLTable")) {
				s.in("path").fail(path, "%s has no file named MLTable", path.text)
			}
			if kind == "mltable" && !remote(path.text) {
				if refs := s.tablePaths(s.resolve(path, path.text)); len(refs) > 0 {
					s.out["referencedUris"] = refs
				}
			}
		}),
	}
}

// uri is the place of an asset's files: an address as it is, a local path as an upload.
func (s *scope) uri(v *value, collection string, u Upload) any {
	path := v.text
	if remote(path) {
		return path
	}
	path = strings.TrimPrefix(path, "file:")
	u.Path = s.resolve(v, path)
	return s.upload(v, u)
}

// checkShape refuses a file where a folder is meant and the other way round.
func (s *scope) checkShape(path *value, kind string) {
	abs := s.resolve(path, path.text)
	if !exists(abs) {
		return // the upload says so
	}
	if dir := isDir(abs); dir && kind == "uri_file" || !dir && kind != "uri_file" {
		s.fail(path, "%s is a %s, which data of type %s cannot be", path.text, map[bool]string{true: "folder", false: "file"}[dir], kind)
	}
}

// tablePaths are the paths an MLTable file in dir refers to.
func (s *scope) tablePaths(dir string) []any {
	top, err := open(filepath.Join(dir, "MLTable"), "MLTable")
	if err != nil {
		return nil
	}
	var refs []any
	if paths := top.get("paths"); paths != nil {
		for _, it := range paths.items {
			for _, key := range []string{"file", "folder", "pattern"} {
				if p := it.textOf(key); p != "" {
					refs = append(refs, p)
				}
			}
		}
	}
	return refs
}

var modelKind = kind{word: "model", collection: "models", base: "properties", body: modelBody}

var modelBody = later(modelBodyParts)

func modelBodyParts() []part {
	return []part{
		readonly("id", "utc_time_created", "job_name", "intellectual_property"),
		assetCommon,
		f("path", text, unsent, to("modelUri")),
		f("type", enum(modelTypes...), to("modelType"), def("custom_model")),
		f("tags", writtenMap, def(tree{})),
		f("properties", writtenMap, def(tree{})),
		f("stage", text),
		f("flavors", flavors),
		f("system_metadata", freeMap, unsent),
		f("default_deployment_template", deploymentTemplate),
		f("allowed_deployment_templates", listOf(deploymentTemplate)),
		then(func(s *scope, v *value) {
			if path := v.get("path"); path != nil && path.shape == str {
				uri, _ := s.in("path").uri(path, "models", Upload{Kind: "model", Datastore: v.textOf("datastore")}).(string)
				if rest, ok := strings.CutPrefix(uri, "azureml://datastores/"); ok {
					w := s.workspace()
					uri = "azureml://subscriptions/" + w.Subscription + "/resourcegroups/" + w.Group + "/workspaces/" + w.Name + "/datastores/" + rest
				}
				s.out["modelUri"] = uri
			}
		}),
	}
}

var deploymentTemplate = later(deploymentTemplateParts)

func deploymentTemplateParts() []part { return []part{f("asset_id", text)} }

// flavors hold their settings one level down.
var flavors = typ{name: "a mapping", readFunc: func(s *scope, v *value) any {
	m, ok := asTree(freeMap.read(s, v))
	if !ok {
		return nil
	}
	out := tree{}
	for k, val := range m {
		out[k] = tree{"data": val}
	}
	return out
}, showFunc: func(j any) any {
	m, ok := asTree(j)
	if !ok {
		return j
	}
	out := tree{}
	for k, val := range m {
		if sub, ok := asTree(val); ok {
			val = sub["data"]
		}
		out[k] = val
	}
	return out
}}

var codeKind = kind{word: "code", collection: "codes", base: "properties", body: codeBody}

var codeBody = later(codeBodyParts)

func codeBodyParts() []part {
	return []part{
		readonly("id"),
		assetCommon,
		f("path", text, unsent, to("codeUri")),
		f("tags", freeMap),
		f("auto_delete_setting", autoDelete, unsent),
		then(func(s *scope, v *value) {
			if path := v.get("path"); path != nil && path.shape == str {
				s.out["codeUri"] = s.in("path").uri(path, "codes", Upload{Kind: "code"})
			}
		}),
	}
}
