package gateway

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// sdk is in the User-Agent of Azure's own clients.
const sdk = "azure-ai-ml"

// errorForAzure is the body of an error as Azure's clients can read it: they look for members and
// raise AttributeError where the body is JSON but not an object (1.35, November 2026). Others get
// what the model said.
func (x *exchange) errorForAzure(a *answer, body []byte) []byte {
	if a.status < http.StatusBadRequest || !strings.Contains(x.r.UserAgent(), sdk) || a.get("Content-Encoding") != "" {
		return body
	}
	var v any
	if json.Unmarshal(body, &v) != nil {
		return body // they show it as text
	}
	if _, ok := v.(map[string]any); ok {
		return body
	}
	text, ok := v.(string)
	if !ok {
		text = string(bytes.TrimSpace(body))
	}
	wrapped, err := json.Marshal(map[string]any{"error": map[string]string{"code": "ModelError", "message": text}, "message": text})
	if err != nil {
		return body
	}
	for i := range a.fields {
		switch a.fields[i].name {
		case "Content-Length":
			a.fields[i].value = strconv.Itoa(len(wrapped))
		case "Content-Type":
			a.fields[i].value = "application/json"
		}
	}
	return wrapped
}
