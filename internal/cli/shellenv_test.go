package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestScriptPackages reads the head of scripts (PEP 723).
func TestScriptPackages(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct{ text, want, err string }{
		"whole.py": {
			"#!/usr/bin/env python\n# /// script\n# requires-python = \">=3.11,<3.14\"\n# dependencies = [\n#   \"requests<3\", # why\n#   'rich',\n# ]\n# ///\nimport rich\n",
			"dependencies:\n- \"python>=3.11,<3.14\"\n- pip\n- pip:\n  - \"requests<3\"\n  - \"rich\"\n", "",
		},
		"line.py":   {"# /// script\n# dependencies = [\"a[x]==1\"]\n# ///\n", "dependencies:\n- \"python\"\n- pip\n- pip:\n  - \"a[x]==1\"\n", ""},
		"bare.py":   {"# /// script\n# ///\n", "dependencies:\n- \"python\"\n- pip\n", ""},
		"none.py":   {"import rich\n", "", ""},
		"open.py":   {"# /// script\n# dependencies = [\"a\"]\nimport a\n", "", ""},
		"word.py":   {"# /// script\n# dependencies = \"a\"\n# ///\n", "", "word.py: its head: line 1 (last key \"dependencies\"): it must be a list, not a string"},
		"number.py": {"# /// script\n# dependencies = [1]\n# ///\n", "", "it must be a string, not a number"},
		"quote.py":  {"# /// script\n# dependencies = [\"a\n# ]\n# ///\n", "", "strings cannot contain newlines"},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(tt.text), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, command := range [][]string{{"python3", name, "--x"}, {"/usr/bin/python3.12 " + name + " --x"}} {
			_, got, err := scriptPackages(command, dir)
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %q %v", name, got, err)
			}
		}
	}
	for _, command := range [][]string{{"sh", "whole.py"}, {"python", "missing.py"}, {"python", "-m", "whole"}, {"python"}} {
		if _, got, err := scriptPackages(command, dir); got != "" || err != nil {
			t.Errorf("%s: %q %v", command, got, err)
		}
	}
}

// TestActiveEnvironmentCaptured reads the packages of a real virtual environment: one from an
// index, one that is only on this machine.
func TestActiveEnvironmentCaptured(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	dir := filepath.Join(t.TempDir(), "v")
	if out, err := exec.Command(python, "-m", "venv", "--without-pip", dir).CombinedOutput(); err != nil {
		t.Skipf("python3 makes no virtual environments: %s", out)
	}
	site, err := filepath.Glob(filepath.Join(dir, "lib", "python3*", "site-packages"))
	if err != nil || len(site) != 1 {
		t.Fatal(site, err)
	}
	for _, p := range []struct{ name, origin, installer string }{
		{"plain", "", "pip"},
		{"own", `{"url": "file:///home/me/own", "dir_info": {"editable": true}}`, "pip"},
		{"built", `{"url": "file:///croot/built"}`, "conda"},
	} {
		info := filepath.Join(site[0], p.name+"-1.2.dist-info")
		if err := os.MkdirAll(info, 0o755); err != nil {
			t.Fatal(err)
		}
		files := map[string]string{"METADATA": "Metadata-Version: 2.1\nName: " + p.name + "\nVersion: 1.2\n", "INSTALLER": p.installer + "\n"}
		if p.origin != "" {
			files["direct_url.json"] = p.origin
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(info, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("VIRTUAL_ENV", dir)
	e := activeEnvironment()
	if e == nil || e.String() != "the active virtual environment "+dir {
		t.Fatal(e)
	}
	conda, left, err := e.condaFile(t.Context())
	if err != nil || len(left) != 1 || left[0] != "own" {
		t.Error(left, err)
	}
	if !regexp.MustCompile(`^dependencies:\n- "python=3\.\d+"\n- pip\n- pip:\n  - "built==1.2"\n  - "plain==1.2"\n$`).MatchString(conda) {
		t.Errorf("%s", conda)
	}
	t.Setenv("VIRTUAL_ENV", filepath.Join(dir, "gone"))
	t.Setenv("CONDA_PREFIX", "")
	if e := activeEnvironment(); e != nil {
		t.Error(e)
	}
}
