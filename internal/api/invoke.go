package api

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/batch"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/ordered"
	"github.com/berthml/berth/internal/serve"
	"github.com/berthml/berth/internal/store"
)

// repeatHeaders name a request, so that one that is sent again is not carried out again: as clients
// write it, and as the standard does.
var repeatHeaders = []string{"repeatability_request-id", "Repeatability-Request-Id"}

// checkSteps refuses a pipeline whose own steps could not run.
func (s *jobService) checkSteps(ws berth.Workspace, props json.RawMessage) error {
	k, err := s.kindOf("Pipeline")
	if err != nil {
		return err
	}
	none := func(id string) (string, json.RawMessage, error) {
		return "", nil, berth.Missingf("there is no component %s", id)
	}
	steps, err := k.(kind.Composite).Unfold(kind.Parent{Name: "check", Props: props, Workspace: ws, Component: none})
	for _, step := range steps {
		if err != nil {
			return err
		}
		var raw []byte
		if raw, err = json.Marshal(step.Props); err != nil {
			return err
		}
		var of kind.Kind
		if of, err = s.kindOf(text(step.Props, "jobType")); err == nil {
			err = of.Validate(raw)
		}
	}
	return err
}

// scoringURI takes what is sent to the address of a batch endpoint: POST begins a job, GET lists
// those of the endpoint. Callers have a token of the server, or a key of the endpoint.
func (s *Server) scoringURI(w http.ResponseWriter, r *http.Request) {
	ws := berth.Workspace{Subscription: r.PathValue("subscription"), Group: r.PathValue("group"), Name: r.PathValue("workspace")}
	h := func(c *call) error {
		if err := s.workspaces.enter(c, ws); err != nil {
			return err
		}
		if r.Method == http.MethodGet {
			return s.batchJobs(c, r.PathValue("endpoint"))
		}
		return s.invoke(c, r.PathValue("endpoint"))
	}
	if p, ok, err := s.endpointKey(r, ws); err != nil {
		s.fail(w, r, err)
	} else if ok {
		s.serve(w, r, p, h)
	} else {
		s.guard(h).ServeHTTP(w, r)
	}
}

// endpointKey is who calls with a key of a batch endpoint: its maker.
func (s *Server) endpointKey(r *http.Request, ws berth.Workspace) (p auth.Principal, ok bool, err error) {
	given := auth.Bearer(r.Header.Get("Authorization"))
	if _, local := auth.From(r.Context()); local || given == "" {
		return p, false, nil
	}
	known, err := s.workspaces.findWorkspace(r.Context(), ws)
	if err != nil {
		return p, false, nil //nolint:nilerr // who is not known is not told what there is
	}
	var d *store.Doc
	err = s.DB.View(r.Context(), func(tx *store.Tx) (err error) {
		d, err = tx.Get(known.Key(), batchCollection, r.PathValue("endpoint"), "")
		return err
	})
	if berth.CodeOf(err) == berth.NotFound {
		return p, false, nil
	}
	if err != nil {
		return p, false, err
	}
	had, err := openSecrets(s.Authority.Keys, d.Workspace+"/"+batchCollection+"/"+d.Name, d)
	if err != nil {
		return p, false, err
	}
	_, props, err := bodyOf(d)
	if err != nil || !strings.EqualFold(text(props, "authMode"), "Key") {
		return p, false, err
	}
	keys := asMap(had["keys"])
	for _, k := range []string{text(keys, primaryKey), text(keys, secondaryKey)} {
		if k != "" && subtle.ConstantTimeCompare([]byte(k), []byte(given)) == 1 {
			err := s.Authority.CheckWriter(r.Context(), d.CreatedBy, time.Now())
			return auth.Principal{User: d.CreatedBy, Role: auth.User, Token: "key of " + d.Name, Endpoint: d.Name}, err == nil, err
		}
	}
	return p, false, nil
}

// invoke begins a job of a batch endpoint.
func (s *Server) invoke(c *call, name string) error {
	var ask struct {
		Properties batch.Invocation `json:"properties"`
	}
	if err := c.into(&ask); err != nil {
		return err
	}
	c.sealInvocation(&ask.Properties)
	endpoint, deployment, err := c.invoked(name)
	if err != nil {
		return err
	}
	_, props, err := bodyOf(deployment)
	if err != nil {
		return err
	}
	var t batch.Target
	err = s.DB.View(c.ctx(), func(tx *store.Tx) (err error) {
		if t, err = c.batchTarget(tx, endpoint.Name, deployment.Version, props); err != nil {
			return err
		}
		for name, in := range ask.Properties.Inputs {
			if uri := strings.ToLower(in.URI); strings.HasPrefix(uri, "/subscriptions/") || strings.HasPrefix(uri, "azureml:") {
				if _, err := c.s.Resolve(tx, c.ws, c.who.User, in.URI); err != nil {
					return berth.Errorf(berth.Invalid, "properties.inputData.%s: %w", name, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if c.who.Endpoint != "" {
		if err := t.Limit(&ask.Properties); err != nil {
			return err
		}
	}
	if t.Environment == "" && t.Code() == "" && t.Model.MLflow && !t.IsPipeline() {
		m := serve.Model{ID: t.Model.ID, Name: t.Model.Name, Version: t.Model.Version}
		if t.Environment, err = s.modelEnvironments().Of(c.ctx(), c.ws, c.who.User, m); err != nil {
			return err
		}
	}
	made, err := t.Job(&ask.Properties)
	if err != nil {
		return err
	}
	body, err := json.Marshal(ask.Properties)
	if err != nil {
		return err
	}
	w := submission{
		name: jobName(c, endpoint, ask.Properties.Name), invokes: t.Endpoint + "/" + t.Name,
		asked: digest(c.who.User, t.Name, requestID(c.r), string(body)),
	}
	return c.beginInvocation(w, made)
}

// modelEnvironments makes the environments of MLflow models.
func (s *Server) modelEnvironments() serve.ModelEnvironments {
	return serve.ModelEnvironments{DB: s.DB, Blobs: s.Blobs, Locator: s.Locator}
}

// digest is a hash of several texts.
func digest(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// invoked is the endpoint of an invocation, and the deployment that it is for: the one the header
// names, or the endpoint's default.
func (c *call) invoked(name string) (endpoint, deployment *store.Doc, err error) {
	r := c.s.docs.row(batchCollection)
	if endpoint, err = c.s.docs.load(c, r, name, ""); err != nil {
		return nil, nil, err
	}
	_, p, err := bodyOf(endpoint)
	if err != nil {
		return nil, nil, err
	}
	which := cmp.Or(c.r.Header.Get(berth.DeploymentHeader), text(asMap(p["defaults"]), "deploymentName"))
	if which == "" {
		return nil, nil, berth.Errorf(berth.Invalid, "batch endpoint %s has no default deployment: set defaults.deployment_name, or name one in the header %s", endpoint.Name, strings.ToLower(berth.DeploymentHeader))
	}
	deployment, err = c.s.docs.load(c, r, endpoint.Name, which)
	if berth.CodeOf(err) == berth.NotFound {
		err = berth.Errorf(berth.NotFound, "batch endpoint %s has no deployment %s", endpoint.Name, which)
	}
	return endpoint, deployment, err
}

// requestID is the name that a client gave to its request, "" if none.
func requestID(r *http.Request) string {
	for _, h := range repeatHeaders {
		if id := r.Header.Get(h); id != "" {
			return id
		}
	}
	return ""
}

// jobName is the name of the job that an invocation becomes: the one it gives, or one that follows
// from the name of the request, so that the same request makes one job.
func jobName(c *call, endpoint *store.Doc, asked string) string {
	if asked != "" {
		return asked
	}
	if id := requestID(c.r); id != "" {
		return "batchjob-" + digest(serve.TokenName(endpoint), c.who.User, id)
	}
	return "batchjob-" + strings.ToLower(newKey()[:22])
}

// beginInvocation keeps the job of an invocation, or finds that it was kept before.
func (c *call) beginInvocation(w submission, props map[string]any) error {
	name := w.name
	if err := berth.CheckName("job", name); err != nil {
		return err
	}
	r := c.s.docs.row("jobs")
	raw, err := json.Marshal(map[string]any{"properties": props})
	if err != nil {
		return err
	}
	body := map[string]any{}
	if err := decodeJSON(raw, &body); err != nil {
		return err
	}
	w.body, w.props = body, asMap(body["properties"])
	if w.room, err = c.s.quota.Room(c.ctx(), c.ws.Key()); err != nil {
		return err
	}
	jobDefaults(w.props, name)
	if k, ok := c.s.jobs.composite("Pipeline").(kind.Completer); ok {
		k.Defaults(w.props)
	}
	if w.raw, err = ordered.Marshal(body); err != nil {
		return err
	}
	if err := checkTables(c, w.props); err != nil {
		return err
	}
	var d *store.Doc
	err = c.s.DB.Update(c.ctx(), func(tx *store.Tx) (err error) {
		d, err = tx.Get(c.ws.Key(), "jobs", name, "")
		switch berth.CodeOf(err) {
		case berth.NotFound:
			if err = checkJobName(name); err == nil {
				if err = w.room.Full(c.ws.Name); err == nil {
					d, err = jobCall{c}.submit(tx, w)
				}
			}
			return err
		}
		if err != nil {
			return err
		}
		return sameInvocation(d, w)
	})
	if err != nil {
		return err
	}
	return c.sendDoc(http.StatusCreated, r, d)
}

// sameInvocation refuses an invocation whose job is there, unless it is the same request that was
// sent again.
func sameInvocation(d *store.Doc, w submission) error {
	st, err := job.State(d)
	switch {
	case err != nil || st.Invokes != w.invokes:
		return berth.Errorf(berth.Conflict, "a job named %s exists; choose another name", d.Name)
	case st.Asked != w.asked:
		return berth.Errorf(berth.Conflict, "job %s was begun by another invocation of %s: give each invocation a job name and a request id of its own, or none", d.Name, w.invokes)
	}
	return nil
}

// batchJobs lists the jobs of a batch endpoint, the newest first.
func (s *Server) batchJobs(c *call, name string) error {
	endpoint, err := s.docs.load(c, s.docs.row(batchCollection), name, "")
	if err != nil {
		return err
	}
	const most = 1000
	value := []any{}
	mark := []byte(`"invokes":"` + endpoint.Name + `/`)
	q := store.Query{Workspace: c.ws.Key(), Kind: "jobs", Limit: 200}
	for more := true; more && len(value) < most; {
		err := s.DB.View(c.ctx(), func(tx *store.Tx) error {
			docs, err := tx.List(q)
			more = len(docs) == q.Limit
			for _, d := range docs {
				q.After = d.ID
				if len(value) == most || !bytes.Contains(d.Own, mark) {
					continue
				}
				m, err := c.render(s.docs.row("jobs"), d)
				if err != nil {
					return err
				}
				value = append(value, m)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return c.send(http.StatusOK, map[string]any{"value": value})
}
