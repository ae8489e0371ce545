package store

import (
	"encoding/json"
	"fmt"
	"strings"
)

// State decodes what the server keeps beside the body of a document. A document that has none has
// the zero value. Jobs, computes and nodes have doors of their own, in packages job and target.
func State[T any](d *Doc) (v T, err error) {
	if len(d.Own) == 0 {
		return v, nil
	}
	if err := json.Unmarshal(d.Own, &v); err != nil {
		return v, fmt.Errorf("the state of %s %s cannot be read: %w", strings.TrimSuffix(d.Kind, "s"), d.Name, err)
	}
	return v, nil
}

// SetState replaces what State decodes. The document still has to be saved.
func SetState[T any](d *Doc, v T) (err error) {
	d.Own, err = json.Marshal(v)
	return err
}
