package cli

import (
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/spec"
)

// entity is a document in the form `az ml … show` prints.
func entity(n noun, d client.Document) map[string]any {
	collection := n.collection
	if collection == "" {
		collection = "workspaces"
	}
	if n.child != "" {
		collection += "/" + n.child
	}
	ref, err := berth.ParseRef(d.ID(), n.collection)
	if container := err == nil && n.versioned && ref.Version == ""; !container {
		if out, err := spec.Entity(collection, d.Members); err == nil {
			complete(n, d, out)
			return out
		}
	}
	return spec.Container(collection, d.Members)
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
