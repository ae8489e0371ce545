package group

import "testing"

// TestHere is about a daemon that is told of an agent: the one of its own node.
func TestHere(t *testing.T) {
	own, err := self()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`orted -mca plm_rsh_agent "/proc/4194399/exe _group agent" -x 1`: `orted -mca plm_rsh_agent "` + own + ` _group agent" -x 1`,
		"orted": "orted",
	} {
		if got, err := here(message{Text: text, Self: "/proc/4194399/exe"}); got != want || err != nil {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	if got, err := here(message{Text: "a b"}); got != "a b" || err != nil {
		t.Errorf("without a program: %q, %v", got, err)
	}
}
