package runner

import (
	"context"
	"os"
	"path/filepath"

	"github.com/berthml/berth"
)

// stage makes the task's directories and brings code and inputs there.
func (t *task) stage(ctx context.Context) error {
	if err := t.o.MakeDir(t.o.Dir); err != nil {
		return err
	}
	t.paths = map[string]string{}
	return nil
}

// MakeDir makes the directory of a task: the working directory wd in it, and outputs in that.
func MakeDir(dir string) error {
	wd := filepath.Join(dir, "wd")
	for _, d := range []string{dir, wd, filepath.Join(wd, "outputs")} {
		if err := os.Mkdir(d, 0o700); err != nil && !os.IsExist(err) {
			return err
		}
	}
	return nil
}

// spec is the command with its inputs and outputs filled in.
func (t *task) spec() (*Spec, error) {
	dir := t.workdir()
	env := finishEnviron(t.environ(), t.l.Env, t.l.Task)
	path, args := argv(t.l.Command, env, dir)
	return &Spec{Path: path, Args: args, Env: env, Dir: dir}, nil
}

func needsEnvironment(e berth.LaunchEnv) bool {
	return e.Image != "" || e.Conda != "" || e.Pip != "" || e.Build != ""
}

func (t *task) environment(ctx context.Context) (Env, error) {
	if t.o.Envs == nil {
		return nil, berth.Errorf(berth.Unsupported, "this runner prepares no environments")
	}
	return t.o.Envs.Prepare(ctx, t.l.Environment, func(string) {}, func(string) {})
}

func (t *task) hasUploads() bool { return false }

func (t *task) upload(ctx context.Context, exit *berth.Exit) {}
