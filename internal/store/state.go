package store

import (
	"encoding/json"
	"fmt"
	"strings"
)

// State decodes the server's own state of a document. A document without one has the zero value.
// For jobs, computes and nodes use packages job and target.
func State[T any](d *Doc) (v T, err error) {
	if len(d.Own) == 0 {
		return v, nil
	}
	if err := json.Unmarshal(d.Own, &v); err != nil {
		return v, fmt.Errorf("the state of %s %s cannot be read: %w", strings.TrimSuffix(d.Kind, "s"), d.Name, err)
	}
	return v, nil
}

// SetState replaces the server's own state of a document, which must then be saved.
func SetState[T any](d *Doc, v T) (err error) {
	d.Own, err = json.Marshal(v)
	return err
}
