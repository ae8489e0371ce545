package slurm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEnvironmentOfJobs: sbatch gets a few variables and the job all of those; the server's others
// are its own.
func TestEnvironmentOfJobs(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sbatch"), []byte("#!/bin/sh\ncat > /dev/null\nenv > "+dir+"/env\necho \"$@\" > "+dir+"/args\necho 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("BERTH_SECRET", "hidden")
	t.Setenv("SLURM_CONF", "/etc/here.conf")
	if number, err := (commands{}).submit(t.Context(), "name", work{script: []byte("#!/bin/sh\n"), nodes: 1}, 1); err != nil || number != "7" {
		t.Fatal(number, err)
	}
	env, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil || strings.Contains(string(env), "hidden") || !strings.Contains(string(env), "SLURM_CONF=/etc/here.conf\n") {
		t.Errorf("%v\n%s", err, env)
	}
	args, err := os.ReadFile(filepath.Join(dir, "args"))
	if err != nil || !strings.Contains(string(args), "--export=ALL") {
		t.Errorf("a choice of variables would run a login shell on every node: %s %v", args, err)
	}
}
