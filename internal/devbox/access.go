package devbox

import (
	"path/filepath"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// Access is how programs on an instance reach the server as its owner.
type Access struct {
	URL    string
	Token  string
	Bundle []byte // certificate authorities in PEM form
}

// OwnerOf is the user of the instance that has a node. One that is being given back is nobody's.
func OwnerOf(tx *store.Tx, workspace, node string) (string, error) {
	_, n, err := target.LoadNode(tx, workspace, node)
	if berth.CodeOf(err) == berth.NotFound || err == nil && (n.State == berth.NodeLeaving || n.User == "") {
		return "", berth.Errorf(berth.Unauthenticated, "the instance of this token was stopped or deleted")
	}
	return n.User, err
}

// access gives programs on the instance what they need to use the server: variables of the command
// line, of Azure's clients and of MLflow's.
func (k *keeper) access(v *view, vars map[string]string) error {
	if k.l.o.Access == nil {
		return nil
	}
	a, err := k.l.o.Access(k.key.workspace, v.it.Node)
	if err != nil {
		return err
	}
	ca := filepath.Join(k.dir(), "ca.pem")
	if err := writeConfig(ca, a.Bundle); err != nil {
		return err
	}
	ws := strings.Split(strings.Trim(k.key.workspace, "/"), "/")
	if len(ws) < 8 {
		return nil
	}
	at := berth.Workspace{Subscription: ws[1], Group: ws[3], Name: ws[7]}
	for name, value := range map[string]string{
		"BERTH_URL": a.URL, "BERTH_TOKEN": a.Token, "BERTH_CA": ca,
		"BERTH_SUBSCRIPTION": at.Subscription, "BERTH_RESOURCE_GROUP": at.Group, "BERTH_WORKSPACE": at.Name,
		"IDENTITY_ENDPOINT": a.URL + "/msi/token", "IDENTITY_HEADER": a.Token,
		"ARM_CLOUD_METADATA_URL":          a.URL + "/metadata/endpoints?api-version=2019-05-01",
		"REGISTRY_DISCOVERY_ENDPOINT_URL": a.URL,
		"AZURE_SUBSCRIPTION_ID":           at.Subscription, "AZURE_RESOURCE_GROUP": at.Group,
		"REQUESTS_CA_BUNDLE": ca, "SSL_CERT_FILE": ca,
		"MLFLOW_TRACKING_URI": a.URL + at.TrackingPath(), "MLFLOW_TRACKING_TOKEN": a.Token, "MLFLOW_TRACKING_SERVER_CERT_PATH": ca,
		berth.NoRunLinks: "true",
	} {
		vars[name] = value
	}
	return nil
}
