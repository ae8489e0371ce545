package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Connections: to registries, feeds, repositories and services elsewhere. What they hold secret is
// only told to who asks for it.

// categories are the kinds of connections as the service spells them; clients write some of them
// another way.
var categories = []string{
	"ADLSGen2", "AIServices", "ApiKey", "AzureBlob", "AzureMySqlDb", "AzureOneLake", "AzureOpenAI", "AzurePostgresDb", "AzureSqlDb",
	"AzureSynapseAnalytics", "CognitiveSearch", "CognitiveService", "ContainerRegistry", "CustomKeys", "Git", "OpenAI", "PythonFeed",
	"Redis", "S3", "Serp", "Serverless", "Snowflake",
}

func shapeConnection(c *call, _ *store.Doc, p map[string]any) {
	p["credentials"] = nil
	p["createdByWorkspaceArmId"] = c.ws.ID()
	orNull(p, "target", "expiryTime", "error")
	setDefault(p, "metadata", map[string]any{})
	setDefault(p, "sharedUserList", []any{})
	setDefault(p, "useWorkspaceManagedIdentity", false)
	given := text(p, "category")
	if i := slices.IndexFunc(categories, func(known string) bool { return strings.EqualFold(known, given) }); i >= 0 {
		p["category"] = categories[i]
	}
}

// checkConnection refuses a connection that says too little for clients to show it.
func checkConnection(_ *call, _ *store.Tx, _, _ string, props map[string]any) error {
	if text(props, "category") == "" {
		return berth.Errorf(berth.Invalid, "a connection needs properties.category")
	}
	return nil
}

// connectionSecrets is the connection with its credentials filled in.
func connectionSecrets(c *call, r *resource, name, _ string) error {
	if !c.who.CanWrite() {
		return berth.Errorf(berth.Denied, "the token %q may not see secrets", c.who.Token)
	}
	d, err := c.s.docs.load(c, r, name, "")
	if err != nil {
		return err
	}
	m, err := c.render(r, d)
	if err != nil {
		return err
	}
	sec, err := c.s.docs.secrets(c, r, d)
	if err != nil {
		return err
	}
	props, err := object(m, "properties")
	if err != nil {
		return err
	}
	props["credentials"] = sec["credentials"]
	return c.sendLike(http.StatusOK, m, d)
}
