package attack

import (
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// TestAddressOfTheServer: a runner reaches the server's storage over the owner's socket. A job of a
// user whose input or output is another address of the server gets nothing that way which the user
// could not have.
func TestAddressOfTheServer(t *testing.T) {
	s := world.Start(t)
	bob := person(t, s, client(t, s), "bob")
	job := func(name string, props map[string]any) string {
		props["jobType"] = "Command"
		bob.must(201, "PUT", bob.ws()+"/jobs/"+name, map[string]any{"properties": props})
		out, _ := s.Command("job", "stream", "-n", name).CombinedOutput()
		return string(out)
	}
	out := job("reads", map[string]any{
		"command": "cat ${{inputs.i}}", "inputs": map[string]any{"i": map[string]any{"jobInputType": "uri_file", "mode": "Download", "uri": s.URL + "/tokens"}},
	})
	if strings.Contains(out, `"role"`) {
		t.Errorf("a job of a user has read the list of tokens:\n%s", out)
	}
	made := `{"properties":{"jobType":"Command","command":"true"}}`
	job("writes", map[string]any{
		"command": "echo '" + made + "' > ${{outputs.o}}",
		"outputs": map[string]any{"o": map[string]any{"jobOutputType": "uri_file", "uri": s.URL + bob.ws() + "/jobs/forged"}},
	})
	if status, got := bob.do("GET", bob.ws()+"/jobs/forged", nil); status != 404 {
		t.Errorf("a job of a user has submitted a job as the server's owner: %d %v", status, got["systemData"])
	}
}
