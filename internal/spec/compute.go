package spec

import (
	"path/filepath"
	"strings"

	"github.com/berthml/berth/internal/kubeconfig"
)

var computeKind = kind{word: "compute", collection: "computes", base: "properties", body: computeBody(computeTypes)}

func computeTypes() map[string]typ {
	return map[string]typ{
		"agent":           agentMachine,
		"amlcompute":      amlCompute,
		"computeinstance": computeInstance,
		"kubernetes":      kubernetesCompute,
		"slurm":           slurmSite,
		"virtualmachine":  virtualMachine,
		"synapsespark":    synapseSpark,
	}
}

// computeOf is a compute of one type: the common fields and its own. Its own go to
// properties.properties. It lies where the workspace does: only a cluster may lie elsewhere.
func computeOf(word, name string, own func() []part) typ {
	return flat(func() []part {
		return []part{
			parts(own()),
			is("computeType", name),
			readonly("id", "created_on", "provisioning_state", "provisioning_errors"),
			f("name", text, to("@name"), required),
			f("type", enum(word), required, unsent),
			f("description", text),
			f("location", text, to("/location"), unsent),
			f("tags", textMap, to("/tags")),
			f("resource_id", text),
		}
	})
}

// into is an object read straight into the scope's own object instead of a new one.
func into(o typ) typ {
	return typ{name: o.name, table: o.table, flat: true}
}

var amlCompute = computeOf("amlcompute", "AmlCompute", func() []part {
	return []part{
		f("location", text, to("/location")),
		f("resource_id", text, unsent),
		f("size", text, to("properties.vmSize"), def("STANDARD_DS3_V2")),
		f("tier", enum("low_priority=LowPriority", "dedicated=Dedicated"), to("properties.vmPriority")),
		f("min_instances", whole, to("properties.scaleSettings.minNodeCount"), def(number("0"))),
		f("max_instances", whole, to("properties.scaleSettings.maxNodeCount"), def(number("4"))),
		f("idle_time_before_scale_down", seconds, to("properties.scaleSettings.nodeIdleTimeBeforeScaleDown"), def("PT2M")),
		f("ssh_public_access_enabled", onOff("Enabled", "Disabled"), to("properties.remoteLoginPortPublicAccess"), def("NotSpecified")),
		f("ssh_settings", obj(
			f("admin_username", text, to("adminUserName"), required),
			f("admin_password", text, to("adminUserPassword")),
			f("ssh_key_value", text, to("adminUserSshPublicKey")),
		), to("properties.userAccountCredentials")),
		f("network_settings", networkSettings, unsent),
		f("enable_node_public_ip", flag, to("properties.enableNodePublicIp"), def(true)),
		f("identity", resourceIdentity, to("/identity")),
		then(func(s *scope, v *value) {
			s.out.put("properties.osType", "Linux")
			s.out["disableLocalAuth"] = !v.has("ssh_settings")
			s.subnet(v)
		}),
	}
})

var networkSettings = later(networkSettingsParts)

func networkSettingsParts() []part {
	return []part{
		readonly("public_ip_address", "private_ip_address"),
		f("vnet_name", text),
		f("subnet", text),
	}
}

// subnet builds the id of the subnet that network_settings names.
func (s *scope) subnet(v *value) {
	net := v.get("network_settings")
	vnet, name := net.textOf("vnet_name"), net.textOf("subnet")
	switch {
	case name == "" && vnet != "":
		s.in("network_settings.subnet").fail(net, "is required when vnet_name is set")
	case name == "":
	case strings.HasPrefix(name, "/"):
		s.out.put("properties.subnet.id", name)
	case vnet == "":
		s.in("network_settings.vnet_name").fail(net, "is required unless subnet is a full resource ID")
	default:
		w := s.workspace()
		s.out.put("properties.subnet.id", "/subscriptions/"+w.Subscription+"/resourceGroups/"+w.Group+
			"/providers/Microsoft.Network/virtualNetworks/"+vnet+"/subnets/"+name)
	}
}

// onOff is a flag that travels as one of two words.
func onOff(on, off string) typ {
	return typ{name: flag.name, readFunc: func(s *scope, v *value) any {
		switch readFlag(s, v) {
		case true:
			return on
		case false:
			return off
		}
		return nil
	}, showFunc: func(j any) any {
		switch j {
		case on:
			return true
		case off:
			return false
		}
		return nil
	}}
}

// resourceIdentity is the identity of a compute or endpoint, its user-assigned ones in a list.
var resourceIdentity = later(resourceIdentityParts)

func resourceIdentityParts() []part {
	return []part{
		readonly("principal_id", "tenant_id"),
		f("type", looseEnum("system_assigned=SystemAssigned", "user_assigned=UserAssigned", "none=None",
			"system_assigned,user_assigned=SystemAssigned,UserAssigned"), required),
		f("user_assigned_identities", identityList, to("userAssignedIdentities")),
	}
}

var identityList = typ{name: "a list", readFunc: func(s *scope, v *value) any {
	items, ok := listOf(obj(
		readonly("principal_id", "client_id", "tenant_id"),
		f("resource_id", text),
	)).read(s, v).([]any)
	if !ok {
		return nil
	}
	out := tree{}
	for _, it := range items {
		if t, ok := asTree(it); ok {
			out[t.text("resourceId")] = tree{}
		}
	}
	return out
}, showFunc: func(j any) any {
	m, ok := asTree(j)
	if !ok {
		return j
	}
	var out []any
	for _, id := range sortedKeys(m) {
		one := tree{"resource_id": id}
		if sub, ok := asTree(m[id]); ok {
			for k, val := range sub {
				one[snake(k)] = val
			}
		}
		out = append(out, one)
	}
	return out
}}

var kubernetesCompute = computeOf("kubernetes", "Kubernetes", func() []part {
	return []part{
		f("properties", freeMap),
		f("namespace", text, to("properties.namespace"), def("default")),
		f("kubeconfig", text, unsent),
		f("context", text, unsent),
		f("image", text, to("properties.image")),
		f("runner_image", text, to("properties.runnerImage")),
		f("image_pull_policy", text, to("properties.imagePullPolicy")),
		f("image_pull_secrets", listOf(text), to("properties.imagePullSecrets")),
		f("service_account", text, to("properties.serviceAccount")),
		f("priority_class", text, to("properties.priorityClass")),
		f("tolerations", listOf(freeMap), to("properties.tolerations")),
		f("queue_name", text, to("properties.queueName")),
		f("tunnel", text, to("properties.tunnel")),
		f("max_tasks", whole, to("properties.maxTasks")),
		then(readKubeconfig),
		f("identity", resourceIdentity, to("/identity")),
	}
})

// readKubeconfig sends the text of the kubeconfig, as far as the chosen context needs it. The file,
// its context and the fields after them are ours; Azure has the cluster's resource id instead.
func readKubeconfig(s *scope, v *value) {
	path, context := v.textOf("kubeconfig"), v.textOf("context")
	if path == "" {
		if context != "" {
			s.in("context").fail(v.get("context"), "needs a kubeconfig")
		}
		if !v.has("resource_id") {
			s.dropNamespace(v) // the one that the operator offers
		}
		return
	}
	at := s.in("kubeconfig")
	text, err := ReadFile(path)
	if err != nil || len(text) > 1<<20 {
		at.fail(v.get("kubeconfig"), "%s cannot be read; relative paths start at the working directory", path)
		return
	}
	one, err := kubeconfig.Single(text, context, filepath.Dir(path))
	if err != nil {
		at.fail(v.get("kubeconfig"), "%v", err)
		return
	}
	s.out.put("properties.kubeconfig", string(one))
	s.dropNamespace(v) // the context's
}

// dropNamespace leaves the namespace to the server, unless it was named.
func (s *scope) dropNamespace(v *value) {
	if inner, ok := asTree(s.out["properties"]); ok && !v.has("namespace") {
		delete(inner, "namespace")
	}
}

// virtualMachine is a machine reached over SSH. To Azure its resource id says where it is; here the
// last word of that is its name, unless ssh_settings.address says it, which is ours as everything
// after it. machines are several machines as one compute.
var virtualMachine = computeOf("virtualmachine", "VirtualMachine", func() []part {
	return []part{
		readonly("compute_location"),
		f("resource_id", text),
		f("ssh_settings", obj(append(
			sshSettings(),
			f("machines", listOf(obj(
				f("name", text),
				f("address", text, required),
				f("peer_address", text),
				f("ssh_port", whole),
				f("admin_username", text, to("username")),
				f("jump_hosts", listOf(text)),
				f("host_key", text),
			))),
			f("jobs_per_node", text),
		)...), to("properties"), required),
		then(func(s *scope, v *value) {
			inner, _ := asTree(s.out["properties"])
			if s.out["resourceId"] == nil && inner["address"] == nil && inner["machines"] == nil {
				s.in("resource_id").fail(v, "is required")
			}
		}),
	}
})

// sshSettings say how a machine is reached over SSH.
func sshSettings() []part {
	return []part{
		f("admin_username", text, to("administratorAccount.username"), required),
		f("admin_password", text, to("administratorAccount.password")),
		f("ssh_port", whole, to("sshPort"), def(number("22"))),
		f("ssh_private_key_file", keyFile, to("administratorAccount.privateKeyData")),
		f("agent_key", text),
		f("address", text),
		f("jump_hosts", listOf(text)),
		f("host_key", text),
	}
}

// agentMachine is ours: a machine whose agent connects to the server. To Azure's clients it is a
// virtual machine.
var agentMachine = computeOf("agent", "VirtualMachine", func() []part {
	return []part{
		readonly("compute_location"),
		is("properties.connection", "agent"),
	}
})

// slurmSite is ours: a Slurm cluster whose commands work on the server's machine, or on a login
// node that ssh_settings lead to, or whose slurmrestd is where rest_settings say.
var slurmSite = computeOf("slurm", "Slurm", func() []part {
	return []part{
		readonly("compute_location"),
		f("partition", text, to("properties.partition")),
		f("account", text, to("properties.account")),
		f("qos", text, to("properties.qos")),
		f("constraint", text, to("properties.constraint")),
		f("time_limit", text, to("properties.timeLimit")),
		f("options", listOf(text), to("properties.options")),
		f("max_tasks", whole, to("properties.maxTasks")),
		f("sizes", mapOf(obj(
			f("partition", text),
			f("account", text),
			f("qos", text),
			f("constraint", text),
			f("time_limit", text, to("timeLimit")),
			f("options", listOf(text)),
			f("low_priority_partition", text, to("lowPriorityPartition")),
			f("low_priority_qos", text, to("lowPriorityQos")),
		)), to("properties.sizes")),
		f("ssh_settings", obj(sshSettings()...), to("login")),
		f("rest_settings", obj(
			f("address", text, required),
			f("user", text, required),
			f("token", text),
			f("token_file", tokenFile, to("token")),
			f("ca_file", textFile("file of certificates"), to("ca")),
		), to("properties.restSettings")),
		then(func(s *scope, v *value) {
			login, ok := asTree(s.out["login"])
			if !ok {
				return
			}
			delete(s.out, "login")
			if login["address"] == nil {
				s.in("ssh_settings").fail(v, "address is required: the login node's host name or IP address")
			}
			for k, x := range login {
				s.out.put("properties."+k, x)
			}
		}),
		backwards(func(in, out tree) {
			inner, _ := asTree(in["properties"])
			if inner["address"] == nil {
				return
			}
			login := tree{"address": inner["address"], "ssh_port": inner["sshPort"]}
			if who, ok := asTree(inner["administratorAccount"]); ok {
				login["admin_username"] = who["username"]
			}
			out["ssh_settings"] = login
		}),
	}
})

// keyFile is the path of a private key, and tokenFile that of a token.
var (
	keyFile   = textFile("private key file")
	tokenFile = textFile("token file")
)

// textFile is the path of a file, relative to the working directory; its text travels.
func textFile(what string) typ {
	return typ{name: "a path", readFunc: func(s *scope, v *value) any {
		path, ok := readText(s, v).(string)
		if !ok {
			return nil
		}
		b, err := ReadFile(path)
		if err != nil || len(b) > 1<<20 {
			s.fail(v, "%s %s cannot be read; relative paths start at the working directory", what, path)
			return nil
		}
		return string(b)
	}, showFunc: func(any) any { return nil }}
}

var synapseSpark = computeOf("synapsespark", "SynapseSpark", func() []part {
	return []part{
		readonly("node_family", "node_size", "node_count", "spark_version"),
		f("resource_id", text, required),
		f("identity", resourceIdentity, to("/identity")),
		f("scale_settings", obj(readonly("min_node_count", "max_node_count", "auto_scale_enabled")), unsent),
		f("auto_pause_settings", obj(readonly("delay_in_minutes", "auto_pause_enabled")), unsent),
	}
})
