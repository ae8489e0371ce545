package track

import (
	"cmp"
	"math"
	"slices"
)

// The limits of datasets, in characters.
const (
	maxDatasets       = 1000
	maxDatasetName    = 500
	maxDatasetDigest  = 36
	maxDatasetSchema  = 1048575
	maxDatasetSource  = 65535
	maxDatasetProfile = 16777215
	maxInputTagKey    = 255
	maxInputTagValue  = 500
)

// datasetOfParams reads one dataset input.
func datasetOfParams(m object) (datasetInput, error) {
	p := params{m: m}
	in := datasetInput{Tags: p.pairs("tags")}
	inner, _ := m["dataset"].(object)
	if inner == nil {
		return in, required("dataset")
	}
	d := params{m: inner}
	in.Dataset = dataset{
		Name: d.need("name"), Digest: d.need("digest"), SourceType: d.need("source_type"), Source: d.need("source"),
		Schema: d.text("schema"), Profile: d.text("profile"),
	}
	if p.err == nil {
		p.err = d.err
	}
	if p.err != nil {
		return in, p.err
	}
	for _, l := range []struct {
		what, text string
		most       int
	}{
		{"name", in.Dataset.Name, maxDatasetName},
		{"digest", in.Dataset.Digest, maxDatasetDigest},
		{"source_type", in.Dataset.SourceType, maxReference},
		{"source", in.Dataset.Source, maxDatasetSource},
		{"schema", in.Dataset.Schema, maxDatasetSchema},
		{"profile", in.Dataset.Profile, maxDatasetProfile},
	} {
		if err := checkLength(l.what, l.most, l.text); err != nil {
			return in, err
		}
	}
	for _, t := range in.Tags {
		if err := cmp.Or(checkLength("key", maxInputTagKey, t.Key), checkLength("value", maxInputTagValue, t.Value)); err != nil {
			return in, err
		}
	}
	return in, nil
}

func logInputs(c *call) (any, error) {
	id := c.runID()
	var inputs []datasetInput
	items := c.items("datasets")
	if len(items) > maxDatasets {
		c.fail(invalid("At most %d datasets can be logged at once. Got %d.", maxDatasets, len(items)))
	}
	for _, m := range items {
		in, err := datasetOfParams(m)
		if err != nil {
			c.fail(err)
		}
		inputs = append(inputs, in)
	}
	models := c.modelIDs("models")
	return empty, c.changeRun(id, func(x *change, r *run) error {
		if err := r.mustBeActive(); err != nil {
			return err
		}
		type key struct{ name, digest string }
		known := make(map[key]bool, len(r.Datasets))
		for _, d := range r.Datasets {
			known[key{d.Dataset.Name, d.Dataset.Digest}] = true
		}
		for _, in := range inputs {
			if k := (key{in.Dataset.Name, in.Dataset.Digest}); !known[k] {
				known[k] = true
				r.Datasets = append(r.Datasets, in)
			}
		}
		for _, m := range models {
			if !slices.Contains(r.ModelInputs, m.ID) {
				r.ModelInputs = append(r.ModelInputs, m.ID)
			}
		}
		return nil
	})
}

// maxModels is how many models are logged in one request.
const maxModels = 1000

// modelIDs reads a list of models with steps.
func (p *params) modelIDs(name string) []modelOutput {
	var out []modelOutput
	items := p.items(name)
	if len(items) > maxModels {
		p.fail(invalid("At most %d models can be logged at once. Got %d.", maxModels, len(items)))
	}
	for _, m := range items {
		q := params{m: m}
		o := modelOutput{ID: q.need("model_id"), Step: q.int("step", 0)}
		if err := cmp.Or(q.err, checkLength("model_id", maxReference, o.ID)); err != nil {
			p.fail(err)
		}
		out = append(out, o)
	}
	return out
}

func logOutputs(c *call) (any, error) {
	id, models := c.runID(), c.modelIDs("models")
	if !c.has("models") {
		c.fail(required("models"))
	}
	return empty, c.changeRun(id, func(x *change, r *run) error {
		if err := r.mustBeActive(); err != nil {
			return err
		}
		for _, m := range models {
			if !slices.Contains(r.ModelOutputs, m) {
				r.ModelOutputs = append(r.ModelOutputs, m)
			}
		}
		return nil
	})
}

// searchDatasets is a summary of the datasets of experiments.
func searchDatasets(c *call) (any, error) {
	const mostExperiments, most = 20, 1000
	ids := c.texts("experiment_ids")
	if err := c.done(); err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, invalid("SearchDatasets request must specify at least one experiment_id.")
	}
	if len(ids) > mostExperiments {
		return nil, invalid("SearchDatasets request cannot specify more than %d experiment_ids. Received %d experiment_ids.", mostExperiments, len(ids))
	}
	type summary struct {
		Experiment string `json:"experiment_id"`
		Name       string `json:"name"`
		Digest     string `json:"digest"`
		Context    string `json:"context,omitempty"`
	}
	var out []summary
	seen := map[summary]bool{}
	for _, r := range c.selectRuns(ids, &search{limit: math.MaxInt32}, func(string) bool { return true }) {
		for _, d := range r.Datasets {
			s := summary{Experiment: r.Experiment, Name: d.Dataset.Name, Digest: d.Dataset.Digest}
			for _, t := range d.Tags {
				if t.Key == tagContext {
					s.Context = t.Value
				}
			}
			if !seen[s] && len(out) < most {
				seen[s] = true
				out = append(out, s)
			}
		}
	}
	return paged("dataset_summaries", out, ""), nil
}
