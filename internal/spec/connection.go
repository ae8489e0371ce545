package spec

import (
	"slices"
	"strings"
)

// connections are the types of connections: what the service calls them, what else they have, and
// the credentials they use when the file names none.
var connectionKind = kind{word: "connection", collection: "connections", base: "properties", body: byKey("type", func() map[string]typ {
	return map[string]typ{
		"git":                     connection("Git", "None"),
		"container_registry":      connection("ContainerRegistry", "None"),
		"python_feed":             connection("PythonFeed", "None"),
		"s3":                      connection("S3", "None"),
		"snowflake":               connection("Snowflake", "None"),
		"azure_sql_db":            connection("AzureSqlDb", "None"),
		"azure_synapse_analytics": connection("AzureSynapseAnalytics", "None"),
		"azure_my_sql_db":         connection("AzureMySqlDb", "None"),
		"azure_postgres_db":       connection("AzurePostgresDb", "None"),
		"custom":                  connection("CustomKeys", "None"),
		"azure_data_lake_gen2":    connection("ADLSGen2", "AAD"),
		"azure_data_lake_gen_2":   connection("ADLSGen2", "AAD"),
		"azure_blob": connection("AzureBlob", "AAD",
			f("url", text, to("target")),
			f("account_name", text, to("metadata.AccountName"), required),
			f("container_name", text, to("metadata.ContainerName"), required)),
		"azure_one_lake": connection("AzureOneLake", "AAD",
			f("endpoint", text, unsent),
			f("one_lake_workspace_name", text, unsent),
			f("artifact", obj(f("type", looseEnum("lake_house"), required), f("name", text, required)), unsent, nullable),
			then(oneLakeTarget)),
		"azure_open_ai": connection("AzureOpenAi", "AAD",
			f("azure_endpoint", text, to("target")),
			apiKey,
			f("api_version", text, to("metadata.ApiVersion"), nullable),
			f("open_ai_resource_id", text, to("metadata.ResourceId"), nullable),
			is("metadata.ApiType", "Azure")),
		"azure_ai_services": connection("AIServices", "AAD",
			f("endpoint", text, to("target")),
			apiKey,
			f("ai_services_resource_id", text, to("metadata.ResourceId"))),
		"azure_ai_search": connection("CognitiveSearch", "AAD", f("endpoint", text, to("target")), apiKey),
		"azure_content_safety": connection("CognitiveService", "AAD", f("endpoint", text, to("target")), apiKey,
			is("metadata.Kind", "Content Safety")),
		"azure_speech_services": connection("CognitiveService", "AAD", f("endpoint", text, to("target")), apiKey,
			is("metadata.Kind", "speech")),
		"api_key":    connection("ApiKey", "AAD", f("api_base", text, to("target"), required), requiredKey),
		"open_ai":    connection("OpenAi", "AAD", requiredKey),
		"serp":       connection("Serp", "AAD", requiredKey),
		"serverless": connection("Serverless", "AAD", f("endpoint", text, to("target")), requiredKey),
	}
})}

// credentialsOf are the credentials of categories that do not take all of them.
var credentialsOf = lazy[map[string][]string]{make: func() map[string][]string {
	return map[string][]string{
		"AzureBlob": {"sas", "account_key", "aad"}, "ADLSGen2": {"service_principal", "managed_identity", "aad", "none"},
		"AzureOpenAi": {"api_key"}, "AIServices": {"api_key"}, "CognitiveSearch": {"api_key"}, "CognitiveService": {"api_key"},
		"ApiKey": {"api_key"}, "OpenAi": {"api_key"}, "Serp": {"api_key"}, "Serverless": {"api_key"},
	}
}}

// The key of a service stands for credentials.
var (
	apiKey      = f("api_key", text, to("credentials.key"), nullable)
	requiredKey = f("api_key", text, to("credentials.key"), required)
)

func connection(category, auth string, own ...part) typ {
	return flat(func() []part { return connectionParts(category, auth, own) })
}

func connectionParts(category, auth string, own []part) []part {
	ps := parts{
		readonly("creation_context"),
		f("id", text, unsent),
		is("category", category),
		f("name", text, to("@name")),
		f("type", text, required, unsent),
		f("description", text, unsent),
		f("target", text),
		f("tags", namedMap, unsent),
		f("metadata", freeMap, def(tree{})),
		f("is_shared", flag, to("isSharedToAll"), def(true)),
		f("credentials", connectionCredentials, to("auth")),
	}
	ps = append(ps, own...)
	ps = append(ps, then(func(s *scope, v *value) {
		how, _ := asTree(s.out["auth"])
		delete(s.out, "auth")
		for _, p := range v.get("tags").entries() { // the old name of metadata, which has the say
			if meta := s.out.sub("metadata"); meta[p.key] == nil {
				meta[p.key] = p.val.raw()
			}
		}
		kind, allowed := snakeWords(v.get("credentials").textOf("type")), credentialsOf.get()[category]
		switch {
		case how == nil || allowed == nil:
		case allowed[0] == "api_key": // others are as good as none
			if kind != "api_key" || s.out["credentials"] != nil {
				how = nil
			}
		case !slices.Contains(allowed, kind):
			s.in("credentials.type").failWith(v.get("credentials").get("type"), nearest(kind, allowed), "a connection of this type accepts %s", strings.Join(allowed, ", "))
		case kind == "none":
			how = nil
		}
		switch {
		case how != nil:
			s.out["authType"] = how["authType"]
			delete(how, "authType")
			if len(how) > 0 {
				s.out["credentials"] = how
			}
		case s.out["credentials"] != nil:
			s.out["authType"] = "ApiKey"
		default:
			s.out["authType"] = auth
		}
		if s.out["target"] == nil && category != "Serp" && category != "OpenAi" {
			s.in("target").fail(v, "is required")
		}
	}))
	return ps
}

var connectionCredentials = byKey("type", func() map[string]typ {
	return map[string]typ{
		"pat":               auth("PAT", f("pat", text, required)),
		"sas":               auth("SAS", f("sas_token", text, to("sas"), required)),
		"username_password": auth("UsernamePassword", f("username", text, required), f("password", text, required)),
		"managed_identity":  auth("ManagedIdentity", f("client_id", text), f("resource_id", text)),
		"service_principal": auth("ServicePrincipal", f("client_id", text), f("client_secret", text, required), f("tenant_id", text)),
		"access_key":        auth("AccessKey", f("access_key_id", text, required), f("secret_access_key", text, required)),
		"api_key":           auth("ApiKey", f("key", text, required)),
		"account_key":       auth("AccountKey", f("account_key", text, to("sas"), required)),
		"aad":               auth("AAD"),
		"none":              auth("None"),
	}
})

func auth(name string, own ...field) typ {
	ps := parts{is("authType", name), f("type", text, unsent)}
	for _, fd := range own {
		ps = append(ps, fd)
	}
	return obj(ps)
}

// lakeID is a lake told by its id rather than its name.
var lakeID = re(`^.{7}-.{4}-.{4}-.{4}.{12}`)

// oneLakeTarget builds the address of a lake from its parts.
func oneLakeTarget(s *scope, v *value) {
	if v.has("target") {
		return
	}
	for _, key := range []string{"artifact", "endpoint", "one_lake_workspace_name"} {
		if !v.has(key) {
			s.in(key).fail(v, "is required unless target is given")
			return
		}
	}
	at := v.textOf("endpoint")
	if !strings.Contains(at, "://") {
		at = "https://" + at
	}
	name := v.get("artifact").textOf("name")
	if !lakeID.MatchString(name) {
		name += ".Lakehouse"
	}
	s.out["target"] = at + "/" + v.textOf("one_lake_workspace_name") + "/" + name
}
