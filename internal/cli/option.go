package cli

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// option is a flag that stands for a field of the YAML file: --image X is the same as --set
// image=X.
type option struct {
	flag, short string
	field       string // path in the file; of tags the map
	kind        optionKind
	update      bool // update takes it too
	help        string
}

type optionKind int

const (
	textOption   optionKind = iota
	switchOption            // true unless false is said
	tagsOption              // several KEY=VALUE
	sharesOption            // several NAME=PERCENT, which may stand in one word
	listOption              // several with commas between, each a resource id
)

var (
	description = option{flag: "description", field: "description", update: true}
	tags        = option{flag: "tags", field: "tags", kind: tagsOption, update: true}
	store       = option{flag: "datastore", field: "datastore"}
)

var computeOptions = []option{
	description,
	tags,
	{flag: "type", short: "t", field: "type", help: "amlcompute: a cluster, whose nodes come and go; computeinstance: one machine for one person"},
	{flag: "size", field: "size", help: "size of a node, for example Standard_DS3_v2; berth compute list-sizes lists them"},
	{flag: "location", short: "l", field: "location", help: "region; default: that of the workspace"},
	{flag: "tier", field: "tier", help: "of a cluster: dedicated or low_priority"},
	{flag: "min-instances", field: "min_instances", update: true, help: "nodes that a cluster keeps, 0 for none while nothing runs"},
	{flag: "max-instances", field: "max_instances", update: true, help: "nodes that a cluster may have"},
	{flag: "idle-time-before-scale-down", short: "d", field: "idle_time_before_scale_down", update: true, help: "seconds until an idle node of a cluster goes"},
	{flag: "ssh-public-access-enabled", short: "p", field: "ssh_public_access_enabled", kind: switchOption, help: "of an instance: whether SSH is let in"},
	{flag: "admin-username", field: "ssh_settings.admin_username", help: "name of the user on the nodes"},
	{flag: "admin-password", field: "ssh_settings.admin_password"},
	{flag: "ssh-key-value", field: "ssh_settings.ssh_key_value", help: "public SSH key that may log in"},
	{flag: "vnet-name", field: "network_settings.vnet_name"},
	{flag: "subnet", field: "network_settings.subnet"},
	{flag: "identity-type", field: "identity.type", update: true, help: "system_assigned or user_assigned"},
	{flag: "user-assigned-identities", short: "i", field: "identity.user_assigned_identities", kind: listOption, update: true},
	{flag: "enable-node-public-ip", field: "enable_node_public_ip", kind: switchOption},
	{flag: "user-tenant-id", field: "create_on_behalf_of.user_tenant_id"},
	{flag: "user-object-id", field: "create_on_behalf_of.user_object_id"},
}

// attachOptions are those of compute attach.
var attachOptions = []option{
	{flag: "type", short: "t", field: "type"},
	{flag: "resource-id", field: "resource_id"},
	{flag: "namespace", field: "namespace"},
	{flag: "kubeconfig", field: "kubeconfig"},
	{flag: "context", field: "context"},
	{flag: "image", field: "image"},
	{flag: "admin-username", field: "ssh_settings.admin_username"},
	{flag: "admin-password", field: "ssh_settings.admin_password"},
	{flag: "ssh-port", field: "ssh_settings.ssh_port"},
	{flag: "ssh-private-key-file", field: "ssh_settings.ssh_private_key_file"},
	{flag: "agent-key", field: "ssh_settings.agent_key"},
	{flag: "address", field: "ssh_settings.address"},
	{flag: "jump-host", field: "ssh_settings.jump_hosts[0]"},
	{flag: "host-key", field: "ssh_settings.host_key"},
	{flag: "rest", field: "rest_settings.address"},
	{flag: "user", field: "rest_settings.user"},
	{flag: "token-file", field: "rest_settings.token_file"},
	{flag: "ca-file", field: "rest_settings.ca_file"},
	{flag: "partition", field: "partition"},
	{flag: "account", field: "account"},
	{flag: "qos", field: "qos"},
	{flag: "constraint", field: "constraint"},
	{flag: "time-limit", field: "time_limit"},
	{flag: "identity-type", field: "identity.type"},
	{flag: "user-assigned-identities", short: "i", field: "identity.user_assigned_identities", kind: listOption},
}

var environmentOptions = []option{
	description,
	tags,
	store,
	{flag: "image", short: "i", field: "image"},
	{flag: "conda-file", short: "c", field: "conda_file"},
	{flag: "build-context", short: "b", field: "build.path"},
	{flag: "dockerfile-path", short: "d", field: "build.dockerfile_path"},
	{flag: "os-type", field: "os_type"},
}

var dataOptions = []option{
	{flag: "description", short: "d", field: "description", update: true},
	store,
	{flag: "path", short: "p", field: "path"},
	{flag: "type", short: "t", field: "type"},
}

var modelOptions = []option{
	description,
	tags,
	store,
	{flag: "path", short: "p", field: "path"},
	{flag: "type", short: "t", field: "type"},
	{flag: "stage", short: "s", field: "stage", update: true},
}

var featureSetOptions = []option{
	{flag: "description", short: "d", field: "description"},
	{flag: "specification", short: "s", field: "specification"},
	{flag: "materialization-settings", short: "m", field: "materialization_settings"},
}

var workspaceOptions = []option{
	description,
	tags,
	{flag: "display-name", field: "display_name", update: true},
	{flag: "location", short: "l", field: "location"},
	{flag: "image-build-compute", short: "i", field: "image_build_compute", update: true},
	{flag: "public-network-access", field: "public_network_access", update: true},
	{flag: "storage-account", short: "s", field: "storage_account"},
	{flag: "key-vault", short: "k", field: "key_vault"},
	{flag: "application-insights", short: "a", field: "application_insights", update: true},
	{flag: "container-registry", short: "c", field: "container_registry", update: true},
	{flag: "primary-user-assigned-identity", short: "p", field: "primary_user_assigned_identity", update: true},
	{flag: "managed-network", short: "m", field: "managed_network.isolation_mode", update: true},
	{flag: "kind", field: "kind"},
	{flag: "hub-id", field: "hub_id"},
	{flag: "default-resource-group", field: "default_resource_group"},
	{flag: "enable-data-isolation", short: "e", field: "enable_data_isolation", kind: switchOption},
	{flag: "provision-network-now", field: "provision_network_now", kind: switchOption},
	{flag: "system-datastores-auth-mode", short: "d", field: "system_datastores_auth_mode", update: true},
	{flag: "allow-roleassignment-on-rg", short: "r", field: "allow_roleassignment_on_rg", kind: switchOption, update: true},
}

// optionFlags adds the flags to a command.
func optionFlags(cmd *cobra.Command, options []option) {
	f := cmd.Flags()
	for _, o := range options {
		help := "the field " + o.field
		if o.help != "" {
			help = o.help
		}
		if o.kind == tagsOption || o.kind == sharesOption {
			f.VarP(&wordGroups{}, o.flag, o.short, "KEY=VALUE …: "+help)
			takesMany(f.Lookup(o.flag), many)
			continue
		}
		f.StringP(o.flag, o.short, "", help)
		if o.kind == switchOption {
			f.Lookup(o.flag).NoOptDefVal = "true"
		}
	}
}

// optionSets is what the flags that were given set, as --set would have it.
func optionSets(cmd *cobra.Command, options []option) (sets []string) {
	for _, o := range options {
		flag := cmd.Flags().Lookup(o.flag)
		if flag == nil || !flag.Changed {
			continue
		}
		switch o.kind {
		case tagsOption:
			for _, group := range flag.Value.(*wordGroups).groups {
				for _, word := range group {
					if key, value, _ := strings.Cut(word, "="); key != "" {
						sets = append(sets, o.field+`."`+key+`"=`+value) // a dot in a key is not a level
					}
				}
			}
		case sharesOption:
			for _, group := range flag.Value.(*wordGroups).groups {
				for _, word := range strings.FieldsFunc(strings.Join(group, " "), func(r rune) bool { return r == ' ' || r == ',' }) {
					sets = append(sets, o.field+"."+word)
				}
			}
		case listOption:
			for i, id := range strings.Split(flag.Value.String(), ",") {
				sets = append(sets, o.field+"["+strconv.Itoa(i)+"].resource_id="+id)
			}
		default:
			sets = append(sets, o.field+"="+flag.Value.String())
		}
	}
	return sets
}

// updatable are the options an update takes.
func updatable(options []option) []option {
	return slices.DeleteFunc(slices.Clone(options), func(o option) bool { return !o.update })
}
