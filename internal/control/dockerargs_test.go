package control_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/berthml/berth"
)

// TestDockerArgs: options of containers reach the runner in each of the forms that clients send
// them in.
func TestDockerArgs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 4)
		for name, resources := range map[string]object{
			"text":   {"dockerArgs": "--ipc=host --cap-add SYS_PTRACE"},
			"list":   {"dockerArgs": []string{"--ipc=host", "--cap-add", "SYS_PTRACE"}},
			"member": {"dockerArgsList": []string{"--ipc=host", "--cap-add", "SYS_PTRACE"}}, // azure-ai-ml's form of a YAML list
		} {
			if why := p.offer(name, object{"jobType": "Command", "command": "forever", "resources": resources}); why != "" {
				t.Fatal(why)
			}
			p.until(name, berth.Running)
			l, _ := p.driver.Launch(p.task(name))
			if want := []string{"--ipc=host", "--cap-add", "SYS_PTRACE"}; !slices.Equal(l.DockerArgs, want) {
				t.Errorf("%s: %q", name, l.DockerArgs)
			}
		}
	})
}
