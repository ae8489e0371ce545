package spec

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
)

// Render prints what the file at path becomes: an array of {"type","name","version","body"}, the
// thing itself last. A local path is named by itself, local:/path, where the address of its upload
// would stand.
func Render(w io.Writer, path string, o Options) error {
	if wd, err := os.Getwd(); err == nil && o.Experiment == "" {
		o.Experiment = filepath.Base(wd)
	}
	r, err := Load(path, o)
	if err != nil {
		return err
	}
	type document struct {
		Type    string          `json:"type"`
		Parent  string          `json:"parent,omitempty"`
		Name    string          `json:"name,omitempty"`
		Version string          `json:"version,omitempty"`
		Body    json.RawMessage `json:"body"`
	}
	var docs []document
	for _, res := range r.Resources {
		local := map[string]string{}
		for _, u := range res.Uploads {
			local[u.Placeholder] = "local:" + u.Path
		}
		body, err := res.Fill(local)
		if err != nil {
			return err
		}
		if res.Version == "" && firstVersion.get()[res.Type] {
			res.Version = "1" // what a server without the asset would answer
		}
		docs = append(docs, document{res.Type, res.Parent, res.Name, res.Version, body})
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(docs)
}

// firstVersion are the collections whose versions count from 1.
var firstVersion = lazy[map[string]bool]{make: func() map[string]bool {
	return map[string]bool{"environments": true, "data": true, "models": true}
}}

// Fill is the body with every placeholder that is a key of uris replaced by its value. Inside a
// component the id of code is written with azureml: before it.
func (r Resource) Fill(uris map[string]string) (json.RawMessage, error) {
	if len(uris) == 0 {
		return r.Body, nil
	}
	v, err := parse(r.Body)
	if err != nil {
		return nil, err
	}
	return encode(fill(v, uris))
}

func fill(v any, uris map[string]string) any {
	switch x := v.(type) {
	case string:
		if uri, ok := uris[x]; ok {
			return uri
		}
		if len(x) > len("azureml:") {
			if uri, ok := uris[x[len("azureml:"):]]; ok {
				return "azureml:" + uri
			}
		}
	case []any:
		for i := range x {
			x[i] = fill(x[i], uris)
		}
	case *dict:
		for k := range x.tree {
			x.tree[k] = fill(x.tree[k], uris)
		}
	}
	return v
}
