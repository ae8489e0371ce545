package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berthml/berth/internal/cli"
)

// The test binary is berth itself: command line, server and runner, and az where it is called so.
func TestMain(m *testing.M) {
	program := func() { os.Exit(cli.Main(os.Args)) }
	testscript.Main(m, map[string]func(){"berth": program, "az": program})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"tty": tty},
		Setup:               setup,
	})
}

// setup gives every script a home of its own, with a path short enough for a socket, and stops its
// server at the end.
func setup(env *testscript.Env) error {
	home, err := os.MkdirTemp("", "bh")
	if err != nil {
		return err
	}
	home2 := home + "2"
	env.Setenv("BERTH_HOME", home)
	env.Setenv("HOME2", home2)
	env.Setenv("HOME", filepath.Join(env.WorkDir, "user"))
	env.Setenv("ESC", "\x1b")
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		return err
	}
	env.Setenv("EXAMPLES", examples)
	env.Defer(func() {
		for _, h := range []string{home, home2} {
			cmd := exec.Command("berth", "down", "--home", h)
			cmd.Env = append(os.Environ(), "BERTH_URL=")
			cmd.Run()       // it may not run
			os.RemoveAll(h) // a temporary folder
		}
	})
	return nil
}
