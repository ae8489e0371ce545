package serve

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// Kind is the kind of the documents of deployments, and Collection that of their endpoints.
const (
	Collection = "onlineEndpoints"
	Kind       = Collection + "/deployments"
)

// ComputeProperty is the property of a deployment that names the compute its replicas run on; where
// there is none they run where its endpoint does, or on the server's own machine.
const ComputeProperty = "berth.compute"

// Experiment is the one that the jobs of replicas are in.
const Experiment = "online-endpoints"

// Limits of what a deployment may ask for.
const (
	maxInstances  = 100
	maxWorkers    = 64   // which are processes
	maxConcurrent = 1024 // requests that a server of the user's own has at once
	maxTimeout    = 30 * time.Minute
	maxProbeCount = 1000
)

// Spec is what the document of a deployment says.
type Spec struct {
	Model       string
	Environment string
	Code        string
	Script      string
	Compute     string
	Env         map[string]berth.Scalar
	Instances   int
	Workers     int           // requests that a replica answers at once
	Timeout     time.Duration // of a request
	QueueWait   time.Duration // longest a request waits for a replica; 0 is as long as Timeout
	Startup     time.Duration // longest that a replica takes to become ready once its process runs
	Scale       Scale
	Command     string // a server of the user's own, instead of a script
	Port        string // that it listens on; "" is the one it is given
	Ready       string // path at which it answers when it is ready
	Idempotent  bool   // a request that a worker may have begun can be sent to another
	Live        Probing
	Collecting  *Collecting // nil where nothing is kept
}

// probe is a probe of the document.
type probe struct {
	InitialDelay     string `json:"initialDelay"`
	Period           string `json:"period"`
	Timeout          string `json:"timeout"`
	FailureThreshold *int   `json:"failureThreshold"`
}

// document is the form of a deployment's document, as far as it matters here.
type document struct {
	Sku struct {
		Capacity *int `json:"capacity"`
	} `json:"sku"`
	Properties struct {
		Model             json.RawMessage         `json:"model"`
		EnvironmentID     string                  `json:"environmentId"`
		Env               map[string]berth.Scalar `json:"environmentVariables"`
		CodeConfiguration *struct {
			CodeID        string `json:"codeId"`
			ScoringScript string `json:"scoringScript"`
		} `json:"codeConfiguration"`
		RequestSettings struct {
			Concurrent *int   `json:"maxConcurrentRequestsPerInstance"`
			Timeout    string `json:"requestTimeout"`
			QueueWait  string `json:"maxQueueWait"`
		} `json:"requestSettings"`
		DataCollector  json.RawMessage         `json:"dataCollector"`
		LivenessProbe  *probe                  `json:"livenessProbe"`
		ReadinessProbe *probe                  `json:"readinessProbe"`
		ScaleSettings  scaleSettings           `json:"scaleSettings"`
		Properties     map[string]berth.Scalar `json:"properties"`
	} `json:"properties"`
}

// ParseSpec reads the document of a deployment, and refuses what could not be served.
func ParseSpec(body []byte) (s Spec, err error) {
	var d document
	if err := json.Unmarshal(body, &d); err != nil {
		return s, berth.Errorf(berth.Invalid, "the deployment cannot be read: %w", err)
	}
	p := &d.Properties
	s = Spec{Environment: p.EnvironmentID, Env: p.Env, Instances: 1, Workers: 1, Timeout: 5 * time.Second, Compute: string(p.Properties[ComputeProperty])}
	if s.Model, err = modelOf(p.Model); err != nil {
		return s, err
	}
	if c := p.CodeConfiguration; c != nil {
		s.Code, s.Script = c.CodeID, c.ScoringScript
		if s.Script == "" || path.IsAbs(s.Script) || strings.HasPrefix(path.Clean(s.Script), "..") {
			return s, berth.Errorf(berth.Invalid, "properties.codeConfiguration.scoringScript must be the path of a file below the code, such as score.py")
		}
		s.Script = path.Clean(s.Script)
	}
	if err := s.custom(p.Properties); err != nil {
		return s, err
	}
	if text := string(p.Properties[idempotentProperty]); text != "" {
		if s.Idempotent, err = strconv.ParseBool(strings.ToLower(text)); err != nil {
			return s, berth.Errorf(berth.Invalid, "properties.properties.%s must be true or false, not %q", idempotentProperty, text)
		}
	}
	if d.Sku.Capacity != nil {
		s.Instances = *d.Sku.Capacity
	}
	if s.Instances < 0 || s.Instances > maxInstances {
		return s, berth.Errorf(berth.Invalid, "sku.capacity must be a number from 0 to %d", maxInstances)
	}
	if n := p.RequestSettings.Concurrent; n != nil {
		s.Workers = *n
	}
	most := maxWorkers
	if s.Command != "" {
		most = maxConcurrent
	}
	if s.Workers < 1 || s.Workers > most {
		return s, berth.Errorf(berth.Invalid, "properties.requestSettings.maxConcurrentRequestsPerInstance must be a number from 1 to %d", most)
	}
	if text := string(p.Env["WORKER_COUNT"]); text != "" {
		if s.Workers, err = strconv.Atoi(text); err != nil || s.Workers < 1 || s.Workers > most {
			return s, berth.Errorf(berth.Invalid, "properties.environmentVariables.WORKER_COUNT must be a number from 1 to %d", most)
		}
	}
	if err := duration(&s.Timeout, "requestSettings.requestTimeout", p.RequestSettings.Timeout); err != nil {
		return s, err
	}
	if err := duration(&s.QueueWait, "requestSettings.maxQueueWait", p.RequestSettings.QueueWait); err != nil {
		return s, err
	}
	if s.Startup, err = startup(p.ReadinessProbe, p.LivenessProbe); err != nil {
		return s, err
	}
	if s.Live, err = probing(p.LivenessProbe); err != nil {
		return s, err
	}
	if s.Collecting, err = parseCollecting(p.DataCollector); err != nil {
		return s, err
	}
	s.Scale, err = parseScale(p.ScaleSettings, p.Properties, s.Instances)
	return s, err
}

// idempotentProperty says that a request may be carried out twice: it is sent to another replica if
// the first one is lost.
const idempotentProperty = "berth.idempotent"

// The properties of a deployment that is a server of the user's own.
const (
	commandProperty = "berth.command"
	portProperty    = "berth.port"
	readyProperty   = "berth.ready"
)

// custom reads what is said of a server of the user's own.
func (s *Spec) custom(props map[string]berth.Scalar) error {
	s.Command, s.Port, s.Ready = string(props[commandProperty]), string(props[portProperty]), string(props[readyProperty])
	if s.Command == "" && s.Port+s.Ready != "" {
		return berth.Errorf(berth.Invalid, "properties.properties.%s is missing: %s and %s belong to it", commandProperty, portProperty, readyProperty)
	}
	if n, err := strconv.Atoi(s.Port); s.Port != "" && (err != nil || n < 1024 || n > 65535) {
		return berth.Errorf(berth.Invalid, "properties.properties.%s must be a number from 1024 to 65535, not %q", portProperty, s.Port)
	}
	if s.Ready != "" && !isPath(s.Ready) {
		return berth.Errorf(berth.Invalid, "properties.properties.%s must be a path such as /healthz, not %q", readyProperty, s.Ready)
	}
	if s.Command != "" && s.Script != "" {
		return berth.Errorf(berth.Invalid, "the deployment has both a scoring script and %s: name one of them", commandProperty)
	}
	return nil
}

// modelOf is the id of the model: a text, or an object with it.
func modelOf(raw json.RawMessage) (string, error) {
	var text string
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var ref struct {
		AssetID string `json:"assetId"`
	}
	if err := json.Unmarshal(raw, &ref); err != nil || ref.AssetID == "" {
		return "", berth.Errorf(berth.Invalid, "properties.model must be the id of a model")
	}
	return ref.AssetID, nil
}

// duration reads a duration into d, where there is one.
func duration(d *time.Duration, field, text string) error {
	if text == "" {
		return nil
	}
	v, err := berth.ParseDuration(text)
	if err != nil || v <= 0 || v > maxTimeout {
		return berth.Errorf(berth.Invalid, "properties.%s must be a duration of up to %d minutes such as PT5S, not %q", field, int(maxTimeout.Minutes()), text)
	}
	*d = v
	return nil
}

// startup is how long a replica may take to become ready: as long as the more patient of the
// probes waits.
func startup(probes ...*probe) (time.Duration, error) {
	longest := time.Duration(0)
	for i, p := range probes {
		delay, period, failures := 10*time.Second, 10*time.Second, 30
		if p != nil {
			name := []string{"readinessProbe", "livenessProbe"}[i]
			if err := duration(&delay, name+".initialDelay", p.InitialDelay); err != nil {
				return 0, err
			}
			if err := duration(&period, name+".period", p.Period); err != nil {
				return 0, err
			}
			if p.FailureThreshold != nil {
				failures = *p.FailureThreshold
			}
			if failures < 1 || failures > maxProbeCount {
				return 0, berth.Errorf(berth.Invalid, "properties.%s.failureThreshold must be a number from 1 to %d", name, maxProbeCount)
			}
		}
		longest = max(longest, delay+time.Duration(failures)*period)
	}
	return longest, nil
}

// Model is a registered model, as a replica sees it.
type Model struct {
	ID, Name, Version string
	Base              string // name of the file or folder that was registered
	MLflow            bool
	Doc               *store.Doc
}

// FindModel reads the model a deployment names.
func FindModel(tx *store.Tx, ws berth.Workspace, id string) (m Model, err error) {
	ref, err := berth.ParseRef(id, "models")
	if err != nil {
		return m, berth.Errorf(berth.Invalid, "properties.model: %w", err)
	}
	if ref.Registry != "" {
		return m, berth.Errorf(berth.Unsupported, "properties.model: %s is in a registry; this server has none: register the model in the workspace", id)
	}
	d, err := locate.Version(tx, ws, "models", ref)
	if err != nil {
		return m, berth.Errorf(berth.CodeOf(err), "properties.model: %w", err)
	}
	var v struct {
		Properties struct {
			URI  string `json:"modelUri"`
			Type string `json:"modelType"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return m, berth.Errorf(berth.Invalid, "model %s cannot be read: %w", id, err)
	}
	base := path.Base(strings.TrimRight(berth.CleanURL(v.Properties.URI), "/"))
	if i := strings.LastIndexAny(base, ":\\"); i >= 0 {
		base = base[i+1:]
	}
	if base == "" || base == "." || base == ".." || base == "/" {
		base = "model"
	}
	return Model{
		ID: ws.ResourceID("models", d.Name, "versions", d.Version), Name: d.Name, Version: d.Version, Base: base, Doc: d,
		MLflow: strings.EqualFold(v.Properties.Type, "mlflow_model") || strings.EqualFold(v.Properties.Type, "MLFlowModel"),
	}, nil
}

// Check refuses a deployment that could never serve.
func (s Spec) Check(tx *store.Tx, ws berth.Workspace) error {
	mlflow := false
	if s.Model != "" {
		m, err := FindModel(tx, ws, s.Model)
		if err != nil {
			return err
		}
		mlflow = m.MLflow
	}
	if s.Code == "" && (s.Command != "" || !mlflow) {
		i, err := FindInference(tx, ws, s.Environment)
		if err == nil && i == nil && s.Command == "" {
			err = berth.Errorf(berth.Invalid, "properties.codeConfiguration is missing: name the code and its scoring script, an MLflow model, which needs none, "+
				"a server of your own (%s), or an environment whose image has one (inferenceConfig)", commandProperty)
		}
		return err
	}
	if s.Code == "" {
		return nil
	}
	ref, err := berth.ParseRef(s.Code, "codes")
	if err == nil {
		_, err = locate.Version(tx, ws, "codes", ref)
	}
	if err != nil {
		return berth.Errorf(berth.Invalid, "properties.codeConfiguration.codeId: %w", err)
	}
	return nil
}

// timeoutLag is how much later than the gateway a worker gives a request up.
const timeoutLag = 500 * time.Millisecond

// command starts the worker, whose source is in the environment.
const command = `exec "$(command -v python || command -v python3)" -c 'import os; berth_source = os.environ.pop("` + SourceVariable + `"); exec(compile(berth_source, "berth_worker.py", "exec"))'`

// imageCommand does so in an image that may have no Python.
const imageCommand = `command -v python python3 >/dev/null || { echo "the image has no Python, which the process before its server needs: add one"; exit 3; }; ` + command

// SourceVariable and SecretVariable are set for each replica when it is started: the source of the
// worker, and what it asks of everybody who calls it.
const (
	SourceVariable = "BERTH_WORKER"
	SecretVariable = "BERTH_REPLICA_SECRET" //nolint:gosec // the name of a variable
)

// revision is what a replica of the deployment runs now.
func (k *keeper) revision(tx *store.Tx, v *view, s Spec, environment string) (*berth.Revision, error) {
	ws, endpoint, deployment := v.ws, v.doc.Name, v.doc.Version
	env := map[string]berth.Scalar{}
	maps.Copy(env, s.Env)
	inputs := map[string]any{}
	r := &berth.Revision{Workers: s.Workers}
	mlflow := false
	if s.Model != "" {
		m, err := FindModel(tx, ws, s.Model)
		if err != nil {
			return nil, err
		}
		kind := "custom_model"
		if mlflow = m.MLflow; mlflow {
			kind = "mlflow_model"
		}
		inputs["model"] = map[string]any{"jobInputType": kind, "uri": m.ID, "mode": "ReadOnlyMount"}
		env["BERTH_MODEL_NAME"], env["BERTH_MODEL_VERSION"], env["BERTH_MODEL_BASE"] = berth.Scalar(m.Name), berth.Scalar(m.Version), berth.Scalar(m.Base)
		place, err := k.l.o.Locator.Resolve(tx, ws, v.doc.CreatedBy, m.ID)
		if err != nil {
			return nil, err
		}
		if place.Ours() {
			if _, err := tx.Blob(place.Container, place.Name); err == nil {
				env["BERTH_MODEL_FILE"] = "1"
			} else if berth.CodeOf(err) != berth.NotFound {
				return nil, err
			}
		}
		r.Pure = m.MLflow && s.Code == "" && s.Command == ""
	}
	if s.Code != "" {
		env["AZUREML_ENTRY_SCRIPT"] = berth.Scalar(s.Script)
	}
	env["WORKER_COUNT"] = berth.Scalar(strconv.Itoa(s.Workers))
	if env["SCORING_TIMEOUT_MS"] == "" { // a request that nobody waits for any more costs nothing
		env["SCORING_TIMEOUT_MS"] = berth.Scalar(strconv.FormatInt((s.Timeout + timeoutLag).Milliseconds(), 10))
	}
	if err := s.server(tx, ws, r, env, mlflow); err != nil {
		return nil, err
	}
	env["SERVICE_NAME"] = berth.Scalar(endpoint)
	env["SERVICE_PATH_PREFIX"] = berth.Scalar(strings.Trim(ws.EndpointPath(endpoint), "/"))
	props := map[string]any{
		"jobType": "Command", "command": command, "displayName": endpoint + "/" + deployment, "experimentName": Experiment,
		"environmentVariables": env, "inputs": inputs,
	}
	for k, v := range map[string]string{"codeId": s.Code, "environmentId": environment, "computeId": s.Compute} {
		if v != "" {
			props[k] = v
		}
	}
	if env["BERTH_IMAGE_PROGRAM"] != "" {
		props["command"] = imageCommand
	}
	var err error
	if r.Job, err = json.Marshal(props); err != nil {
		return nil, err
	}
	h := sha256.Sum256(r.Job)
	r.ID = hex.EncodeToString(h[:6])
	return r, nil
}

// server adds what a replica is told of a server of the user's own, or of when our worker rests.
func (s Spec) server(tx *store.Tx, ws berth.Workspace, r *berth.Revision, env map[string]berth.Scalar, mlflow bool) error {
	if s.Code != "" || s.Command == "" && mlflow {
		s.Scale.rest(env)
		return nil
	}
	i, err := FindInference(tx, ws, s.Environment)
	if err != nil {
		return err
	}
	for name, value := range s.serverEnv(i) {
		if value != "" {
			env[name] = berth.Scalar(value)
		}
	}
	if i != nil {
		r.Score = i.Score
	}
	return nil
}

// compute is where a job of a replica goes.
func (o *Options) compute(tx *store.Tx, ws berth.Workspace, user string, admin bool, props json.RawMessage) (string, error) {
	var v berth.CommandJob
	if err := json.Unmarshal(props, &v); err != nil {
		return "", err
	}
	return Place(target.Chooser{Tx: tx, Workspace: ws, User: user, Admin: admin, Location: o.Location, NoLocal: o.NoLocal}, v.ComputeID)
}

// Place is where replicas run that are to run on a compute: the server's own machine, a cluster
// whose nodes are on it, or an attached compute whose driver reaches the ports of tasks.
func Place(c target.Chooser, compute string) (string, error) {
	c.Size = func(string, bool) (berth.Size, error) {
		return berth.Size{}, berth.Errorf(berth.Unsupported, "this server runs nothing on its own machine: name a compute in the property %s of the deployment", ComputeProperty)
	}
	name, err := c.Of(berth.CommandJob{ComputeID: compute})
	if err != nil || berth.IsLocal(name) {
		return name, err
	}
	d, err := c.Tx.Get(c.Workspace.Key(), "computes", name, "")
	if err != nil {
		return "", err
	}
	spec, err := berth.ReadPool(d.Body)
	if err != nil {
		return "", err
	}
	st, err := target.State(d)
	if err != nil {
		return "", err
	}
	switch {
	case spec.Provider != "":
		return "", berth.Errorf(berth.Unsupported, "replicas cannot run on cluster %s, whose nodes are on %s: name %s itself", name, spec.Provider, spec.Provider)
	case st.Attached.Unasked() && spec.Attached():
		return "", berth.Errorf(berth.Unavailable, "compute %s has not been connected yet, so it is not known whether replicas can run there", name)
	case spec.Attached() && st.Attached.Dials:
	case !spec.Cluster():
		return "", berth.Errorf(berth.Unsupported, "replicas cannot run on compute %s, which is of type %s: name local, a cluster of this server, a Kubernetes cluster or a machine that is attached", name, spec.ComputeType)
	}
	return name, nil
}

// TokenName is what a token for an endpoint is for: the endpoint itself, not another that gets its
// name later.
func TokenName(d *store.Doc) string {
	return d.Workspace + "/" + strings.ToLower(d.Name) + "#" + strconv.FormatInt(d.ID, 10)
}

// maxReplicas is how many replicas a user may have on the server's own machine, where they take no
// slots.
const maxReplicas = 32

// room refuses another replica on the server's own machine to a user who has enough of them.
func room(tx *store.Tx, user string) error {
	workspaces, err := tx.All(store.Query{Kind: "workspaces", NoBody: true})
	if err != nil {
		return err
	}
	has := 0
	for _, w := range workspaces {
		jobs, err := replicaJobs(tx, w.Name)
		if err != nil {
			return err
		}
		for _, j := range jobs {
			if j.doc.CreatedBy == user && berth.IsLocal(j.compute) {
				has++
			}
		}
	}
	if has >= maxReplicas {
		return berth.Errorf(berth.Limit, "%s has %d replicas on this machine already, and a user may have %d: stop some, or name a cluster in the property %s", user, has, maxReplicas, ComputeProperty)
	}
	return nil
}
