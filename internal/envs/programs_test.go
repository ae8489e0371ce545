package envs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSharedPrograms: layers on the machine's Python share its scripts, which run on the
// interpreter of the layer they are called in. They are made again when somebody deletes them.
func TestSharedPrograms(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	exe, err := exec.Command(python, "-c", "import sys, os; print(getattr(sys, '_base_executable', sys.executable))").Output()
	if err != nil {
		t.Fatal(err)
	}
	version, err := exec.Command(python, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])").Output()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := &Base{exe: strings.TrimSpace(string(exe)), version: strings.TrimSpace(string(version)), system: true}
	body := "# -*- coding: utf-8 -*-\n\"\"\"Prints where it runs.\"\"\"\nfrom __future__ import annotations\nimport sys\nprint(sys.prefix, sys.argv[1:])\n"
	file := filepath.Join(t.TempDir(), "where")
	if err := os.WriteFile(file, []byte("#!/nowhere/python\n"+body), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"where", "pip"} {
		b.scripts = append(b.scripts, script{name: name, path: file, body: body, mode: 0o755})
	}
	b.shared = c.share(b)
	var dirs []string
	for round := range 3 {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
		e, err := b.Layer(filepath.Join(dir, "env"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "env", "bin", "where")); err == nil {
			t.Error("the layer has a copy of a shared program")
		}
		programs := e.PathPrefix[len(e.PathPrefix)-1]
		if _, err := os.Stat(filepath.Join(programs, "ls")); err == nil {
			t.Error("a program that somebody put among the others is still there")
		}
		for _, path := range []string{filepath.Join(programs, "where"), filepath.Join(dir, "env", "bin", "pip")} {
			cmd := exec.Command(path, "a b", "c")
			cmd.Env = append(os.Environ(), "PYTHONUSERBASE="+e.Vars["PYTHONUSERBASE"], pythonVar+"="+e.Vars[pythonVar])
			out, err := cmd.CombinedOutput()
			if want := filepath.Join(dir, "env") + " ['a b', 'c']\n"; err != nil || string(out) != want {
				t.Errorf("%s printed %q, %v; want %q", path, out, err, want)
			}
		}
		cmd := exec.Command(filepath.Join(programs, "where"))
		cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
		if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), dir) {
			t.Errorf("without the variable it printed %q, %v", out, err)
		}
		// A job may do these things; the next layer makes the programs again.
		if err := os.WriteFile(filepath.Join(programs, "where"), []byte("#!/bin/sh\necho evil\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(programs, "ls"), []byte("#!/bin/sh\necho evil\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if round == 1 {
			if err := os.RemoveAll(filepath.Dir(programs)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if dirs[0] == dirs[1] {
		t.Fatal("both layers are in one place")
	}
}

// TestProgramsOfOddPath: an interpreter whose path a shell would not read as it is gets its scripts
// in each layer.
func TestProgramsOfOddPath(t *testing.T) {
	c := &Cache{dir: t.TempDir()}
	b := &Base{exe: "/opt/$(touch x)/python3", scripts: []script{{name: "pip", path: "/opt/bin/pip"}}}
	if c.share(b) != nil {
		t.Error("shared")
	}
}
