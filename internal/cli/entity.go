package cli

import (
	"encoding/json"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/spec"
)

// entity is a document in the form `az ml … show` prints. The container of an asset is shown with its latest version, and what
// spec knows no form of with its properties under snake_case names.
func entity(n noun, d client.Document) map[string]any {
	collection := n.collection
	if collection == "" {
		collection = "workspaces"
	}
	ref, err := berth.ParseRef(d.ID(), n.collection)
	container := err == nil && n.versioned && ref.Version == ""
	if !container {
		if raw, err := json.Marshal(d); err == nil {
			if out, err := spec.Entity(collection, raw); err == nil {
				complete(n, d, out)
				return out
			}
		}
	}
	out := map[string]any{"id": d.ID(), "name": d.Name()}
	for k, v := range d.Properties() {
		switch {
		case v == nil, k == "isArchived", k == "nextVersion", k == "provisioningState" && container:
		case k == "dataType":
			out["type"] = v
		default:
			out[snake(k)] = v
		}
	}
	if sys, ok := d["systemData"].(map[string]any); ok {
		shown := map[string]any{}
		for k, v := range sys {
			shown[snake(k)] = v
		}
		out["creation_context"] = shown
	}
	return out
}

// complete adds what az shows although no file says it.
func complete(n noun, d client.Document, out map[string]any) {
	switch n.word {
	case "workspace":
		out["resource_group"] = segment(d.ID(), 3)
	case "data", "model":
		if uri := d.Properties()[n.word+"Uri"]; uri != nil && out["path"] == nil {
			out["path"] = uri
		}
	}
}

// segment is the i-th part of an id.
func segment(id string, i int) string {
	if p := strings.Split(strings.Trim(id, "/"), "/"); i < len(p) {
		return p[i]
	}
	return ""
}

// snake is a camelCase name in snake_case.
func snake(s string) string {
	var b strings.Builder
	for i, r := range s {
		if r >= 'A' && r <= 'Z' {
			lower := i+1 < len(s) && s[i+1] >= 'a' && s[i+1] <= 'z'
			if i > 0 && (lower || s[i-1] >= 'a' && s[i-1] <= 'z') {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}
