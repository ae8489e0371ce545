package api_test

import (
	"strings"
	"testing"

	"github.com/berthml/berth/internal/auth"
)

// TestCurated: an environment that is always there is found in every way one is looked for, until
// somebody makes one of that name.
func TestCurated(t *testing.T) {
	x := open(t)
	env := x.ws + "/environments/always-1.5"
	x.do("GET", env, nil).want(200).is("name", "always-1.5").is("properties.latestVersion", "1").is("properties.nextVersion", "1")
	x.do("GET", env+"/versions/7", nil).want(200).is("name", "7").is("properties.environmentType", "Curated")
	made := strings.TrimSuffix(x.do("GET", x.ws, nil).want(200).at("systemData.createdAt").(string), "Z") + "+00:00"
	for _, path := range []string{"", "/versions/7", "/labels/latest"} { // it is as old as the workspace
		x.do("GET", env+path, nil).is("systemData.createdAt", made).is("systemData.lastModifiedAt", made)
	}
	x.do("GET", env+"/labels/latest", nil).want(200).is("name", "1").is("properties.condaFile", "{\n  \"dependencies\": [\n    \"python=3.10\"\n  ]\n}")
	x.do("GET", env+"/versions?$top=1", nil).want(200).is("value.0.name", "1")
	x.do("GET", env+"/versions?listViewType=ArchivedOnly", nil).want(200).is("value.0", nil)
	x.do("GET", x.ws+"/environments/other/versions", nil).want(200).is("value.0", nil)
	x.do("GET", x.ws+"/environments/other", nil).want(404)
	x.do("GET", x.ws+"/environments/other/labels/latest", nil).want(404)

	x.do("PUT", env+"/versions/1", props("image", "mine")).want(201)
	x.do("GET", env, nil).want(200).is("properties.latestVersion", "1").is("properties.nextVersion", "2")
	x.do("GET", env+"/labels/latest", nil).want(200).is("properties.image", "mine")
}

// TestCuratedIsNotShadowed: jobs of others name a curated environment and mean it, so a user cannot
// put one of their own in its place.
func TestCuratedIsNotShadowed(t *testing.T) {
	x := open(t)
	user := x.token("u", auth.User)
	for _, name := range []string{"always-1.5", "AzureML-anything", "azureml-x"} {
		x.as(user, "PUT", x.ws+"/environments/"+name+"/versions/9", props("image", "mine")).want(403).says("curated environment")
	}
	x.as(user, "PUT", x.ws+"/environments/mine/versions/1", props("image", "mine")).want(201)
	x.do("PUT", x.ws+"/environments/always-1.5/versions/9", props("image", "the house's")).want(201)
	x.as(user, "GET", x.ws+"/environments/always-1.5/versions/9", nil).want(200).is("properties.image", "the house's")
}
