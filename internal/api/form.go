package api

import (
	"strings"

	"github.com/berthml/berth"
)

// The members whose form Azure's clients rely on, as paths from the top of the document: one value of another form, and they cannot read the
// list it is in. Null is no value, and what is not named here may be anything.
var (
	commonForm = map[string]form{
		"location": isText, "kind": isText, "tags": isObject, "identity": isObject, "sku": isObject,
		"properties.description": isText, "properties.tags": isObject, "properties.properties": isObject,
		"properties.isArchived": isTruth, "properties.isAnonymous": isTruth,
	}
	componentForm = map[string]form{
		"properties.componentSpec": isObject, "properties.componentSpec.type": isText, "properties.componentSpec.inputs": isObject,
		"properties.componentSpec.outputs": isObject, "properties.componentSpec.jobs": isObject,
	}
	codeForm       = map[string]form{"properties.codeUri": isText}
	connectionForm = map[string]form{
		"properties.category": isText, "properties.authType": isText, "properties.target": isText, "properties.metadata": isObject,
		"properties.credentials": isObject,
	}
	dataForm      = map[string]form{"properties.dataType": isText, "properties.dataUri": isText}
	datastoreForm = map[string]form{
		"properties.datastoreType": isText, "properties.accountName": isText, "properties.containerName": isText, "properties.endpoint": isText,
		"properties.credentials": isObject, "properties.credentials.credentialsType": isText, "properties.credentials.secrets": isObject,
	}
	environmentForm = map[string]form{
		"properties.image": isText, "properties.condaFile": isText, "properties.build": isObject, "properties.build.contextUri": isText,
		"properties.build.dockerfilePath": isText, "properties.inferenceConfig": isObject, "properties.osType": isText,
	}
	modelForm = map[string]form{"properties.modelType": isText, "properties.modelUri": isText, "properties.stage": isText, "properties.flavors": isObject}
)

// form is what a value may be; its text says so.
type form string

const (
	isText   form = "a string"
	isObject form = "an object"
	isTruth  form = "true or false"
)

func (f form) fits(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return f == isText && !strings.ContainsRune(v, 0)
	case map[string]any:
		return f == isObject
	case bool:
		return f == isTruth
	}
	return false
}

// checkForm refuses a document that would break the lists of others.
func checkForm(r *resource, body map[string]any) error {
	for _, some := range []map[string]form{commonForm, r.Form} {
		for path, f := range some {
			if !f.fits(dig(body, path)) {
				return berth.Errorf(berth.Invalid, "%s must be %s", path, f)
			}
		}
	}
	return nil
}
