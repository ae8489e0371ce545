package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/serve"
	"github.com/berthml/berth/internal/store"
)

// workersPerCPU is how many processes a replica on the server's own machine may have for each CPU:
// some wait for others.
const workersPerCPU = 8

// checkOnline refuses an online endpoint or a deployment that could not serve.
func checkOnline(c *call, tx *store.Tx, name, version string, p map[string]any) error {
	if version == "" {
		if err := checkEndpoint(c, tx, name, version, p); err != nil {
			return err
		}
		return c.checkTrafficNames(tx, name, p)
	}
	if err := c.mayDeploy(tx, name, version); err != nil {
		return err
	}
	if err := c.pinModel(tx, p); err != nil {
		return err
	}
	raw, err := json.Marshal(map[string]any{"properties": p})
	if err != nil {
		return err
	}
	spec, err := serve.ParseSpec(raw)
	if err != nil {
		return err
	}
	if err := spec.Check(tx, c.ws); err != nil {
		return err
	}
	if most := workersPerCPU * c.s.Machine.CPUs; spec.Command == "" && spec.Compute == "" && spec.Workers > max(most, 1) && most > 0 {
		return berth.Errorf(berth.Limit, "the deployment asks for %d workers in each replica, which are processes; this machine has %d CPUs and allows %d (maxConcurrentRequestsPerInstance, WORKER_COUNT)", spec.Workers, c.s.Machine.CPUs, most)
	}
	if spec.Compute != "" {
		if _, err := serve.Place(jobCall{c}.chooser(tx), spec.Compute); err != nil {
			return berth.Errorf(berth.CodeOf(err), "properties.properties.%s: %w", serve.ComputeProperty, err)
		}
	}
	if err := c.checkCollected(tx, name, version, spec.Collecting); err != nil {
		return err
	}
	return c.pinEnvironment(tx, p, spec.Environment)
}

// checkTrafficNames refuses traffic for deployments that do not exist, whose part of the requests
// would be lost, and mirrored requests for several deployments or for one that has traffic.
func (c *call) checkTrafficNames(tx *store.Tx, name string, p map[string]any) error {
	docs, err := tx.All(store.Query{Workspace: c.ws.Key(), Kind: serve.Kind, Name: name, NoBody: true})
	if err != nil {
		return err
	}
	exists := map[string]bool{}
	for _, d := range docs {
		exists[strings.ToLower(d.Version)] = true
	}
	live, mirrors := map[string]bool{}, 0
	for _, field := range []string{"traffic", "mirrorTraffic"} {
		shares := asMap(p[field])
		for _, deployment := range slices.Sorted(maps.Keys(shares)) {
			key := strings.ToLower(deployment)
			switch {
			case fmt.Sprint(shares[deployment]) == "0":
				continue
			case !exists[key]:
				return berth.Errorf(berth.Invalid, "properties.%s names %s, which is not a deployment of endpoint %s: create it first, then give it traffic", field, deployment, name)
			case field == "traffic":
				live[key] = true
				continue
			}
			if mirrors++; mirrors > 1 {
				return berth.Errorf(berth.Invalid, "properties.mirrorTraffic names %d deployments: requests can be mirrored to one", len(shares))
			}
			if live[key] {
				return berth.Errorf(berth.Invalid, "deployment %s has both traffic and mirrored requests: take it out of properties.traffic or properties.mirrorTraffic", deployment)
			}
		}
	}
	return nil
}

// checkCollected refuses collections in data assets that are not there or somebody else's, and says
// in the history of a deployment what is not collected.
func (c *call) checkCollected(tx *store.Tx, name, version string, d *serve.Collecting) error {
	if d == nil {
		return nil
	}
	for _, one := range d.Collections {
		at := "properties.dataCollector.collections." + one.Name + ".dataId"
		ref, err := berth.ParseRef(one.Data, "data")
		if err != nil {
			return berth.Errorf(berth.Invalid, "%s: %w", at, err)
		}
		doc, err := locate.Version(tx, c.ws, "data", ref)
		if err != nil {
			return berth.Errorf(berth.CodeOf(err), "%s: %w", at, err)
		}
		if doc.CreatedBy != c.who.User && c.who.Role != auth.Admin {
			return berth.Errorf(berth.Denied, "%s: the data asset %s is of %s: name one of yours", at, doc.Name, doc.CreatedBy)
		}
		place, err := c.s.Resolve(tx, c.ws, c.who.User, one.Data)
		if err == nil && !place.Ours() {
			err = berth.Errorf(berth.Unsupported, "the data asset %s is not in this server's own storage, where samples are kept", doc.Name)
		}
		if err != nil {
			return berth.Errorf(berth.CodeOf(err), "%s: %w", at, err)
		}
	}
	if len(d.Ignored) > 0 {
		tx.Emit(berth.Event{
			Workspace: c.ws.Key(), Subject: serve.Collection + "/" + name + "/deployments/" + version, Type: berth.EventDeployment,
			Reason: "nothing is collected as " + strings.Join(d.Ignored, ", ") + ": only request and response are, which need no code",
		})
	}
	return nil
}

// mayDeploy refuses a deployment below the endpoint of another user, and one whose name differs
// from that of another only in case: requests and traffic name deployments without regard to it.
func (c *call) mayDeploy(tx *store.Tx, name, version string) error {
	r := c.s.docs.row(serve.Collection)
	endpoint, err := tx.Get(c.ws.Key(), serve.Collection, name, "")
	if err != nil {
		return c.missing(err, r, name, "")
	}
	if err := c.madeIt(r, endpoint, "deploy to"); err != nil {
		return err
	}
	all, err := tx.All(store.Query{Workspace: c.ws.Key(), Kind: serve.Kind, Name: endpoint.Name, NoBody: true})
	if err != nil {
		return err
	}
	for _, d := range all {
		if d.Version != version && strings.EqualFold(d.Version, version) {
			return berth.Errorf(berth.Conflict, "endpoint %s has a deployment %s already: names that differ only in case are the same", endpoint.Name, d.Version)
		}
	}
	return nil
}

// pinModel writes which version of the model is meant: a version that is created later changes
// nothing.
func (c *call) pinModel(tx *store.Tx, p map[string]any) error {
	id, ok := p["model"].(string)
	if !ok || id == "" {
		return nil
	}
	m, err := serve.FindModel(tx, c.ws, id)
	if err == nil {
		p["model"] = m.ID
	}
	return err
}

// pinEnvironment does the same for the environment, where it is one of the workspace.
func (c *call) pinEnvironment(tx *store.Tx, p map[string]any, id string) error {
	if id == "" {
		return nil
	}
	ref, err := berth.ParseRef(id, "environments")
	if err == nil {
		err = jobCall{c}.checkAsset(tx, "environments", ref)
	}
	if err != nil {
		return berth.Errorf(berth.Invalid, "properties.environmentId: %w", err)
	}
	if d, err := locate.Version(tx, c.ws, "environments", ref); err == nil && ref.Registry == "" {
		p["environmentId"] = c.ws.ResourceID("environments", d.Name, "versions", d.Version)
	}
	return nil
}

// markDeployment says that a deployment is to be made as its document now asks.
func markDeployment(c *call, d *store.Doc, had json.RawMessage, created bool) error {
	if d.Version == "" {
		return nil
	}
	if _, err := serve.ParseSpec(d.Body); err != nil { // with what is beside the properties
		return err
	}
	d.Own = had
	st, err := store.State[berth.DeploymentState](d)
	if err != nil {
		return err
	}
	st.State, st.Error, st.Reason, st.Deaths, st.LastDeath = berth.DeploymentUpdating, "", "it was changed", 0, time.Time{}
	if created {
		st.State, st.Reason = berth.DeploymentCreating, "it was created"
	}
	st.Admin = c.who.Role == auth.Admin && d.CreatedBy == c.who.User
	return store.SetState(d, st)
}

// shapeOnline adds what the server says of an online endpoint or deployment.
func shapeOnline(c *call, d *store.Doc, p map[string]any) {
	orNull(p, "description")
	setDefault(p, "properties", map[string]any{})
	if d.Version == "" {
		p["provisioningState"] = berth.DeploymentSucceeded
		at := c.endpointURL(d.Name)
		p["scoringUri"], p["swaggerUri"] = at+"score", at+"swagger.json"
		setDefault(p, "traffic", map[string]any{})
		setDefault(p, "mirrorTraffic", map[string]any{})
		return
	}
	st, err := store.State[berth.DeploymentState](d)
	if err != nil || st.State == "" {
		st.State = berth.DeploymentFailed
	}
	p["provisioningState"] = st.State
	setDefault(p, "scaleSettings", map[string]any{"scaleType": "Default"})
	setDefault(p, "endpointComputeType", "Managed")
	for _, r := range []*berth.Revision{st.Good, st.Previous} {
		if r != nil {
			r.Job = nil // what it runs is not for everybody who may read
		}
	}
	for i := range st.Replicas {
		st.Replicas[i].Addresses = nil
	}
	st.GoodBody, st.PreviousBody = nil, nil
	p["berth"] = st
}

// endpointURL is the address of an endpoint, with a slash at its end.
func (c *call) endpointURL(name string) string {
	if at := c.s.EndpointZone.URL(c.ws, name); at != "" {
		return at
	}
	return c.s.BaseURL + c.ws.EndpointPath(name)
}

// checkTraffic refuses to delete a deployment that has traffic. An endpoint goes with all of its
// deployments.
func checkTraffic(c *call, tx *store.Tx, d *store.Doc) error {
	if d.Version == "" {
		return nil
	}
	endpoint, err := tx.Get(d.Workspace, serve.Collection, d.Name, "")
	if berth.CodeOf(err) == berth.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	_, p, err := bodyOf(endpoint)
	if err != nil {
		return err
	}
	for _, field := range []string{"traffic", "mirrorTraffic"} {
		for name, v := range asMap(p[field]) {
			if n, ok := v.(json.Number); ok && strings.EqualFold(name, d.Version) && n.String() != "0" {
				return berth.Errorf(berth.Conflict, "deployment %s has %s percent of the %s of endpoint %s: give it to another deployment first", d.Version, n, field, d.Name)
			}
		}
	}
	return nil
}

// tokenLife is how long a token calls an endpoint, and tokenRefresh when to ask for another.
const (
	tokenLife    = 12 * time.Hour
	tokenRefresh = 8 * time.Hour
)

// endpointToken answers with a token that calls the endpoint.
func endpointToken(c *call, r *resource, name, version string) error {
	if version != "" {
		return notFound(c)
	}
	if !c.who.CanWrite() {
		return berth.Errorf(berth.Denied, "the token %q may not see secrets", c.who.Token)
	}
	d, err := c.s.docs.load(c, r, name, "")
	if err != nil {
		return err
	}
	_, p, err := bodyOf(d)
	if err != nil {
		return err
	}
	if mode := text(p, "authMode"); !strings.EqualFold(mode, "AMLToken") {
		return berth.Errorf(berth.Invalid, "%s %s has no tokens: its authMode is %s", r.Noun, d.Name, mode)
	}
	c.w.Header().Set("Cache-Control", "no-store")
	return c.send(http.StatusOK, map[string]any{
		"accessToken":   c.s.Authority.Keys.EndpointToken(serve.TokenName(d), c.now.Add(tokenLife)),
		"expiryTimeUtc": c.now.Add(tokenLife).Unix(), "refreshAfterTimeUtc": c.now.Add(tokenRefresh).Unix(), "tokenType": "Bearer",
	})
}

// defaultTail and maxTail are how many lines of a log are shown.
const (
	defaultTail = 5000
	maxTail     = 50000
)

// deploymentLogs answers with the last lines of the log of a deployment's newest replica.
func deploymentLogs(c *call, r *resource, name, version string) error {
	if version == "" {
		return notFound(c)
	}
	var ask struct {
		Tail      *int   `json:"tail"`
		Container string `json:"containerType"`
	}
	if err := c.into(&ask); err != nil {
		return err
	}
	lines := defaultTail
	if ask.Tail != nil {
		lines = min(max(0, *ask.Tail), maxTail)
	}
	d, err := c.s.docs.load(c, r, name, version)
	if err != nil {
		return err
	}
	st, err := store.State[berth.DeploymentState](d)
	if err != nil {
		return err
	}
	var own locate.Storage
	err = c.s.DB.View(c.ctx(), func(tx *store.Tx) (err error) {
		own, err = locate.StorageOf(tx, c.ws.Key())
		return err
	})
	if err != nil {
		return err
	}
	content := st.DeathWhy
	switch {
	case strings.EqualFold(ask.Container, "StorageInitializer"):
		content = "code and model were brought to the node before the process was started; state: " + st.State
	case len(st.Replicas) > 0:
		if content, err = serve.Tail(c.ctx(), c.s.Blobs, own, st.Replicas[len(st.Replicas)-1].Job, lines); err != nil {
			return err
		}
	case st.Error != "":
		content = st.Error
	}
	return c.send(http.StatusOK, map[string]any{"content": content})
}

// isReplica says whether a job is a replica of an online deployment, by what we keep of it.
func isReplica(d *store.Doc) bool { return bytes.Contains(d.Own, []byte(`"serves":"`)) }

// EndpointKeys are the keys of an online endpoint, for the gateway.
func (s *Server) EndpointKeys(d *store.Doc) ([]string, error) {
	had, err := openSecrets(s.Authority.Keys, d.Workspace+"/"+serve.Collection+"/"+d.Name, d)
	if err != nil {
		return nil, err
	}
	keys := asMap(had["keys"])
	return []string{text(keys, primaryKey), text(keys, secondaryKey)}, nil
}
