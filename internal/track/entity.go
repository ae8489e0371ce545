package track

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// What is kept of a workspace's tracking, one document each, in the column for what Berth owns:
// writing it alone touches no index. Points of metrics are kept elsewhere, see package points.
const (
	kindExperiments = "mlflow/experiments"
	kindRuns        = "mlflow/runs"
	kindDatasets    = "mlflow/runs/datasets"
	kindLogged      = "mlflow/logged-models"
	kindRegistered  = locate.KindRegistered
	kindVersions    = "mlflow/registered-models/versions"
	kindCounters    = "mlflow/counters"
)

// Kinds are those of all documents of a workspace's tracking.
func Kinds() []string {
	return []string{kindExperiments, kindRuns, kindDatasets, kindLogged, kindRegistered, kindVersions, kindCounters}
}

// stored is what every entity has.
type stored struct {
	doc  *store.Doc // nil for what was never written
	size int        // of it as it was written, in bytes
}

func (s *stored) document() *stored { return s }

func (s *stored) rev() berth.Rev {
	if s.doc == nil {
		return 0
	}
	return s.doc.Rev
}

// An entity is one of the things below. Once it is in the index it does not change: a change makes
// another.
type entity interface {
	document() *stored
	// place says which document it is: its kind, name and version, a hash by which it can be found,
	// and its parent.
	place() (kind, name, version, hash, parent string)
	// pairs is how many parameters and tags it has.
	pairs() int
}

// Lifecycle stages.
const (
	active  = "active"
	deleted = "deleted"
)

type experiment struct {
	stored
	ID, Name, Location, Stage string
	Created, Updated          int64 // milliseconds
	Staged                    int   `json:",omitempty"` // how many times it was deleted or restored
	// Leaving says that it is being removed for good: it cannot be restored any more.
	Leaving bool `json:",omitempty"`
	Tags    map[string]string
}

func (e *experiment) place() (kind, name, version, hash, parent string) {
	return kindExperiments, e.ID, "", store.HashOfName(e.Name), ""
}

// A run is an MLflow run.
type run struct {
	stored
	origin
	imported
	ID, Experiment, Name, User, Status, Stage, URI string
	Start                                          int64
	End                                            *int64 `json:",omitempty"`
	Deleted                                        int64  `json:",omitempty"`
	// Staged is that of the experiment when Stage was last the run's own, see [run.follow].
	Staged int `json:",omitempty"`
	// Leaving says that a deleted run is being removed for good: it cannot be restored any more.
	Leaving      bool `json:",omitempty"`
	Params, Tags map[string]string
	Datasets     []datasetInput `json:",omitempty"`
	// Apart is how many bytes of texts of datasets are in documents of their own, see dataset.go.
	Apart        int           `json:",omitempty"`
	ModelInputs  []string      `json:",omitempty"`
	ModelOutputs []modelOutput `json:",omitempty"`
}

func (r *run) place() (kind, name, version, hash, parent string) {
	return kindRuns, r.ID, "", "", ""
}

type dataset struct {
	Name       string `json:"name"`
	Digest     string `json:"digest"`
	SourceType string `json:"source_type,omitempty"`
	Source     string `json:"source,omitempty"`
	Schema     string `json:"schema,omitempty"`
	Profile    string `json:"profile,omitempty"`
}

type datasetInput struct {
	Tags    []pair  `json:"tags,omitempty"`
	Dataset dataset `json:"dataset"`
	Apart   int     `json:"apart,omitempty"` // the number of the document with its texts, if they are long
}

type modelOutput struct {
	ID   string `json:"model_id"`
	Step int64  `json:"step"`
}

// A loggedModel is a model of MLflow 3, whose files a run wrote.
type loggedModel struct {
	stored
	origin
	imported
	ID, Experiment, Name, Type, Status, Message, Run, URI string
	Created, Updated                                      int64
	Deleted                                               bool
	Params, Tags                                          map[string]string
}

func (m *loggedModel) place() (kind, name, version, hash, parent string) {
	return kindLogged, m.ID, "", "", m.Experiment
}

// A registered model has versions. Its id is ours, so that it can be renamed.
type registered struct {
	stored
	locate.Registered
	ID, Description  string
	Created, Updated int64
	Tags             map[string]string
	Last             int    // the last version number given out
	Gaps             []gap  `json:",omitempty"` // numbers up to it that were not
	User             string `json:",omitempty"` // who made it
}

func (m *registered) place() (kind, name, version, hash, parent string) {
	return kindRegistered, m.ID, "", store.HashOfName(m.Name), ""
}

type version struct {
	stored
	Model                                              string // id of the registered model
	Number                                             int
	Source, URI, RunID, RunLink, Description, Stage    string
	Status, StatusMessage, User, ModelID, DeployStatus string
	Created, Updated                                   int64
	Tags                                               map[string]string
	// Asset says that the version is a model of the workspace too, and Container and Folder where
	// its files are if it was not MLflow that made it, see asset.go.
	Asset             bool   `json:",omitempty"`
	Container, Folder string `json:",omitempty"`
	// HeldIn and Held are the container and the path of the files of a version that MLflow
	// registered by an azureml URI, if they are in a container of the workspace.
	HeldIn, Held string `json:",omitempty"`
}

func (v *version) place() (kind, name, number, hash, parent string) {
	return kindVersions, v.Model, strconv.Itoa(v.Number), "", ""
}

// counters give out numbers.
type counters struct {
	stored
	Experiment int64
	// Marked says that all deleted things have the status, see markDeleted.
	Marked bool `json:",omitempty"`
}

func (c *counters) place() (kind, name, version, hash, parent string) {
	return kindCounters, "counters", "", "", ""
}

// decode reads an entity of a document.
func decode[T any, P interface {
	*T
	entity
}](d *store.Doc) (P, error) {
	v, err := store.State[T](d)
	if err != nil {
		return nil, berth.Errorf(berth.Internal, "%s %s of the tracking store cannot be read: %w", d.Kind, d.Name, err)
	}
	p := P(&v)
	bare := *d
	bare.Own = nil // the entity has it
	p.document().doc, p.document().size = &bare, len(d.Own)
	return p, nil
}

// maxEntity bounds an entity as it is written, in bytes: each change writes it whole, and everybody
// else's wait meanwhile. A batch with the most parameters and tags that MLflow allows fits.
const maxEntity = 2 << 20

// encode writes an entity; NaN never comes here.
func encode(e entity) (json.RawMessage, error) { return marshal(e) }

// marshal is json.Marshal without escapes for HTML, which make six bytes of one.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
