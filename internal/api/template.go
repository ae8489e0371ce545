package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/arm"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

// templateService serves deployments of templates: what `az deployment group create` and
// `az ml workspace create` use. A template's resources are made by the same calls as those of other
// clients, in the name of who sends it.
type templateService struct {
	db       *store.DB
	location string
	docs     *documentService
	groups   *groupService
	front    *Server
	under    sync.Map // the correlation ids of deployments under way
}

const kindDeployment = "deployments"

func deploymentName(sub, group, name string) string { return groupKey(sub, group) + "/" + name }

// deployments serves …/providers/Microsoft.Resources/deployments/….
func (s *templateService) deployments(c *call, sub, group string, p []string) error {
	switch {
	case len(p) == 0:
		return s.list(c, sub, group)
	case len(p) == 1:
		return s.one(c, sub, group, p[0])
	case len(p) == 2 && fold(p, 1, "operations") && c.r.Method == http.MethodGet:
		return s.operations(c, sub, group, p[0])
	case len(p) == 2 && fold(p, 1, "validate") && c.r.Method == http.MethodPost:
		t, err := s.read(c, sub, group, p[0])
		if err != nil {
			return err
		}
		shown, err := t.Parameters()
		if err != nil {
			return err
		}
		return c.send(http.StatusOK, map[string]any{
			"id": deploymentID(sub, group, p[0]), "name": p[0], "type": "Microsoft.Resources/deployments",
			"properties": map[string]any{"provisioningState": "Succeeded", "mode": "Incremental", "parameters": shown, "validatedResources": idsOf(t.Resources())},
		})
	case len(p) == 2 && fold(p, 1, "whatIf"):
		return berth.Errorf(berth.Unsupported, "what-if is not supported; validate says whether a template can be deployed and which resources it makes")
	case len(p) == 2 && fold(p, 1, "cancel"):
		return berth.Errorf(berth.Conflict, "a deployment cannot be cancelled: all its resources are requested before it is answered; delete them instead")
	}
	return notFound(c)
}

func deploymentID(sub, group, name string) string {
	return "/subscriptions/" + sub + "/resourceGroups/" + group + "/providers/Microsoft.Resources/deployments/" + name
}

func idsOf(all []arm.Resource) []any {
	out := []any{}
	for _, r := range all {
		out = append(out, map[string]any{"id": r.ID})
	}
	return out
}

// one serves a deployment.
func (s *templateService) one(c *call, sub, group, name string) error {
	switch c.r.Method {
	case http.MethodGet, http.MethodHead:
		d, err := s.load(c, sub, group, name)
		if err != nil {
			return err
		}
		if c.r.Method == http.MethodHead {
			return c.empty(http.StatusNoContent)
		}
		return c.send(http.StatusOK, d.shown())
	case http.MethodPut:
		return s.deploy(c, sub, group, name)
	case http.MethodDelete:
		err := s.db.Update(c.ctx(), func(tx *store.Tx) error {
			d, err := tx.Get("", kindDeployment, deploymentName(sub, group, name), "")
			if err != nil {
				return err
			}
			if c.who.Role != auth.Admin && d.CreatedBy != c.who.User {
				return berth.Errorf(berth.Denied, "deployment %s was made by %s: only they or an administrator may delete it", name, d.CreatedBy)
			}
			return tx.Delete("", kindDeployment, d.Name, "")
		})
		if berth.CodeOf(err) == berth.NotFound {
			return c.empty(http.StatusNoContent)
		}
		if err != nil {
			return err
		}
		return c.empty(http.StatusNoContent)
	}
	return methodError(c)
}

// read checks a template that was sent.
func (s *templateService) read(c *call, sub, group, name string) (*arm.Template, error) {
	if err := berth.CheckName("deployment", name); err != nil {
		return nil, err
	}
	body, err := c.body()
	if err != nil {
		return nil, err
	}
	props, err := object(body, "properties")
	if err != nil {
		return nil, err
	}
	for _, k := range []string{"templateLink", "parametersLink"} {
		if props[k] != nil {
			return nil, berth.Errorf(berth.Unsupported, "properties.%s: the server fetches no templates; send the contents of the file", k)
		}
	}
	if mode := text(props, "mode"); mode != "" && !strings.EqualFold(mode, "Incremental") {
		return nil, berth.Errorf(berth.Unsupported, "properties.mode: %s is not supported; Incremental deletes nothing and is", mode)
	}
	template, _ := props["template"].(map[string]any)
	given, _ := props["parameters"].(map[string]any)
	if inner, ok := given["parameters"].(map[string]any); ok && given["$schema"] != nil { // a whole file of parameters
		given = inner
	}
	place := arm.Place{Subscription: sub, Group: group, Tenant: tenant(), Deployment: name}
	err = s.db.View(c.ctx(), func(tx *store.Tx) error {
		place.Location, err = s.groups.groupPlace(tx, berth.Workspace{Subscription: sub, Group: group})
		return err
	})
	if err != nil {
		return nil, err
	}
	t, err := arm.Parse(c.ctx(), place, template, given, s.known)
	return t, err
}

// deploy makes what a template says. An error in the template is the answer; one that comes when a
// resource is made is kept as the deployment's, as in Azure.
func (s *templateService) deploy(c *call, sub, group, name string) error {
	t, err := s.read(c, sub, group, name)
	if err != nil {
		return err
	}
	shown, err := t.Parameters()
	if err != nil {
		return err
	}
	d := &deployment{ID: deploymentID(sub, group, name), Name: name, Parameters: shown, Begun: c.now, Correlation: berth.NewGUID(), Running: true}
	s.under.Store(d.Correlation, true)
	defer s.under.Delete(d.Correlation)
	if err := s.save(c.ctx(), c, sub, group, d); err != nil { // a name that may not be used is refused before anything is made
		return err
	}
	m := &maker{s: s, c: c, d: d, stands: map[string]map[string]any{}}
	err = t.Deploy(c.ctx(), m)
	if err == nil {
		d.Outputs, err = t.Outputs(c.ctx())
	}
	if err := s.finish(c, sub, group, d, err); err != nil {
		return err
	}
	if code := berth.CodeOf(err); err != nil && (code == berth.Internal || code == berth.Unavailable) {
		return err
	}
	if d, err = s.load(c, sub, group, name); err != nil {
		return err
	}
	c.operation("put", d.ID)
	return c.send(http.StatusCreated, d.shown())
}

// finish keeps how a deployment ended, also for a client that is gone.
func (s *templateService) finish(c *call, sub, group string, d *deployment, why error) error {
	ctx := context.WithoutCancel(c.ctx())
	d.Running, d.Duration = false, s.db.Now().Sub(d.Begun)
	d.fail(why)
	err := s.save(ctx, c, sub, group, d)
	if berth.CodeOf(err) == berth.Limit { // the outputs are too large
		d.Outputs = nil
		d.fail(err)
		return s.save(ctx, c, sub, group, d)
	}
	return err
}

// fail notes an error. What an internal one says is for the log only.
func (d *deployment) fail(err error) {
	if err == nil {
		return
	}
	d.Error, d.ErrorCode = "an internal error, which the server's log has; deploy the template again", string(berth.CodeOf(err))
	if coded := (*berth.Error)(nil); errors.As(err, &coded) {
		d.Error = err.Error()
	}
}

// save keeps the record of a deployment. Somebody else's is not replaced.
func (s *templateService) save(ctx context.Context, c *call, sub, group string, d *deployment) error {
	raw, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := checkSize(kindDeployment, raw); err != nil {
		return err
	}
	key := deploymentName(sub, group, d.Name)
	return s.db.Update(ctx, func(tx *store.Tx) error {
		old, err := tx.Get("", kindDeployment, key, "")
		if berth.CodeOf(err) == berth.NotFound {
			return tx.Insert(&store.Doc{Kind: kindDeployment, Name: key, Parent: groupKey(sub, group), CreatedBy: c.who.User, Body: raw})
		}
		if err != nil {
			return err
		}
		if c.who.Role != auth.Admin && old.CreatedBy != c.who.User {
			return berth.Errorf(berth.Denied, "deployment %s was made by %s; choose another name", d.Name, old.CreatedBy)
		}
		old.Body = raw
		return tx.Save(old)
	})
}

// get reads the record of a deployment. One that is neither done nor under way was broken off.
func (s *templateService) get(c *call, key string) (*deployment, error) {
	var d *deployment
	for range 2 { // again: it may have ended since it was read
		d = &deployment{}
		err := s.db.View(c.ctx(), func(tx *store.Tx) error {
			doc, err := tx.Get("", kindDeployment, key, "")
			if err != nil {
				return err
			}
			return json.Unmarshal(doc.Body, d)
		})
		if err != nil {
			return nil, err
		}
		if _, under := s.under.Load(d.Correlation); under || !d.Running {
			return d, nil
		}
	}
	d.fail(berth.Errorf(berth.Unavailable, "the server stopped before the deployment was done; what it had made by then is there. Deploy the template again"))
	return d, nil
}

// load reads a deployment, with the states that its resources have now.
func (s *templateService) load(c *call, sub, group, name string) (*deployment, error) {
	d, err := s.get(c, deploymentName(sub, group, name))
	if berth.CodeOf(err) == berth.NotFound {
		return nil, &berth.Error{Code: berth.NotFound, Wire: "DeploymentNotFound", Msg: "there is no deployment " + name + " in resource group " + group}
	}
	if err != nil {
		return nil, err
	}
	s.states(c, d)
	return d, nil
}

// states asks what became of the resources of a deployment that succeeded.
func (s *templateService) states(c *call, d *deployment) {
	if d.Running {
		return
	}
	for i := range d.Resources {
		r := &d.Resources[i]
		if r.Note != "" || d.Error != "" {
			continue
		}
		var got struct {
			Properties struct {
				State  string `json:"provisioningState"`
				Errors []struct {
					Error struct {
						Message string `json:"message"`
					} `json:"error"`
				} `json:"provisioningErrors"`
			} `json:"properties"`
		}
		b, err := s.ask(c, http.MethodGet, r.ID, nil)
		if err != nil || json.Unmarshal(b, &got) != nil {
			continue // it was deleted since
		}
		r.State = got.Properties.State
		if len(got.Properties.Errors) > 0 {
			r.Failure = got.Properties.Errors[0].Error.Message
		}
	}
}

func (s *templateService) list(c *call, sub, group string) error {
	if c.r.Method != http.MethodGet {
		return methodError(c)
	}
	var docs []*store.Doc
	err := s.db.View(c.ctx(), func(tx *store.Tx) (err error) {
		docs, err = tx.List(store.Query{Kind: kindDeployment, Parent: groupKey(sub, group)})
		return err
	})
	if err != nil {
		return err
	}
	value := []any{}
	for _, doc := range docs {
		d := &deployment{}
		if err := json.Unmarshal(doc.Body, d); err != nil {
			return err
		}
		if d.Running {
			if d, err = s.get(c, doc.Name); berth.CodeOf(err) == berth.NotFound {
				continue // it was deleted since
			} else if err != nil {
				return err
			}
		}
		value = append(value, d.shown())
	}
	return c.send(http.StatusOK, map[string]any{"value": value})
}

// operations lists what a deployment made, and what it did not have to.
func (s *templateService) operations(c *call, sub, group, name string) error {
	d, err := s.load(c, sub, group, name)
	if err != nil {
		return err
	}
	value := []any{}
	for _, r := range d.Resources {
		props := map[string]any{
			"provisioningOperation": "Create", "provisioningState": orElse(r.State, "Succeeded"), "timestamp": zulu(d.Begun), "statusCode": "OK",
			"targetResource": map[string]any{"id": r.ID, "resourceType": r.Type, "resourceName": r.Name},
		}
		if r.Note != "" {
			props["berth"] = map[string]any{"note": r.Note}
		}
		value = append(value, map[string]any{"id": d.ID + "/operations/" + strings.ReplaceAll(strings.Trim(r.ID, "/"), "/", "-"), "properties": props})
	}
	return c.send(http.StatusOK, map[string]any{"value": value})
}

// forgetDeployments drops the records of a resource group that is deleted.
func forgetDeployments(tx *store.Tx, sub, group string) error {
	docs, err := tx.All(store.Query{Kind: kindDeployment, Parent: groupKey(sub, group), NoBody: true})
	if err != nil {
		return err
	}
	for _, d := range docs {
		if err := tx.Delete("", kindDeployment, d.Name, ""); err != nil {
			return err
		}
	}
	return nil
}

// deployment is the record of a deployment. Values of secure parameters and outputs are not in it.
type deployment struct {
	ID          string         `json:"id"`
	Name        string         `json:"name"`
	Parameters  map[string]any `json:"parameters"`
	Outputs     map[string]any `json:"outputs,omitempty"`
	Resources   []deployed     `json:"resources,omitempty"`
	Error       string         `json:"error,omitempty"`
	ErrorCode   string         `json:"errorCode,omitempty"`
	Begun       time.Time      `json:"begun"`
	Duration    time.Duration  `json:"duration"`
	Correlation string         `json:"correlation"`
	Running     bool           `json:"running,omitempty"` // it is not done
}

// deployed is a resource of a deployment.
type deployed struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	Name string `json:"name"`
	// Note says why nothing was made for it.
	Note string `json:"note,omitempty"`

	State   string `json:"-"` // as it is now
	Failure string `json:"-"`
}

// state is the deployment's provisioningState.
func (d *deployment) state() string {
	if d.Error != "" {
		return "Failed"
	}
	if d.Running {
		return "Running"
	}
	for _, r := range d.Resources {
		switch r.State {
		case "", "Succeeded":
		case "Failed", "Canceled":
			return "Failed"
		default:
			return "Running"
		}
	}
	return "Succeeded"
}

// operation is the state as status URLs have it.
func (d *deployment) operation() string {
	if s := d.state(); s != "Running" {
		return s
	}
	return "InProgress"
}

// failure says why it failed, empty when it did not.
func (d *deployment) failure() string {
	if d.Error != "" {
		return d.Error
	}
	for _, r := range d.Resources {
		if r.State == "Failed" || r.State == "Canceled" {
			return r.Type + " " + r.Name + ": " + orElse(r.Failure, "it ended as "+r.State)
		}
	}
	return ""
}

// shown is the deployment as Azure shows one. Notes on resources for which nothing was made are
// ours.
func (d *deployment) shown() map[string]any {
	made, notes := []any{}, []any{}
	for _, r := range d.Resources {
		if r.Note == "" {
			made = append(made, map[string]any{"id": r.ID})
		} else {
			notes = append(notes, r.Note)
		}
	}
	outputs := d.Outputs
	if outputs == nil {
		outputs = map[string]any{}
	}
	props := map[string]any{
		"provisioningState": d.state(), "mode": "Incremental", "parameters": d.Parameters, "outputs": outputs, "outputResources": made,
		"timestamp": zulu(d.Begun), "duration": "PT" + strconv.FormatFloat(d.Duration.Seconds(), 'f', 3, 64) + "S", "correlationId": d.Correlation, "dependencies": []any{}, "providers": []any{},
	}
	if why := d.failure(); why != "" {
		props["error"] = map[string]any{"code": "DeploymentFailed", "message": why, "details": []any{}}
	}
	if len(notes) > 0 {
		props["berth"] = map[string]any{"notes": notes}
	}
	return map[string]any{"id": d.ID, "name": d.Name, "type": "Microsoft.Resources/deployments", "properties": props}
}
