package runner

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
)

// What a command installs is its own: environments are shared by all tasks of the node, and the
// machine's Python by everybody. Where folders can be mounted, an environment is the lower layer of
// an overlay; elsewhere, and for the machine's Python, the command gets a virtual environment of
// its own on top of it.

// privateDir, in the task's directory, has what the command changed in its environment.
const privateDir = "env"

// layer gives the task an environment of its own on top of env.
func (t *task) layer(env *envs.Env) error {
	return env.Layer(filepath.Join(t.o.Dir, privateDir))
}

// machine is the machine's own Python for the task alone. It is nil, which leaves the machine as it
// is, when there is no Python or the command has no use for one.
func (t *task) machine(ctx context.Context) *envs.Env {
	if t.o.Envs == nil || !mayInstall(t.l) {
		return nil
	}
	base := t.o.Envs.Machine(ctx, t.o.Base, t.l.Env, t.workdir())
	if base == nil {
		return nil
	}
	env, err := base.Layer(filepath.Join(t.o.Dir, privateDir))
	if err != nil {
		t.warn("what the command installs stays on the machine: " + err.Error())
		return nil
	}
	return env
}

// mayInstall says whether a command of a job may run Python. Of a command without code that names
// no program of the kind, no shell script and no path, it is known that it does not.
func mayInstall(l *berth.Launch) bool {
	if l.Workspace.Name == "" {
		return false // an agent of the server's own, not a job
	}
	if l.Code != "" {
		return true
	}
	for _, word := range []string{"py", "pip", "conda", "uv", "sh", "/"} {
		if strings.Contains(l.Command, word) {
			return true
		}
	}
	return false
}

// dropPrivate removes what an ended command changed in its environment.
func (t *task) dropPrivate() {
	if err := os.RemoveAll(filepath.Join(t.o.Dir, privateDir)); err != nil {
		t.o.Log.Warn("a private environment was not removed", "task", t.l.Task, "err", err)
	}
}
