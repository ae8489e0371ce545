package spec

import (
	"strings"

	"github.com/berthml/berth"
)

var (
	armAsset     = re(`(?i)^/?subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.MachineLearningServices/workspaces/[^/]+/[^/]+/[^/]+`)
	virtualOne   = re(`(?i)^(azureml:)?//virtualclusters/`)
	virtualLong  = re(`(?i)/virtualclusters/`)
	registryForm = re(`^azureml://registries/.+`)
	urlForm      = re(`^[A-Za-z][A-Za-z0-9+.-]*://[^/]`)
)

// remote says whether a path is an address rather than a local file: a URI, an ARM id, azureml:….
func remote(path string) bool {
	return urlForm.MatchString(path) || armAsset.MatchString(path) || strings.HasPrefix(path, "azureml:") ||
		strings.HasPrefix(path, "runs:/")
}

// armID is the id of a named resource of the workspace: "cpu" in computes, or an id that is one
// already.
func (s *scope) armID(collection, name string) string {
	name = strings.TrimPrefix(name, "azureml:")
	if cluster, ok := cutFold(name, "virtualclusters/"); ok {
		w := s.workspace()
		return "/subscriptions/" + w.Subscription + "/resourceGroups/" + w.Group + "/providers/" + berth.Provider + "/virtualclusters/" + cluster
	}
	if strings.HasPrefix(strings.ToLower(name), "/subscriptions/") || virtualOne.MatchString(name) || virtualLong.MatchString(name) {
		return name
	}
	return s.workspace().ResourceID(collection, name)
}

func cutFold(s, prefix string) (string, bool) {
	if len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix) {
		return s[len(prefix):], true
	}
	return s, false
}

// assetID is the id of a version of an asset as far as it can be told here: NAME:VERSION becomes an
// ARM id, a label stays a label for the server to resolve, a registry's id stays what it is.
func (s *scope) assetID(collection, ref string) string {
	short := strings.TrimPrefix(ref, "azureml:")
	switch {
	case strings.HasPrefix(short, "//"): // azureml://…
		return ref
	case armAsset.MatchString(short):
		return "/" + strings.TrimPrefix(short, "/")
	case collection == "environments" && strings.HasPrefix(short, "AzureML-"):
		return "azureml:" + short
	case strings.Contains(short, "@"):
		return "azureml:" + short
	}
	if name, version, ok := strings.Cut(short, ":"); ok {
		return s.workspace().ResourceID(collection, name, "versions", version)
	}
	return "azureml:" + short + "@latest"
}

// compute is a cluster, or local: the machine the job is sent from.
var compute = typ{name: "a compute", readFunc: func(s *scope, v *value) any {
	if v.shape == str && strings.EqualFold(v.text, "local") {
		return "local"
	}
	return cluster.read(s, v)
}, showFunc: showName}

// cluster is the name of a compute or a full id.
var cluster = typ{name: "a compute", readFunc: func(s *scope, v *value) any {
	name, ok := readText(s, v).(string)
	if !ok {
		return nil
	}
	if s.bind && bound(name) {
		return name
	}
	return s.armID("computes", name)
}, showFunc: showName}

// showName is azureml:NAME for the id of an unversioned resource.
func showName(j any) any {
	id, ok := j.(string)
	if !ok || !armAsset.MatchString(id) {
		return j
	}
	return "azureml:" + id[strings.LastIndexByte(id, '/')+1:]
}

// showAsset is azureml:NAME:VERSION for the id of a version of an asset.
func showAsset(j any) any {
	id, ok := j.(string)
	if !ok || !armAsset.MatchString(id) {
		return j
	}
	p := strings.Split(strings.Trim(id, "/"), "/")
	if n := len(p); n >= 12 && strings.EqualFold(p[n-2], "versions") {
		return "azureml:" + p[n-3] + ":" + p[n-1]
	}
	return j
}

// ownID is the id a resource is shown with: it says nothing about what is made of the file.
func ownID(collection string, versioned bool) typ {
	return typ{name: "a reference", readFunc: func(s *scope, v *value) any {
		if id, ok := readText(s, v).(string); ok && s.checkAsset(v, collection, versioned) {
			return id
		}
		return nil
	}}
}

// checkAsset reports a reference to an asset that cannot be one.
func (s *scope) checkAsset(v *value, collection string, needVersion bool) bool {
	short, ok := strings.CutPrefix(v.text, "azureml:")
	switch {
	case registryForm.MatchString(v.text):
		return true
	case !ok || short == "" || short[0] == '@':
		s.fail(v, "%s is not a reference; write azureml:NAME:VERSION, azureml:NAME@LABEL, or azureml: followed by a full resource ID", describe(v))
		return false
	case armAsset.MatchString(short) && !strings.EqualFold(collectionOf(short), collection):
		s.fail(v, "%s refers to %s; it must refer to %s", describe(v), collectionOf(short), collection)
		return false
	case armAsset.MatchString(short):
		return true
	case strings.Contains(short, "/"):
		s.fail(v, "%s does not refer to %s; write azureml:NAME:VERSION or azureml: followed by a full resource ID", describe(v), collection)
		return false
	case needVersion && !strings.ContainsAny(short, ":@"):
		s.fail(v, "%s has no version; write azureml:NAME:VERSION or azureml:NAME@latest", describe(v))
		return false
	}
	return s.checkLabel(v, collection)
}

// collectionOf is the word before the name in the id of an asset of a workspace.
func collectionOf(id string) string {
	p := strings.Split(strings.TrimPrefix(id, "/"), "/")
	return p[8] // subscriptions/S/resourceGroups/G/providers/P/workspaces/W/…
}

// checkOwn is checkAsset for an asset of the workspace: a registry's will not do.
func (s *scope) checkOwn(v *value, collection string) bool {
	if registryForm.MatchString(v.text) {
		s.fail(v, "%s is in a registry; use one from the workspace, azureml:NAME:VERSION", describe(v))
		return false
	}
	return s.checkAsset(v, collection, true)
}

// checkLabel reports a label that nothing has: versions have latest, components a default besides.
// The labels of models are also aliases of MLflow's registry, which the service knows.
func (s *scope) checkLabel(v *value, collection string) bool {
	short := strings.TrimPrefix(v.text, "azureml:")
	i := strings.LastIndexByte(short, '@')
	if i < 0 || strings.Contains(short, "/") || collection == "environments" && strings.HasPrefix(short, "AzureML-") {
		return true
	}
	label := short[i+1:]
	if label == "latest" || label == "default" && collection == "components" || label != "" && collection == "models" {
		return true
	}
	s.fail(v, "%s has no label %q; use @latest or a version", short[:i], label)
	return false
}
