package envs_test

import (
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
)

// A version that is on conda's channels only becomes the nearest one of the index, and everybody
// who uses the environment is told so. What a conda program would have brought is there.
func TestCondaOnlyVersion(t *testing.T) {
	newIndex(t)
	c := open(t, t.TempDir(), envs.Options{DockerHost: "none", UV: sharedUV(t)})
	e := berth.LaunchEnv{Conda: "dependencies:\n- thing=1.2.7\n- other==2.0.1\n"}
	for range 2 {
		env, k := prepare(t, c, e)
		if got := python(t, env, "import thing, other, setuptools, wheel, pip; print(thing.__version__, other.__version__)"); got != "1.2.5 2.0" {
			t.Errorf("installed: %s", got)
		}
		said := strings.Join(k.warnings, "\n")
		for _, want := range []string{"conda package thing 1.2.7.* is not on the package index: the nearest release there, 1.2.5, was installed", "conda package other 2.0.1 is not"} {
			if !strings.Contains(said, want) {
				t.Errorf("warnings %q, want %s", k.warnings, want)
			}
		}
	}
	var k talk
	if _, err := c.Prepare(t.Context(), berth.LaunchEnv{Pip: "thing==1.2.7"}, k.say, k.warn); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("a requirements file means what it says: %v, %q", err, k.warnings)
	}
}

// TestConstraints: what a requirements file constrains is installed in that version where it is
// wanted, and not otherwise; two lists of constraints are two environments.
func TestConstraints(t *testing.T) {
	newIndex(t)
	c := open(t, t.TempDir(), envs.Options{DockerHost: "none", UV: sharedUV(t)})
	list := "name: requirements.txt\ndependencies: [python, pip, pip: [thing]]\n"
	env, _ := prepare(t, c, berth.LaunchEnv{Conda: list + "constraints: [thing<2, other==1.0]\n"})
	if got := python(t, env, "import thing, importlib.util as u; print(thing.__version__, u.find_spec('other'))"); got != "1.2.5 None" {
		t.Errorf("installed: %s", got)
	}
	with, _ := envs.Translate(berth.LaunchEnv{Conda: list + "constraints: [thing<2]\n"})
	without, err := envs.Translate(berth.LaunchEnv{Conda: list})
	if err != nil || with.Hash == without.Hash {
		t.Errorf("keys %s and %s, %v", with.Hash, without.Hash, err)
	}
	_, err = envs.Translate(berth.LaunchEnv{Conda: "name: requirements.txt\ndependencies: [pip: [--nonsense]]\n"})
	if err == nil || !strings.HasPrefix(err.Error(), "requirements.txt: option --nonsense") {
		t.Error(err)
	}
}

// An image whose packages are known does without a container engine, and says so.
func TestKnownImage(t *testing.T) {
	for image, want := range map[string]string{
		"python:3.9":            "3.9",
		"library/python:latest": "",
		"docker.io/library/python:3.12-slim@sha256:00":                                    "3.12",
		"mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04":                              "3.8 requests",
		"mcr.microsoft.com/azureml/openmpi4.1.0-cuda11.8-cudnn8-ubuntu22.04:20240101.v1":  "3.10 requests",
		"mcr.microsoft.com/azureml/curated/sklearn-1.5:33":                                "3.10 pandas~=1.5.3",
		"mcr.microsoft.com/azureml/minimal-ubuntu20.04-py38-cpu-inference:latest":         "3.8 azureml-inference-server-http",
		"mcr.microsoft.com/azureml/aifx/stable-ubuntu2004-cu116-py39-torch1121:biweekly1": "3.9 torch~=1.12.0",
		"pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime":                                   "3.11 torch==2.1.0",
	} {
		e, ok := envs.KnownImage(image)
		if !ok {
			t.Errorf("%s is not known", image)
			continue
		}
		got, err := envs.Translate(e)
		if err != nil {
			t.Errorf("%s: %v", image, err)
		}
		python, first, _ := strings.Cut(want, " ")
		if got.Python != python || first != "" && !strings.Contains(strings.Join(got.Requirements, " "), first) {
			t.Errorf("%s: Python %s, %q, want %s", image, got.Python, got.Requirements, want)
		}
	}
	for _, image := range []string{"", "ubuntu", "python-like:3.9", "me/python:3.9", "example.test/python:3.9", "mcr.microsoft.com/azureml/other:1"} {
		if e, ok := envs.KnownImage(image); ok {
			t.Errorf("%q is taken for %+v", image, e)
		}
	}

	newIndex(t)
	c := open(t, t.TempDir(), envs.Options{DockerHost: "none", UV: sharedUV(t)})
	env, k := prepare(t, c, berth.LaunchEnv{Image: "python:3"})
	if env.Dir == "" || len(k.warnings) != 1 || !strings.Contains(k.warnings[0], "its image python:3 was not used") || !strings.Contains(k.warnings[0], "packages of that image are known") {
		t.Errorf("environment %+v, %q", env.Dir, k.warnings)
	}
}
