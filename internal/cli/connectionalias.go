package cli

import "reflect"

// pair makes a connection that is to be changed fit for a file, in which its key and its metadata
// have two names each: `api_key` is `credentials.key`, and `tags` is `metadata`. What it returns is
// called after the change, and has both names say what one of them was changed to.
func pair(n noun, m map[string]any) (settle func()) {
	if n.word != "connection" {
		return func() {}
	}
	var key any
	if creds, _ := m["credentials"].(map[string]any); creds["type"] == "api_key" && creds["key"] != nil {
		key = creds["key"]
		m["api_key"] = key
	}
	meta, _ := m["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	m["metadata"], m["tags"] = meta, meta // one map: a change of an entry is a change of both
	return func() {
		if creds, _ := m["credentials"].(map[string]any); key != nil && m["api_key"] == key && creds["key"] != nil {
			m["api_key"] = creds["key"]
		}
		if tags, ok := m["tags"].(map[string]any); ok && reflect.ValueOf(tags).Pointer() != reflect.ValueOf(meta).Pointer() {
			m["metadata"] = tags // all of them were replaced
		}
		delete(m, "tags")
	}
}
