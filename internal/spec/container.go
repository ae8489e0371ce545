package spec

import (
	"bytes"
	"encoding/json"

	"github.com/berthml/berth"
)

// Container turns the document of an asset as a whole, without a version, into the form `az ml … list` prints. A document that
// Entity knows no form of can be shown by it too: its properties under snake_case names.
func Container(collection string, doc json.RawMessage) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var root map[string]any
	if err := dec.Decode(&root); err != nil {
		return nil, berth.Errorf(berth.Invalid, "the document is not a JSON object: %w", err)
	}
	e := entity{root: tree(root)}
	e.base, _ = asTree(root["properties"])
	out := tree{}
	for k, v := range e.base {
		switch k {
		case "isArchived", "nextVersion", "provisioningState", "berth":
		case "dataType":
			out["type"] = v
		default:
			if v != nil {
				out[snake(k)] = v
			}
		}
	}
	out["name"] = e.name()
	if id, ok := e.root["id"].(string); ok && collection != "data" {
		out["id"] = id
	}
	if c := e.served("creation_context"); c != nil {
		out["creation_context"] = c
	}
	if collection == "components" {
		unlessEmpty(out, "properties")
	}
	e.present(collection, out)
	return out, nil
}
