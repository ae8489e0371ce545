package spec

import (
	"encoding/json"
	"maps"
	"strings"
	"time"
)

// present adds the habits of az's own display that no table says: ids with azureml: before them,
// members that are always or never shown, dates as Python writes them. What it adds, Load takes
// back.
func (e *entity) present(collection string, out tree) {
	if c, ok := asTree(out["creation_context"]); ok {
		for _, key := range []string{"created_at", "last_modified_at"} {
			if at, ok := c[key].(string); ok {
				c[key] = pythonTime(at, "-07:00")
			}
		}
	}
	switch collection {
	case "jobs":
		e.presentJob(out)
	case "environments":
		longIDs(out, "id")
		always(out, "tags")
	case "models":
		longIDs(out, "id")
		unlessEmpty(out, "flavors")
	case "components":
		longIDs(out, "id", "code", "environment")
		unlessEmpty(out, "tags")
	case "computes":
		e.presentCompute(out)
	case "datastores":
		delete(out, "creation_context")
		always(out, "credentials")
		shown := tree{}
		for k, v := range out["credentials"].(tree) {
			if k != "credentialsType" {
				shown[snake(k)] = v
			}
		}
		out["credentials"] = shown
	case "connections":
		e.presentConnection(out)
	case "workspaces":
		delete(out, "creation_context")
		for _, key := range []string{"key_vault", "application_insights"} {
			if out[key] == "" {
				delete(out, key) // there is none, and no file may say so
			}
		}
		if net, ok := asTree(out["managed_network"]); ok && net["outbound_rules"] == nil {
			net["outbound_rules"] = []any{}
		}
		if v := e.base["publicNetworkAccess"]; v != nil {
			out["public_network_access"] = v
		}
		if id, ok := asTree(out["identity"]); ok {
			for _, key := range []string{"principal_id", "tenant_id"} {
				if v := e.root.at("identity." + camel(key)); v != nil {
					id[key] = v
				}
			}
		}
	}
}

func (e *entity) presentJob(out tree) {
	if props, ok := asTree(out.at("resources.properties")); out["compute"] == "azureml:local" || ok && props["IsLocal"] != nil {
		out["compute"] = "local" // clients write it in one way or the other
		delete(props, "IsLocal")
	}
	longIDs(out, "compute")
	if id, ok := e.base["codeId"].(string); ok && armAsset.MatchString(id) {
		out["code"] = "azureml:" + id
	}
	if res, ok := asTree(out["resources"]); ok {
		always(res, "properties")
	}
	if out["type"] == "command" {
		always(out, "environment_variables")
	}
	if vars, ok := asTree(out["environment_variables"]); ok {
		for k, v := range vars {
			vars[k] = pythonText(v)
		}
	}
	if out["type"] == "pipeline" {
		for _, key := range []string{"properties", "tags", "inputs", "outputs", "settings"} {
			unlessEmpty(out, key)
		}
	}
	if id, ok := asTree(out["identity"]); ok && id["type"] == "managed" {
		id["type"] = "managed_identity"
	}
	if how, ok := out["sampling_algorithm"].(string); ok {
		out["sampling_algorithm"] = tree{"type": how}
	}
}

func (e *entity) presentCompute(out tree) {
	delete(out, "creation_context")
	if at, ok := out["created_on"].(string); ok {
		out["created_on"] = pythonTime(at, "-0700")
	}
	if out["type"] != "computeinstance" {
		delete(out, "created_on")
	}
	unlessEmpty(out, "tags")
	switch out["type"] {
	case "computeinstance":
		e.presentInstance(out)
	case "amlcompute":
		always(out, "network_settings")
		if out["ssh_public_access_enabled"] == nil {
			out["ssh_public_access_enabled"] = false
		}
	case "agent":
		delete(out, "compute_location")
		if own, ok := asTree(e.base["berth"]); ok {
			for k, v := range own {
				if v != nil && v != "" {
					out[snake(k)] = v
				}
			}
		}
	case "virtualmachine":
		delete(out, "compute_location")
		delete(out, "tags")
		unlessEmpty(out, "ssh_settings")
	}
}

// presentInstance shows what an instance tells of itself, by the names that az has for it.
func (e *entity) presentInstance(out tree) {
	own, _ := asTree(e.base["properties"])
	if op, ok := asTree(out["last_operation"]); ok {
		shown := tree{}
		for k, v := range op {
			if at, ok := v.(string); ok && k == "operationTime" {
				if t, err := time.Parse(time.RFC3339Nano, at); err == nil {
					v = t.UTC().Format("2006-01-02T15:04:05.000000Z")
				}
			}
			shown[snake(k)] = v
		}
		out["last_operation"] = shown
	}
	var services []any
	apps, _ := own["applications"].([]any)
	for _, one := range apps {
		if app, ok := asTree(one); ok {
			services = append(services, tree{"display_name": app["displayName"], "endpoint_uri": app["endpointUri"]})
		}
	}
	if len(services) > 0 {
		out["services"] = services
	}
	if ends, ok := asTree(own["connectivityEndpoints"]); ok && ends["privateIpAddress"] != nil {
		out["network_settings"] = tree{"private_ip_address": ends["privateIpAddress"]}
	}
	if plan, ok := asTree(out["schedules"]); ok {
		if fires, _ := plan["compute_start_stop"].([]any); len(fires) == 0 {
			delete(out, "schedules")
		}
	}
}

// presentConnection shows which sort of credentials there are, the credentials only where the
// service tells them, and the metadata under its old name too.
func (e *entity) presentConnection(out tree) {
	if word := e.base.text("authType"); word != "" && out["credentials"] == nil {
		told := tree{"authType": word}
		if secrets, ok := asTree(e.base["credentials"]); ok {
			maps.Copy(told, secrets)
		}
		out["credentials"] = connectionCredentials.show(told)
	}
	always(out, "metadata")
	out["tags"] = out["metadata"]
}

// always shows a mapping although it is empty.
func always(out tree, key string) {
	if m, ok := asTree(out[key]); ok {
		out[key] = m
	} else {
		out[key] = tree{}
	}
}

// unlessEmpty leaves an empty mapping out.
func unlessEmpty(out tree, key string) {
	if m, ok := asTree(out[key]); ok && len(m) == 0 {
		delete(out, key)
	}
}

// longIDs puts azureml: before full ids.
func longIDs(out tree, keys ...string) {
	for _, key := range keys {
		if id, ok := out[key].(string); ok && strings.HasPrefix(id, "/subscriptions/") {
			out[key] = "azureml:" + id
		}
	}
}

// pythonTime is a moment as Python writes it: no fraction where there is none, else six digits, and
// the zone as numbers.
func pythonTime(at, zone string) string {
	t, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		return at
	}
	form := "2006-01-02T15:04:05"
	if t.Nanosecond() >= 1000 || zone == "-0700" {
		form += ".000000"
	}
	return t.Format(form + zone)
}

// pythonText is a scalar as the text Python makes of it.
func pythonText(v any) any {
	switch x := v.(type) {
	case bool:
		if x {
			return "True"
		}
		return "False"
	case json.Number:
		return x.String()
	}
	return v
}
