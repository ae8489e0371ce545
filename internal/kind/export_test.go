package kind

import (
	"encoding/json"

	"github.com/berthml/berth"
)

// Unfold is what a pipeline runs whose components are found by their ids.
func Unfold(ws berth.Workspace, name string, props json.RawMessage, component func(id string) (*Component, error)) ([]Unfolded, error) {
	u := &unfolder{workspace: ws, component: component}
	err := u.pipeline(name, "", props, nil, 0)
	return u.out, err
}
