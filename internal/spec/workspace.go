package spec

import (
	"strings"
)

var workspaceKind = kind{word: "workspace", collection: "workspaces", base: "properties", body: byKey("kind", func() map[string]typ {
	return map[string]typ{
		"":        into(obj(is("/kind", "default"), workspaceCommon)),
		"default": into(obj(is("/kind", "default"), workspaceCommon)),
		"hub": into(obj(is("/kind", "hub"), workspaceCommon,
			f("default_resource_group", text, unsent),
			f("enable_data_isolation", flag, def(false)),
			is("workspaceHubConfig", tree{}))),
		"project": into(obj(is("/kind", "project"), workspaceCommon,
			f("hub_id", text, to("hubResourceId"), required))),
	}
})}

var workspaceCommon = lazyParts(func() parts {
	return parts{
		readonly("id", "mlflow_tracking_uri", "kind", "associated_workspaces", "associated_workspace_ids"),
		f("name", text, to("@name"), required),
		f("location", text, to("/location")),
		f("tags", textMap, to("/tags"), def(tree{})),
		f("resource_group", text, unsent),
		f("discovery_url", text),
		f("display_name", text, to("friendlyName")),
		f("description", text),
		f("hbi_workspace", flag, def(false)),
		f("storage_account", armPath),
		f("key_vault", armPath),
		f("application_insights", armPath),
		f("container_registry", armPath),
		f("image_build_compute", text),
		f("public_network_access", enum("enabled=Enabled", "disabled=Disabled")),
		f("network_acls", networkACLs, unsent),
		f("system_datastores_auth_mode", text),
		f("identity", workspaceIdentity, to("/identity")),
		f("primary_user_assigned_identity", text),
		f("customer_managed_key", obj(
			f("key_vault", text),
			f("key_uri", webAddress),
			f("cosmosdb_id", text),
			f("storage_id", text),
			f("search_id", text),
		), unsent),
		f("workspace_hub", armPath, to("hubResourceId")),
		then(func(s *scope, v *value) {
			if v.has("workspace_hub") { // what belongs to a hub is a project
				s.draft.body["kind"] = "project"
			}
		}),
		f("managed_network", managedNetwork),
		f("provision_network_now", flag),
		f("enable_data_isolation", flag, def(false)),
		f("allow_roleassignment_on_rg", flag, to("allowRoleAssignmentOnRG")),
		f("serverless_compute", obj(
			f("custom_subnet", subnetPath, to("serverlessComputeCustomSubnet"), nullable),
			f("no_public_ip", flag, to("serverlessComputeNoPublicIP"), def(false)),
		), to("serverlessComputeSettings")),
	}
})

var armForm = re(`(?i)^/subscriptions/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/resourceGroups/.+`)

// armPath is a full ARM id.
var armPath = typ{name: "an ARM resource ID", readFunc: func(s *scope, v *value) any {
	id, ok := readText(s, v).(string)
	if ok && !armForm.MatchString(id) {
		s.fail(v, "%s is not an ARM resource ID; write /subscriptions/GUID/resourceGroups/NAME/providers/…", describe(v))
		return nil
	}
	return id
}}

// subnetPath is the id of a subnet; None takes the subnet away.
var subnetPath = typ{name: "an ARM resource ID", readFunc: func(s *scope, v *value) any {
	id, ok := readText(s, v).(string)
	if !ok || id == "None" {
		return nil
	}
	if !strings.HasPrefix(strings.ToLower(id), "/subscriptions/") {
		s.fail(v, "%s is not a subnet ID; write /subscriptions/…/subnets/NAME", describe(v))
		return nil
	}
	return id
}}

// workspaceIdentity has its user-assigned identities in a map, and its type is spelled by the
// client's own rule: user_assigned travels as Userassigned.
var workspaceIdentity = later(workspaceIdentityParts)

func workspaceIdentityParts() []part {
	return []part{
		f("principal_id", text, unsent),
		f("tenant_id", text, unsent),
		f("type", looseEnum("system_assigned=Systemassigned", "user_assigned=Userassigned", "none=None",
			"system_assigned,user_assigned=Systemassigned,userassigned"), required),
		f("user_assigned_identities", mapOf(orNull(typ{name: "a mapping", readFunc: func(s *scope, v *value) any {
			obj(f("principal_id", text), f("client_id", text), f("resource_id", text)).read(s, v)
			return tree{}
		}})), nullable),
	}
}

var networkACLs = later(networkACLsParts)

func networkACLsParts() []part {
	return []part{
		f("default_action", exactEnum("Deny", "Allow"), required),
		f("ip_rules", listOf(obj(f("value", text, required))), nullable),
		then(func(s *scope, v *value) {
			if rules := v.get("ip_rules"); v.textOf("default_action") == "Deny" && (rules == nil || len(rules.items) == 0) {
				s.in("ip_rules").fail(v, "is required when default_action is Deny")
			}
		}),
	}
}

var managedNetwork = later(managedNetworkParts)

func managedNetworkParts() []part {
	return []part{
		drop,
		readonly("network_id", "status"),
		f("isolation_mode", looseEnum("disabled=Disabled", "allow_internet_outbound=AllowInternetOutbound",
			"allow_only_approved_outbound=AllowOnlyApprovedOutbound"), required),
		f("outbound_rules", outboundRules, nullable),
		f("firewall_sku", looseEnum("standard=Standard", "basic=Basic"), def("Standard")),
	}
}

// outboundRules are a list in YAML and a map by name in the document.
var outboundRules = typ{name: "a list", readFunc: func(s *scope, v *value) any {
	items, ok := listOf(oneOf(
		outboundRule("PrivateEndpoint", "private_endpoint", f("destination", obj(
			f("service_resource_id", text, required),
			f("subresource_target", text, required),
			f("spark_enabled", flag, required),
		), required), f("fqdns", listOf(text))),
		outboundRule("ServiceTag", "service_tag", f("destination", obj(
			f("service_tag", text, required),
			f("protocol", text, required),
			f("port_ranges", text, required),
			f("address_prefixes", listOf(text)),
		), required)),
		outboundRule("FQDN", "fqdn", f("destination", text, required)),
	)).read(s, v).([]any)
	if !ok {
		return nil
	}
	out := tree{}
	for _, it := range items {
		if rule, ok := asTree(it); ok {
			name := rule.text("name")
			delete(rule, "name")
			out[name] = rule
		}
	}
	return out
}}

func outboundRule(name, word string, own ...part) typ {
	ps := parts{
		drop,
		is("type", name),
		is("category", "UserDefined"),
		readonly("type", "category", "status", "parent_rule_names"),
		f("name", text, required),
	}
	return obj(append(ps, own...)...)
}
