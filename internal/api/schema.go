package api

import (
	"strings"

	"github.com/berthml/berth"
)

// The members whose types Azure's clients rely on, as paths from the top of the document: one value
// of another type, and they cannot read the list it is in. Null is not a value, and what is not
// named here may be anything.
var (
	commonSchema = map[string]schema{
		"location": isText, "kind": isText, "tags": isObject, "identity": isObject, "sku": isObject,
		"properties.description": isText, "properties.tags": isObject, "properties.properties": isObject,
		"properties.isArchived": isTruth, "properties.isAnonymous": isTruth,
	}
	componentSchema = map[string]schema{
		"properties.componentSpec": isObject, "properties.componentSpec.type": isText, "properties.componentSpec.inputs": isObject,
		"properties.componentSpec.outputs": isObject, "properties.componentSpec.jobs": isObject,
	}
	codeSchema       = map[string]schema{"properties.codeUri": isText}
	connectionSchema = map[string]schema{
		"properties.category": isText, "properties.authType": isText, "properties.target": isText, "properties.metadata": isObject,
		"properties.credentials": isObject,
	}
	dataSchema      = map[string]schema{"properties.dataType": isText, "properties.dataUri": isText}
	datastoreSchema = map[string]schema{
		"properties.datastoreType": isText, "properties.accountName": isText, "properties.containerName": isText, "properties.endpoint": isText,
		"properties.credentials": isObject, "properties.credentials.credentialsType": isText, "properties.credentials.secrets": isObject,
	}
	environmentSchema = map[string]schema{
		"properties.image": isText, "properties.condaFile": isText, "properties.build": isObject, "properties.build.contextUri": isText,
		"properties.build.dockerfilePath": isText, "properties.inferenceConfig": isObject, "properties.osType": isText,
	}
	modelSchema = map[string]schema{"properties.modelType": isText, "properties.modelUri": isText, "properties.stage": isText, "properties.flavors": isObject}
)

// schema is the type of a value; its text is for messages.
type schema string

const (
	isText   schema = "a string"
	isObject schema = "an object"
	isTruth  schema = "true or false"
)

func (f schema) fits(v any) bool {
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
	for _, some := range []map[string]schema{commonSchema, r.Schema} {
		for path, f := range some {
			if !f.fits(dig(body, path)) {
				return berth.Errorf(berth.Invalid, "%s must be %s", path, f)
			}
		}
	}
	return nil
}
