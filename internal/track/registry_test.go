package track_test

import (
	"net/url"
	"testing"
)

// TestPromptsAreKept: a prompt is a registered model with a tag, which a search hides that does not
// ask for it.
func TestPromptsAreKept(t *testing.T) {
	s := start(t, t.TempDir())
	prompt := []obj{{"key": "mlflow.prompt.is_prompt", "value": "true"}}
	s.must("POST", "registered-models/create", obj{"name": "P", "tags": prompt})
	s.must("POST", "registered-models/create", obj{"name": "M"})
	s.must("POST", "model-versions/create", obj{"name": "P", "source": "dummy-source", "tags": append(prompt, obj{"key": "mlflow.prompt.text", "value": "Say {{what}}"})})
	if got := at(s.must("GET", "model-versions/get?name=P&version=1", nil), "model_version", "tags", 1, "value"); got != "Say {{what}}" {
		t.Errorf("its text is %v", got)
	}
	for filter, want := range map[string]string{"": "M", "tags.`mlflow.prompt.is_prompt` = 'true'": "P"} {
		got := s.must("GET", "registered-models/search?filter="+url.QueryEscape(filter), nil)
		if at(got, "registered_models", 0, "name") != want || at(got, "registered_models", 1) != nil {
			t.Errorf("%q: %v", filter, got)
		}
	}
}
