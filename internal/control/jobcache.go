package control

import (
	"bytes"
	"cmp"
	"encoding/json"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/store"
)

// jobView is a decoded job document.
type jobView struct {
	body, own json.RawMessage // what it was decoded from
	props     json.RawMessage
	kind      kind.Kind
	composite kind.Composite // of a job with children; else nil
	pipeline  bool           // it is one
	puller    kind.Puller    // of a job with mini-batches; else nil
	kindErr   error          // why there is no kind
	state     berth.JobState
}

// jobCache holds decoded job documents by the bytes they were decoded from, so a change of a
// document needs no invalidation.
type jobCache map[jobKey]jobView

// maxCachedJobs is how many are kept.
const maxCachedJobs = 1024

// decode returns a job's document decoded. One whose state cannot be decoded has an empty state and
// a kindErr.
func (s jobCache) decode(k jobKey, d *store.Doc, kinds func(string) (kind.Kind, error)) jobView {
	v, ok := s[k]
	if ok && bytes.Equal(v.own, d.Own) && bytes.Equal(v.body, d.Body) {
		return v
	}
	if !ok || !bytes.Equal(v.body, d.Body) {
		v = jobView{body: d.Body}
		v.props, v.kind, v.kindErr = kindOf(d.Body, kinds)
		v.composite, v.pipeline = v.kind.(kind.Composite)
		v.puller, _ = v.kind.(kind.Puller)
	}
	var err error
	if v.state, err = job.State(d); err != nil {
		v.state, v.kindErr = berth.JobState{}, cmp.Or(v.kindErr, err)
	}
	v.own = d.Own
	return v
}

// kindOf is a job's properties and what kind of job they make.
func kindOf(body json.RawMessage, kinds func(string) (kind.Kind, error)) (json.RawMessage, kind.Kind, error) {
	var v struct {
		Properties json.RawMessage `json:"properties"`
	}
	_ = json.Unmarshal(body, &v) // what is wrong shows below
	var props struct {
		JobType string `json:"jobType"`
	}
	if err := json.Unmarshal(v.Properties, &props); err != nil {
		return v.Properties, nil, err
	}
	k, err := kinds(props.JobType)
	return v.Properties, k, err
}

// put remembers what a job's document says.
func (s jobCache) put(k jobKey, v jobView) {
	if len(s) >= maxCachedJobs {
		clear(s)
	}
	s[k] = v
}
