package berth_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
)

func TestParseRef(t *testing.T) {
	ws := berth.Workspace{Subscription: "s", Group: "g", Name: "w"}
	for text, want := range map[string]berth.Ref{
		"azureml:e:1":                          {Collection: "environments", Name: "e", Version: "1"},
		"azureml:e:1:2":                        {Collection: "environments", Name: "e", Version: "1:2"},
		"azureml:e@latest":                     {Collection: "environments", Name: "e", Label: "latest"},
		"e":                                    {Collection: "environments", Name: "e"},
		ws.ID() + "/environments/e/versions/3": {Workspace: ws, Collection: "environments", Name: "e", Version: "3"},
		"azureml:" + ws.ID() + "/environments/e/versions/3":    {Workspace: ws, Collection: "environments", Name: "e", Version: "3"},
		ws.ID() + "/computes/azureml:k8s":                      {Workspace: ws, Collection: "computes", Name: "k8s"},
		"azureml://registries/r/environments/e/versions/4":     {Registry: "r", Collection: "environments", Name: "e", Version: "4"},
		"azureml://registries/r/environments/e/labels/latest":  {Registry: "r", Collection: "environments", Name: "e", Label: "latest"},
		"azureml://locations/l/workspaces/w/data/d/versions/1": {Collection: "data", Name: "d", Version: "1"},
	} {
		got, err := berth.ParseRef(text, "environments")
		if err != nil || got != want {
			t.Errorf("ParseRef(%q) = %+v, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "azureml:", "/subscriptions/s", ws.ID() + "/jobs/a/b/c/d", "azureml://registries/r"} {
		if _, err := berth.ParseRef(bad, "data"); berth.CodeOf(err) != berth.Invalid {
			t.Errorf("ParseRef(%q): %v", bad, err)
		}
	}
}

func TestCheckName(t *testing.T) {
	for _, ok := range []string{"a", "A.b-c_1", strings.Repeat("x", 255)} {
		if err := berth.CheckName("job", ok); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	for _, bad := range []string{"", ".", "..", "a/b", "../x", "a..b", "a b", "-a", "a\x00", "é", strings.Repeat("x", 256)} {
		if err := berth.CheckName("job", bad); berth.CodeOf(err) != berth.Invalid {
			t.Errorf("%q was allowed", bad)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "PT1H30M": 90 * time.Minute, "P1D": 24 * time.Hour, "PT0.5S": 500 * time.Millisecond, "P1DT1S": 86401 * time.Second} {
		if got, err := berth.ParseDuration(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, bad := range []string{"P", "PT", "1h", "PT1X", "-PT1S", "P99999999999999D"} {
		if _, err := berth.ParseDuration(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestExpand(t *testing.T) {
	value := func(where, name string) (string, error) {
		if where != "inputs" {
			return "", errors.New("no")
		}
		return "<" + name + "${{inputs.x}}>", nil
	}
	got, err := berth.Expand("a ${{inputs.b}} ${{ inputs.c.d }}$x", value)
	if err != nil || got != "a <b${{inputs.x}}> <c.d${{inputs.x}}>$x" {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{"${{", "${{}}", "${{inputs}}", "${{inputs.}}", "${{in puts.x}}", "${{outputs.x}}"} {
		if _, err := berth.Expand(bad, value); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func FuzzExpand(f *testing.F) {
	f.Add("a ${{inputs.b}} ${{ }} ${{${{inputs.a}}")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := berth.Expand(text, func(_, _ string) (string, error) { return "", nil })
		if err == nil && len(got) > len(text) {
			t.Errorf("%q grew to %q", text, got)
		}
	})
}

func TestCodes(t *testing.T) {
	err := berth.Errorf(berth.NotFound, "reading: %w", errors.New("gone"))
	if berth.CodeOf(err) != berth.NotFound || berth.NotFound.HTTPStatus() != 404 || err.WireCode() != "ResourceNotFound" || err.Error() != "reading: gone" {
		t.Errorf("%v", err)
	}
	for _, c := range []berth.Code{berth.Invalid, berth.NotFound, berth.Conflict, berth.Precondition, berth.Denied, berth.Gone, berth.Unavailable, berth.Internal} {
		if got := berth.CodeOfHTTP(c.HTTPStatus()); got != c {
			t.Errorf("%s comes back as %s", c, got)
		}
	}
}
