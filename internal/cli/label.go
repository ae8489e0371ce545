package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"sync"

	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/ordered"
)

// labelled is a reference by a label: azureml:NAME@LABEL.
var labelled = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^azureml:([^:@/]+)@([^:@/]+)$`) })

// resolveLabels puts versions in the place of labels in a document, as Azure's own clients do: what
// a job ran with is said for good.
func resolveLabels(ctx context.Context, c *client.Client, body json.RawMessage) (json.RawMessage, error) {
	if !bytes.Contains(body, []byte("@")) {
		return body, nil
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var doc any
	if err := dec.Decode(&doc); err != nil {
		return nil, err
	}
	ids := map[string]string{}
	find := func(collection, ref string) (string, error) {
		m := labelled().FindStringSubmatch(ref)
		if collection == "environments" && strings.HasPrefix(m[1], "AzureML-") {
			return "", nil // those that are always there are left to the service
		}
		key := collection + "/" + m[1] + "@" + m[2]
		if ids[key] == "" {
			d, err := c.Get(ctx, collection, m[1], "labels", m[2])
			if err != nil {
				return "", noLabel{err}
			}
			ids[key] = d.ID()
		}
		return ids[key], nil
	}
	if err := settleIn(doc, find); err != nil || len(ids) == 0 {
		return body, err
	}
	return ordered.Marshal(doc, body)
}

// settleIn goes through a document; find is the id of what a reference means.
func settleIn(v any, find func(collection, ref string) (string, error)) error {
	switch x := v.(type) {
	case []any:
		for _, e := range x {
			if err := settleIn(e, find); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, k := range keys(x) {
			ref, _ := x[k].(string)
			if !labelled().MatchString(ref) {
				if err := settleIn(x[k], find); err != nil {
					return err
				}
				continue
			}
			collection, prefix := referred(x, k)
			if collection == "" {
				continue
			}
			id, err := find(collection, ref)
			if err != nil {
				return err
			}
			if id != "" {
				x[k] = prefix + id
			}
		}
	}
	return nil
}

// referred is the collection that a member of an object refers to, "" for none, and what stands
// before the id there.
func referred(m map[string]any, key string) (collection, prefix string) {
	switch key {
	case "environmentId":
		return "environments", ""
	case "environment": // of a component's specification, which is written as in a file
		return "environments", "azureml:"
	case "componentId":
		return "components", ""
	case "component":
		return "components", "azureml:"
	case "uri", "path":
		for _, of := range []string{"jobInputType", "job_input_type", "type"} {
			if kind, _ := m[of].(string); strings.HasSuffix(kind, "_model") {
				return "models", ""
			} else if kind != "" {
				return "data", ""
			}
		}
	}
	return "", ""
}
