package api

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob/front"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// historyService serves the run history and the addresses of assets, as clients ask for them on
// Azure's data plane.
type historyService struct {
	locate.Locator
	db         *store.DB
	location   string
	docs       *documentService
	workspaces *workspaceService
	jobs       *jobService
	indexes    *indexService
}

// dataPlane serves the calls that clients build from the discovery document: run history, resolved
// URIs, index assets.
func (s *historyService) dataPlane(c *call) error {
	p, err := segments(c.r.URL.EscapedPath())
	if err != nil {
		return err
	}
	area := strings.ToLower(p[0])
	for len(p) > 0 && !strings.EqualFold(p[0], "subscriptions") {
		p = p[1:]
	}
	if len(p) < 8 {
		return notFound(c)
	}
	if err := s.workspaces.enter(c, berth.Workspace{Subscription: p[1], Group: p[3], Name: p[7]}); err != nil {
		return err
	}
	switch p = p[8:]; area {
	case "history":
		return s.history(c, p)
	case "data":
		if len(p) == 2 && fold(p, 0, "dataversion") && fold(p, 1, "batchGetResolvedUris") {
			return s.resolvedURIs(c)
		}
	case "modelregistry":
		if len(p) == 2 && fold(p, 0, "models") && fold(p, 1, "batchGetResolvedUris") {
			return s.resolvedURIs(c)
		}
	case "mferp":
		if len(p) == 3 && fold(p, 0, batchCollection) && fold(p, 2, "jobs") && c.r.Method == http.MethodGet {
			return c.s.batchJobs(c, p[1])
		}
	case "genericasset":
		return s.indexes.indexes(c, p)
	}
	return notFound(c)
}

func (s *historyService) history(c *call, p []string) error {
	switch {
	case len(p) == 1 && fold(p, 0, "rundata") && c.r.Method == http.MethodPost:
		return s.runData(c)
	case len(p) == 3 && fold(p, 0, "runs") && fold(p, 2, "details"):
		return s.runDetails(c, p[1])
	case len(p) == 3 && fold(p, 0, "runs") && fold(p, 2, "children"):
		return s.runChildren(c, p[1])
	case len(p) == 4 && fold(p, 0, "runs") && fold(p, 2, "serviceinstances"):
		return s.runServices(c, p[1], p[3])
	case len(p) == 2 && fold(p, 0, "runs"):
		return s.run(c, p[1])
	case len(p) == 4 && fold(p, 0, "experiments") && fold(p, 2, "runs"):
		if c.r.Method == http.MethodPatch {
			return s.patchRun(c, p[3])
		}
		return s.run(c, p[3])
	}
	return notFound(c)
}

// job loads a job's document and state.
func (s *jobService) job(c *call, name string) (*store.Doc, berth.JobState, error) {
	d, err := s.docs.load(c, s.docs.row("jobs"), name, "")
	if err != nil {
		return nil, berth.JobState{}, err
	}
	st, err := job.State(d)
	return d, st, err
}

// runServices is the services a job itself offers on one of its nodes: the first has them all.
func (s *historyService) runServices(c *call, name, node string) error {
	d, _, err := s.jobs.job(c, name)
	if err != nil {
		return err
	}
	instances := map[string]any{}
	if node == "0" {
		var v struct{ Properties map[string]any }
		if err := json.Unmarshal(d.Body, &v); err != nil {
			return err
		}
		for name, v := range c.shownServices(d, asMap(v.Properties["services"])) {
			if m := asMap(v); !serviceOf(m).Own() {
				instances[name] = serviceInstance(m)
			}
		}
	}
	return c.send(http.StatusOK, map[string]any{"instances": instances})
}

// root is the pipeline at the top of those a job is in, the job itself when it is in none.
func root(tx *store.Tx, d *store.Doc) (string, error) {
	for {
		st, err := job.State(d)
		if err != nil || st.Parent == "" {
			return d.Name, err
		}
		parent, err := tx.Get(d.Workspace, "jobs", st.Parent, "")
		if berth.CodeOf(err) == berth.NotFound {
			return st.Parent, nil
		}
		if err != nil {
			return "", err
		}
		d = parent
	}
}

// runDoc is the run object of a job.
func (c *call) runDoc(tx *store.Tx, d *store.Doc, st berth.JobState) (map[string]any, error) {
	top, err := root(tx, d)
	if err != nil {
		return nil, err
	}
	var v struct {
		Properties struct {
			JobType, DisplayName, ExperimentName, Description string
			Tags, Properties                                  map[string]any
		}
	}
	if err := json.Unmarshal(d.Body, &v); err != nil {
		c.s.Log.Error("job document does not parse", "job", d.Name, "err", err)
	}
	k := c.s.jobs.composite(v.Properties.JobType)
	m := map[string]any{
		"runId": d.Name, "status": d.Status, "target": st.Compute, "displayName": v.Properties.DisplayName,
		"experimentName": v.Properties.ExperimentName, "description": v.Properties.Description, "hidden": d.Archived,
		"tags": orEmpty(v.Properties.Tags), "properties": orEmpty(v.Properties.Properties), "runType": runType(st, k),
		"createdUtc": stamp(d.Created), "startTimeUtc": nil, "endTimeUtc": nil,
		"inputDatasets": []any{}, "outputDatasets": []any{}, "runDefinition": nil, "warnings": []any{}, "error": nil,
		"rootRunId": top, "parentRunId": nil, "userId": d.CreatedBy, "dataContainerId": "dcid." + d.Name,
	}
	if st.Parent != "" {
		m["parentRunId"] = st.Parent
	}
	lineage(asMap(m["properties"]), st, k)
	if !st.Times.Started.IsZero() {
		m["startTimeUtc"] = stamp(st.Times.Started)
	}
	if !st.Times.Ended.IsZero() {
		m["endTimeUtc"] = stamp(st.Times.Ended)
	}
	if d.Status == string(berth.Failed) {
		m["error"] = map[string]any{"error": map[string]any{"code": "UserError", "message": st.Reason}}
	}
	return m, nil
}

// stepRun is what a child is called.
const stepRun = "azureml.StepRun"

// runType is what the run history calls a kind of run.
func runType(st berth.JobState, k kind.Composite) string {
	switch {
	case st.Parent != "":
		return stepRun
	case k != nil:
		return k.RunType()
	}
	return "azureml.commandRun"
}

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

// runOf loads a job with its run object.
func (s *historyService) runOf(c *call, name string) (d *store.Doc, m map[string]any, err error) {
	d, st, err := s.jobs.job(c, name)
	if err != nil {
		return nil, nil, err
	}
	err = s.db.View(c.ctx(), func(tx *store.Tx) (err error) {
		m, err = c.runDoc(tx, d, st)
		return err
	})
	return d, m, err
}

func (s *historyService) run(c *call, name string) error {
	_, m, err := s.runOf(c, name)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, m)
}

// runDetails is what clients poll while they stream: status and the addresses of the logs.
func (s *historyService) runDetails(c *call, name string) error {
	d, m, err := s.runOf(c, name)
	if err != nil {
		return err
	}
	own, err := s.workspaces.storage(c.ctx(), c.ws)
	if err != nil {
		return err
	}
	logs := map[string]string{}
	folder := locate.ArtifactPath(d.Name) + "/"
	err = s.db.View(c.ctx(), func(tx *store.Tx) error {
		blobs, err := tx.ListBlobs(store.BlobQuery{Container: own.Artifacts, Prefix: folder + "user_logs/", Limit: 200})
		for _, b := range blobs {
			g := front.Grant{Container: own.Artifacts, Prefix: b.Name, Perm: "r", Expiry: c.now.Add(sasLife)}
			logs[strings.TrimPrefix(b.Name, folder)] = s.URL(own.Artifacts, b.Name) + "?" + c.sign(g)
		}
		return err
	})
	if err != nil {
		return err
	}
	m["logFiles"] = logs
	return c.send(http.StatusOK, m)
}

// patchRun is how clients from 1.35 on archive and edit a job.
func (s *historyService) patchRun(c *call, name string) error {
	body, err := c.body()
	if err != nil {
		return err
	}
	var d *store.Doc
	err = s.db.Update(c.ctx(), func(tx *store.Tx) error {
		if d, err = tx.Get(c.ws.Key(), "jobs", name, ""); err != nil {
			return c.missing(err, s.docs.row("jobs"), name, "")
		}
		return editJob(c, tx, d, func(p map[string]any) {
			for _, k := range []string{"displayName", "description"} {
				if v, ok := body[k]; ok {
					p[k] = v
				}
			}
			if v, ok := body["hidden"]; ok {
				p["isArchived"] = v
			}
			for _, k := range []string{"tags", "properties"} {
				if v, ok := body[k].(map[string]any); ok {
					old := orEmpty(asMap(p[k]))
					for name, value := range v {
						old[name] = value
					}
					p[k] = old
				}
			}
		})
	})
	if err != nil {
		return err
	}
	return s.run(c, d.Name)
}

var sdkVersion = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`azure-ai-ml/(\d+)\.(\d+)`) })

// snakeTypes reports whether the client wants uri_folder rather than UriFolder in run data: the SDK
// from 1.35 on does, and older ones skip what they do not know.
func snakeTypes(agent string) bool {
	m := sdkVersion().FindStringSubmatch(agent)
	if m == nil {
		return true
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return major > 1 || minor >= 35
}

// noModels reports whether the client cannot ask where models are: azure-ai-ml (1.34.1 and 1.35.2,
// 2026-11) ends with a TypeError before it has sent the question. Told of folders, it downloads
// them.
func noModels(agent string) bool { return sdkVersion().MatchString(agent) }

var outputTypes = map[string]string{
	"uri_folder": "UriFolder", "uri_file": "UriFile", "mltable": "MLTable",
	"custom_model": "CustomModel", "mlflow_model": "MLFlowModel", "triton_model": "TritonModel",
}

// runData tells a client which outputs a job has, for download.
func (s *historyService) runData(c *call) error {
	var req struct {
		RunID string `json:"runId"`
	}
	if err := c.into(&req); err != nil {
		return err
	}
	d, m, err := s.runOf(c, req.RunID)
	if err != nil {
		return err
	}
	var v struct {
		Properties struct {
			Outputs map[string]berth.JobOutput
		}
	}
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return err
	}
	outputs := map[string]any{}
	for name, o := range v.Properties.Outputs {
		if name == "default" {
			continue
		}
		typ := strings.ToLower(o.Type)
		if typ == "" {
			typ = "uri_folder"
		}
		coll := "data"
		switch model := strings.HasSuffix(typ, "_model"); {
		case model && noModels(c.r.UserAgent()):
			typ = "uri_folder"
		case model:
			coll = "models"
		}
		shown := outputTypes[typ]
		if coll == "data" && snakeTypes(c.r.UserAgent()) {
			shown = typ
		}
		outputs[name] = map[string]any{
			"type":    shown,
			"assetId": "azureml://locations/" + s.location + "/workspaces/" + c.ws.Name + "/" + coll + "/" + outputAsset(d.Name, name) + "/versions/1",
		}
	}
	m["outputs"] = outputs
	return c.send(http.StatusOK, map[string]any{"runMetadata": m, "runDefinition": map[string]any{}, "jobSpecification": nil})
}

const outputMark = "_output_data_"

// outputAsset names the asset an output would be, as Azure does. It is an address, not a document.
func outputAsset(job, output string) string { return "azureml_" + job + outputMark + output }

// resolvedURIs answers where assets are. Every id that was asked for is a key of the answer.
func (s *historyService) resolvedURIs(c *call) error {
	var req struct {
		Values []string `json:"values"`
	}
	if err := c.into(&req); err != nil {
		return err
	}
	out := map[string]any{}
	err := s.db.View(c.ctx(), func(tx *store.Tx) error {
		for _, id := range req.Values {
			uri, typ, err := s.resolvedURI(c, tx, id)
			if err != nil {
				return err
			}
			out[id] = map[string]any{"uri": uri, "path": uri, "type": typ} // data has a uri, a model a path
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, map[string]any{"values": out})
}

func (s *historyService) resolvedURI(c *call, tx *store.Tx, id string) (uri, typ string, err error) {
	ref, err := berth.ParseRef(id, "data")
	if err != nil {
		return "", "", err
	}
	if job, output, ok := strings.Cut(strings.TrimPrefix(ref.Name, "azureml_"), outputMark); ok {
		d, err := tx.Get(c.ws.Key(), "jobs", job, "")
		if err != nil {
			return "", "", c.missing(err, s.docs.row("jobs"), job, "")
		}
		var v struct {
			Properties struct{ Outputs map[string]berth.JobOutput }
		}
		if err := json.Unmarshal(d.Body, &v); err != nil {
			return "", "", err
		}
		o := v.Properties.Outputs[output]
		typ := outputTypes[strings.ToLower(o.Type)]
		if typ == "" {
			typ = "UriFolder"
		}
		uri := o.Place(d.Name, output)
		if place, ok := strings.CutPrefix(uri, "azureml://datastores/"); ok && o.URI == "" {
			uri = longURI(c.ws, place)
		}
		return c.s.Authority.Keys.SealAddress(uri, d.CreatedBy), typ, nil
	}
	d, err := locate.Version(tx, c.ws, strings.ToLower(ref.Collection), ref)
	if err != nil {
		return "", "", err
	}
	var v struct {
		Properties struct{ DataURI, DataType, ModelURI string }
	}
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return "", "", err
	}
	uri = c.s.Authority.Keys.SealAddress(v.Properties.DataURI+v.Properties.ModelURI, d.CreatedBy)
	return uri, outputTypes[strings.ToLower(v.Properties.DataType)], nil
}

// longURI is a place below datastores/ with its workspace.
func longURI(ws berth.Workspace, place string) string {
	return "azureml://subscriptions/" + ws.Subscription + "/resourcegroups/" + ws.Group + "/workspaces/" + ws.Name + "/datastores/" + place
}
