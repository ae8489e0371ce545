package api_test

import "testing"

// Naming what is not there is the user's error, as everything is that the user can mend; which one,
// is said inside. Computes, workspaces and addresses are told about by others, who say it at once.
func TestUsersErrors(t *testing.T) {
	x := open(t)
	x.do("PUT", x.ws+"/components/c/versions/1", props("componentSpec", map[string]any{"type": "command", "command": "x"})).want(201)
	for _, path := range []string{
		"/jobs/none", "/components/none", "/components/c/versions/2", "/components/c/labels/none", "/environments/none/versions/1", "/codes/none/versions/1",
		"/data/none", "/models/none/versions/1", "/datastores/none", "/connections/none",
	} {
		x.do("GET", x.ws+path, nil).want(404).is("error.code", "UserError").is("error.details.0", nil).
			is("error.additionalInfo.0.type", "InnerError").is("error.additionalInfo.0.info.value.code", "NotFound")
	}
	x.do("PUT", x.ws+"/components/c/versions/1", props("componentSpec", map[string]any{"type": "command", "command": "y"})).want(400).
		is("error.code", "UserError").is("error.additionalInfo.0.info.value.code", "BadArgument")
	for _, path := range []string{x.ws + "/computes/none", x.ws + "/moons/none", "/subscriptions/sub/resourceGroups/Group/providers/Microsoft.MachineLearningServices/workspaces/none"} {
		x.do("GET", path, nil).want(404).is("error.code", "ResourceNotFound").is("error.additionalInfo", nil)
	}
}
