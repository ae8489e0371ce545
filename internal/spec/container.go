package spec

// Container turns the document of an asset as a whole, without a version, into the form `az ml …
// list` prints. A document that Entity knows no form of can be shown by it too: its properties
// under snake_case names.
func Container(collection string, doc map[string]any) map[string]any {
	e := newEntity(doc)
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
	return plain(out).(map[string]any)
}
