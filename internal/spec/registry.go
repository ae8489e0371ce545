package spec

var registryKind = kind{word: "registry", collection: "registries", base: "properties", body: later(func() []part {
	return []part{
		readonly("kind", "identity", "sku", "managed_resource_group", "mlflow_registry_uri", "discovery_url"),
		f("id", text, unsent),
		f("name", text, to("@name")),
		f("description", text, unsent),
		f("tags", freeMap, to("/tags"), def(tree{})),
		f("location", text, to("/location"), required),
		f("public_network_access", enum("enabled=Enabled", "disabled=Disabled")),
		f("intellectual_property", obj(f("publisher", text)), unsent),
		f("replication_locations", listOf(obj(
			f("location", text),
			f("storage_config", storageConfig, to("storageAccountDetails"), def([]any{systemStorage("standard_lrs", false)})),
		)), to("regionDetails")),
		f("container_registry", containerRegistry, unsent),
		is("/identity.type", "SystemAssigned"),
		then(func(s *scope, v *value) {
			if who := v.get("intellectual_property").textOf("publisher"); who != "" {
				s.out["intellectualPropertyPublisher"] = who
			}
			s.out["managedResourceGroupTags"] = tree{}
			if tags := v.get("tags"); tags != nil {
				s.out["managedResourceGroupTags"] = tags.raw()
			}
			acr := any(tree{"systemCreatedAcrAccount": tree{"acrAccountSku": "Premium"}})
			if c := v.get("container_registry"); c != nil {
				acr = containerRegistry.read(s.in("container_registry"), c)
			}
			regions, _ := s.out["regionDetails"].([]any)
			for _, r := range regions {
				if region, ok := asTree(r); ok {
					region["acrDetails"] = []any{clone(acr)}
				}
			}
		}),
	}
})}

var (
	acrForm     = re(`^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.ContainerRegistry/registries/[^/]+$`)
	storageForm = re(`^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Storage/storageAccounts/[^/]+$`)
)

// containerRegistry is the id of one that exists, or how to make one.
var containerRegistry = typ{name: "a resource ID or a mapping", readFunc: func(s *scope, v *value) any {
	if v.shape == str {
		if !acrForm.MatchString(v.text) {
			s.fail(v, "%s is not the resource ID of a container registry", describe(v))
			return nil
		}
		return tree{"userCreatedAcrAccount": tree{"armResourceId": tree{"resourceId": v.text}}}
	}
	return obj(
		readonly("arm_resource_id"),
		f("acr_account_sku", enum("premium=Premium"), to("systemCreatedAcrAccount.acrAccountSku"), required),
	).read(s, v)
}}

// storageConfig is a list of accounts that exist, or how to make some.
var storageConfig = typ{name: "a mapping or a list of resource IDs", readFunc: func(s *scope, v *value) any {
	if v.shape == list {
		out := []any{}
		for _, it := range v.items {
			if it.shape != str || !storageForm.MatchString(it.text) {
				s.fail(it, "%s is not the resource ID of a storage account", describe(it))
				continue
			}
			out = append(out, tree{"userCreatedStorageAccount": tree{"armResourceId": tree{"resourceId": it.text}}})
		}
		return out
	}
	got, _ := asTree(obj(
		readonly("arm_resource_id", "replicated_ids"),
		f("storage_account_hns", flag, def(false)),
		f("storage_account_type", enum("standard_lrs", "standard_grs", "standard_ragrs", "standard_zrs", "standard_gzrs",
			"standard_ragzrs", "premium_lrs", "premium_zrs"), def("standard_lrs")),
		f("replication_count", whole),
	).read(s, v))
	if got == nil {
		return nil
	}
	count := int64(1)
	if c := v.get("replication_count"); c != nil {
		n, ok := wholeOf(c)
		if !ok || !n.IsInt64() || n.Int64() < 1 || n.Int64() > 1000 {
			s.in("replication_count").fail(c, "must be an integer from 1 to 1000, not %s", describe(c))
			return nil
		}
		count = n.Int64()
	}
	out := []any{}
	for range count {
		hns, _ := got["storageAccountHns"].(bool)
		out = append(out, systemStorage(got.text("storageAccountType"), hns))
	}
	return out
}}

func systemStorage(kind string, hns bool) tree {
	return tree{"systemCreatedStorageAccount": tree{"storageAccountHnsEnabled": hns, "storageAccountType": kind}}
}

var capabilityHostKind = kind{word: "capability_host", collection: "capabilityHosts", base: "properties", body: later(func() []part {
	return []part{
		f("name", text, to("@name")),
		f("description", text),
		f("capability_host_kind", text, def("Agents")),
		f("vector_store_connections", listOf(text)),
		f("ai_services_connections", listOf(text)),
		f("storage_connections", listOf(text)),
		f("thread_storage_connections", listOf(text)),
	}
})}
