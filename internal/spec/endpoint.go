package spec

import (
	"math/big"
	"strings"
)

var onlineEndpointKind = kind{
	word: "online-endpoint", collection: "onlineEndpoints", base: "properties",
	body: typ{name: "an endpoint", readFunc: func(s *scope, v *value) any {
		t := managedEndpoint
		if v.get("compute") != nil {
			t = kubernetesEndpoint
		}
		t.table.fill(s, v)
		return nil
	}},
}

// endpointCommon are the fields of every endpoint. What the service says of an endpoint is accepted
// and not sent.
var endpointCommon = lazyParts(func() parts {
	return parts{
		f("id", text, unsent),
		f("name", endpointName, to("@name"), required),
		f("description", text),
		f("tags", freeMap, to("/tags"), def(tree{})),
		f("properties", freeMap, def(tree{})),
		f("provisioning_state", text, unsent, to("provisioningState")),
		f("scoring_uri", text, unsent, to("scoringUri")),
		f("openapi_uri", text, unsent, to("swaggerUri")),
		f("location", text, unsent, to("/location")),
	}
})

var endpointForm = re(`^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$`)

var endpointName = typ{name: "a name", readFunc: func(s *scope, v *value) any {
	name, ok := readText(s, v).(string)
	if ok && (!endpointForm.MatchString(name) || len(name) < 3 || len(name) > 32) {
		s.fail(v, "%s is not a valid endpoint name; use 3 to 32 letters, digits and '-', starting with a letter", describe(v))
		return nil
	}
	return strings.ToLower(name)
}}

var onlineCommon = lazyParts(func() parts {
	return parts{
		readonly("kind"),
		readonly("creation_context"),
		endpointCommon,
		f("auth_mode", looseEnum("key=Key", "aml_token=AMLToken", "aad_token=AADToken"), def("Key")),
		f("traffic", traffic, def(tree{})),
		f("mirror_traffic", traffic, def(tree{})),
		then(func(s *scope, v *value) {
			sum := new(big.Int)
			for _, p := range v.get("traffic").entries() {
				if n, ok := wholeOf(p.val); ok {
					sum.Add(sum, n)
				}
			}
			if sum.Cmp(big.NewInt(100)) > 0 {
				s.in("traffic").fail(v.get("traffic"), "adds up to %s percent; the total must be at most 100", sum)
			}
		}),
		f("identity", oneIdentity, to("/identity"), def(tree{"type": "SystemAssigned"})),
	}
})

// traffic is a share of the requests, in percent, by deployment.
var traffic = typ{name: "a mapping", readFunc: func(s *scope, v *value) any {
	m, ok := asTree(mapOf(whole).read(s, v))
	if !ok {
		return nil
	}
	out := tree{}
	for _, p := range v.pairs {
		n, ok := wholeOf(p.val)
		if ok && (n.Sign() < 0 || n.Cmp(big.NewInt(100)) > 0) {
			s.in(p.key).fail(p.val, "must be a percentage from 0 to 100")
		}
		if ok && n.Sign() != 0 { // names of deployments are lower-case, and none is no share
			out[strings.ToLower(p.key)] = m[p.key]
		}
	}
	return out
}}

// oneIdentity is a resource's identity with at most one identity assigned by the user.
var oneIdentity = later(oneIdentityParts)

func oneIdentityParts() []part {
	return []part{
		f("type", looseEnum("system_assigned=SystemAssigned", "user_assigned=UserAssigned", "none=None"), required),
		f("principal_id", text, unsent),
		f("tenant_id", text, unsent),
		f("user_assigned_identities", typ{name: "a list", readFunc: func(s *scope, v *value) any {
			items, ok := listOf(textMap).read(s, v).([]any)
			if !ok {
				return nil
			}
			if len(items) > 1 {
				s.fail(v, "at most one identity can be assigned; got %d", len(items))
				return nil
			}
			out := tree{}
			for _, it := range items {
				if t, ok := asTree(it); ok {
					out[t.text("resource_id")] = tree{}
				}
			}
			return out
		}, showFunc: identityList.showFunc}),
	}
}

var managedEndpoint = later(managedEndpointParts)

func managedEndpointParts() []part {
	return []part{
		onlineCommon,
		f("public_network_access", enum("enabled", "disabled")),
	}
}

var kubernetesEndpoint = later(kubernetesEndpointParts)

func kubernetesEndpointParts() []part {
	return []part{
		onlineCommon,
		f("compute", reference("computes"), required),
	}
}

var batchEndpointKind = kind{word: "batch-endpoint", collection: "batchEndpoints", base: "properties", body: later(func() []part {
	return []part{
		endpointCommon,
		f("auth_mode", looseEnum("aad_token=aadToken"), def("aadToken")),
		f("identity", oneIdentity, unsent),
		f("defaults", obj(f("deployment_name", text))),
	}
})}
