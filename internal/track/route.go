package track

import (
	"net/http"
	"strings"
	"sync"
)

// A route is one call of the protocol.
type route struct {
	do    handler
	reads bool // it changes nothing
	frees bool // it only ends things or makes them smaller: it is taken where there is no room
	task  bool // a job may make it; what it may see is up to the handler
	raw   bool // its body is not JSON
	all   bool // it is about all runs, experiments or models, those of jobs and of the workspace too

	streams bool // its answer goes on until a run has ended
}

const (
	apiMlflow    = "2.0/mlflow/"
	apiArtifacts = "2.0/mlflow-artifacts/"
)

// routes are those without anything open in them, below /api/ and /ajax-api/.
func routes() map[string]route {
	ask := func(h handler) route { return route{do: h, reads: true, task: true} }
	look := func(h handler) route { return route{do: h, reads: true, task: true, all: true} }
	do := func(h handler) route { return route{do: h, task: true} }
	own := func(h handler) route { return route{do: h} } // not for jobs
	return map[string]route{
		"GET 3.0/mlflow/server-info": ask(serverInfo),

		"POST 2.0/berth/metrics/primary":             ask(primaryMetrics),
		"GET 2.0/berth/experiments/sizes":            {do: experimentSizes, reads: true, all: true},
		"POST 2.0/berth/import/run":                  own(importRun),
		"POST 2.0/berth/import/logged-model":         own(importLogged),
		"POST 2.0/berth/import/logged-model-metrics": own(importLoggedPoints),
		"POST 2.0/berth/import/model-version":        {do: importVersion, all: true},
		"GET 2.0/berth/metrics/stream":               {do: streamMetrics, reads: true, streams: true},

		"POST experiments/create":                    do(createExperiment),
		"GET experiments/get":                        look(getExperiment),
		"GET experiments/get-by-name":                look(getExperimentByName),
		"POST experiments/search":                    look(searchExperiments),
		"GET experiments/search":                     look(searchExperiments),
		"POST experiments/delete":                    {do: deleteExperiment, all: true, frees: true},
		"POST experiments/restore":                   {do: restoreExperiment, frees: true},
		"POST experiments/update":                    own(updateExperiment),
		"POST experiments/set-experiment-tag":        do(setExperimentTag),
		"POST experiments/delete-experiment-tag":     {do: deleteExperimentTag, task: true, frees: true},
		"POST experiments/search-datasets":           look(searchDatasets),
		"POST runs/create":                           do(createRun),
		"GET runs/get":                               look(getRun),
		"POST runs/update":                           do(updateRun),
		"POST runs/delete":                           {do: deleteRun, task: true, frees: true},
		"POST runs/restore":                          {do: restoreRun, task: true, frees: true},
		"POST runs/search":                           look(searchRuns),
		"POST runs/set-tag":                          do(setRunTag),
		"POST runs/delete-tag":                       {do: deleteRunTag, task: true, frees: true},
		"POST runs/log-parameter":                    do(logParam),
		"POST runs/log-metric":                       do(logMetric),
		"POST runs/log-batch":                        {do: logBatch, task: true, raw: true},
		"POST runs/log-inputs":                       do(logInputs),
		"POST runs/outputs":                          do(logOutputs),
		"POST runs/log-model":                        do(logModel),
		"GET metrics/get-history":                    ask(getHistory),
		"GET metrics/get-history-bulk":               ask(getHistoryBulk),
		"GET metrics/get-history-bulk-interval":      ask(getHistoryInterval),
		"GET artifacts/list":                         ask(listArtifacts),
		"POST upload-artifact":                       {do: uploadArtifact, task: true, raw: true},
		"POST logged-models":                         do(createLogged),
		"POST logged-models/search":                  ask(searchLogged),
		"POST registered-models/create":              {do: createRegistered, task: true, all: true},
		"GET registered-models/get":                  look(getRegistered),
		"POST registered-models/rename":              {do: renameRegistered, all: true, frees: true},
		"PATCH registered-models/update":             {do: updateRegistered, task: true, all: true},
		"DELETE registered-models/delete":            {do: deleteRegistered, all: true, frees: true},
		"GET registered-models/search":               look(searchRegistered),
		"POST registered-models/search":              look(searchRegistered),
		"GET registered-models/get-latest-versions":  look(latestVersions),
		"POST registered-models/get-latest-versions": look(latestVersions),
		"POST registered-models/set-tag":             {do: setRegisteredTag, task: true, all: true},
		"DELETE registered-models/delete-tag":        {do: deleteRegisteredTag, all: true, frees: true},
		"POST registered-models/alias":               {do: setAlias, task: true, all: true},
		"GET registered-models/alias":                look(getAlias),
		"DELETE registered-models/alias":             {do: deleteAlias, all: true, frees: true},
		"POST model-versions/create":                 {do: createVersion, task: true, all: true},
		"GET model-versions/get":                     look(getVersion),
		"PATCH model-versions/update":                {do: updateVersion, task: true, all: true},
		"DELETE model-versions/delete":               {do: deleteVersion, all: true, frees: true},
		"GET model-versions/search":                  look(searchVersions),
		"POST model-versions/search":                 look(searchVersions),
		"GET model-versions/get-download-uri":        look(versionURI),
		"POST model-versions/transition-stage":       {do: transitionStage, all: true, frees: true},
		"POST model-versions/set-tag":                {do: setVersionTag, task: true, all: true},
		"DELETE model-versions/delete-tag":           {do: deleteVersionTag, all: true, frees: true},
	}
}

var fixed = sync.OnceValue(routes)

// routeOf finds the call that a method and path mean. rest is what the route leaves open.
func routeOf(method, path string) (route, string, error) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	path = strings.TrimLeft(path, "/")
	rest, api := strings.CutPrefix(path, "api/")
	if !api {
		rest, api = strings.CutPrefix(path, "ajax-api/")
	}
	if !api {
		return plainRoute(method, path)
	}
	if p, ok := strings.CutPrefix(rest, "2.0mlflow/"); ok { // where a slash is missing in MLflow too
		rest = apiMlflow + p
	}
	if p, ok := strings.CutPrefix(rest, apiArtifacts); ok {
		return artifactRoute(method, p)
	}
	if p, ok := strings.CutPrefix(path, HistoryPath); ok {
		return historyRoute(method, p)
	}
	p, ok := strings.CutPrefix(rest, apiMlflow)
	if !ok {
		p = rest
	}
	if r, ok := fixed()[method+" "+p]; ok {
		return r, "", nil
	}
	if id, ok := strings.CutPrefix(p, "logged-models/"); ok {
		return loggedRoute(method, id)
	}
	return route{}, "", noRoute(method, p)
}

// noRoute says that a call is not served, or not with this method.
func noRoute(method, p string) error {
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
		if _, ok := fixed()[m+" "+p]; ok {
			return refuse(noEndpoint, "Method %s is not allowed for %s; use %s", method, p, m)
		}
	}
	return refuse(noEndpoint, "%s is not supported: this server has no traces, prompt optimization, webhooks, evaluation datasets or gateway", p)
}

// plainRoute finds the few calls that are outside of the API's tree.
func plainRoute(method, path string) (route, string, error) {
	if method == http.MethodGet {
		switch path {
		case "health":
			return route{do: health, reads: true, task: true, raw: true}, "", nil
		case "version":
			return route{do: protocolVersion, reads: true, task: true, raw: true}, "", nil
		case "get-artifact":
			return route{do: getRunArtifact, reads: true, task: true}, "", nil
		case "model-versions/get-artifact":
			return route{do: getVersionArtifact, reads: true, task: true, all: true}, "", nil
		}
	}
	if path == "" {
		return route{}, "", refuse(noEndpoint, "There is no web page here: use `berth runs` and `berth metrics RUN`. The API is under /api/2.0/mlflow")
	}
	return route{}, "", refuse(noEndpoint, "There is nothing at /%s; the API is under /api/2.0/mlflow", path)
}

// artifactRoute finds the calls of the artifact proxy.
func artifactRoute(method, p string) (route, string, error) {
	if p == "artifacts" && method == http.MethodGet {
		return route{do: listProxied, reads: true, task: true}, "", nil
	}
	if rest, ok := strings.CutPrefix(p, "artifacts/"); ok {
		switch method {
		case http.MethodGet:
			return route{do: download, reads: true, task: true, raw: true}, rest, nil
		case http.MethodPut:
			return route{do: upload, task: true, raw: true}, rest, nil
		case http.MethodDelete:
			return route{do: deleteProxied, task: true, raw: true}, rest, nil
		}
	}
	if method == http.MethodPost {
		for prefix, h := range map[string]handler{"mpu/create/": createUpload, "mpu/complete/": completeUpload, "mpu/abort/": abortUpload} {
			if rest, ok := strings.CutPrefix(p, prefix); ok {
				return route{do: h, task: true}, rest, nil
			}
		}
	}
	if strings.HasPrefix(p, "presigned/") {
		return route{}, "", refuse(notImplemented, "Presigned downloads are not supported; download artifacts from this server")
	}
	return route{}, "", noRoute(method, apiArtifacts+p)
}

// loggedRoute finds the calls about one logged model.
func loggedRoute(method, rest string) (route, string, error) {
	id, call, _ := strings.Cut(rest, "/")
	tag, isTag := strings.CutPrefix(call, "tags/")
	switch {
	case call == "" && method == http.MethodGet:
		return route{do: getLogged, reads: true, task: true}, id, nil
	case call == "" && method == http.MethodPatch:
		return route{do: finalizeLogged, task: true, frees: true}, id, nil
	case call == "" && method == http.MethodDelete:
		return route{do: deleteLogged, raw: true, frees: true}, id, nil
	case call == "tags" && method == http.MethodPatch:
		return route{do: setLoggedTags, task: true}, id, nil
	case isTag && method == http.MethodDelete:
		return route{do: deleteLoggedTag, task: true, raw: true, frees: true}, id + "/" + tag, nil
	case call == "params" && method == http.MethodPost:
		return route{do: logLoggedParams, task: true}, id, nil
	case call == "artifacts/directories" && method == http.MethodGet:
		return route{do: listLoggedArtifacts, reads: true, task: true}, id, nil
	case call == "artifacts/files" && method == http.MethodGet:
		return route{do: getLoggedArtifact, reads: true, task: true}, id, nil
	}
	return route{}, "", noRoute(method, "logged-models/"+rest)
}

// may says whether somebody may make a call at all.
func (who Caller) may(r route) error {
	if who.Job != "" && !r.task {
		return refuse(denied, "The token of a job cannot make this request")
	}
	if !r.reads && !who.Write {
		return refuse(denied, "This token may only read")
	}
	return nil
}

// mlflowVersion is the release that clients are told; docs/tracking-reference.md says where this
// server follows an earlier one.
const mlflowVersion = "3.18.0"

func health(c *call) (any, error) {
	c.w.Header().Set("Content-Type", "text/plain")
	_, _ = c.w.Write([]byte("OK"))
	return nil, nil
}

func protocolVersion(c *call) (any, error) {
	c.w.Header().Set("Content-Type", "text/plain")
	_, _ = c.w.Write([]byte(mlflowVersion))
	return nil, nil
}

func serverInfo(c *call) (any, error) {
	return map[string]any{"store_type": "SqlStore", "workspaces_enabled": false}, nil
}
