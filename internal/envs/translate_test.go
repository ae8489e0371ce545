package envs_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
)

func conda(deps ...string) berth.LaunchEnv {
	return berth.LaunchEnv{Conda: "name: test\nchannels: [conda-forge]\ndependencies:\n  - " + strings.Join(deps, "\n  - ") + "\n"}
}

func TestCondaVersions(t *testing.T) {
	for spec, want := range map[string]string{
		"numpy":                           "numpy",
		"numpy=1.26":                      "numpy==1.26.*",
		"numpy=1.26.*":                    "numpy==1.26.*",
		"numpy==1.26.4":                   "numpy==1.26.4",
		"numpy==1.26.*":                   "numpy==1.26.*",
		"numpy!=1.26.*":                   "numpy!=1.26.*",
		"numpy=1.26.4=py310h1_0":          "numpy==1.26.4",
		"numpy 1.26.4":                    "numpy==1.26.4",
		"numpy 1.26.4 py310h1_0":          "numpy==1.26.4",
		"numpy 1.26*":                     "numpy==1.26.*",
		"numpy>=1.20":                     "numpy>=1.20",
		"numpy >=1.20, <2":                "numpy>=1.20,<2",
		"numpy~=1.20":                     "numpy~=1.20",
		"numpy=*":                         "numpy",
		"conda-forge::numpy=1.26":         "numpy==1.26.*",
		"numpy[version='>=1.20,<2']":      "numpy>=1.20,<2",
		"NumPy=1.26":                      "numpy==1.26.*",
		"scikit-learn=1.5":                "scikit-learn==1.5.*",
		"pytorch::pytorch=2.1":            "torch==2.1.*",
		"tensorflow-gpu=2.4":              "tensorflow==2.4.*",
		"py-xgboost":                      "xgboost",
		"matplotlib-base>=3.5":            "matplotlib>=3.5",
		"opencv":                          "opencv-python-headless",
		"ray-tune":                        "ray[tune]",
		"pip=21.2.4":                      "pip==21.2.4.*",
		"numpy  # because of the example": "numpy",
	} {
		got, err := envs.Translate(conda("\"" + spec + "\""))
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		if diff := cmp.Diff([]string{want}, got.Requirements); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", spec, diff)
		}
	}
	got, err := envs.Translate(conda("numpy=1.25|1.26"))
	if err != nil || len(got.Requirements) != 1 || len(got.Warnings) != 1 {
		t.Errorf("alternatives: %+v, %v", got, err)
	}
}

func TestCondaPython(t *testing.T) {
	for spec, want := range map[string]string{
		"python=3.8": "3.8", "python==3.8.5": "3.8.5", "python=3.8.5=h1_0": "3.8.5", "python 3.11.*": "3.11", "python": "",
		"python>=3.8,<3.12": "<3.12,>=3.8", "python=3": "3",
	} {
		got, err := envs.Translate(conda(spec))
		if err != nil || got.Python != want || len(got.Requirements) > 0 {
			t.Errorf("%s: %+v, %v, want %q", spec, got, err, want)
		}
	}
}

func TestCondaNotPython(t *testing.T) {
	t.Setenv("PATH", "")
	got, err := envs.Translate(conda("cudatoolkit=11.3", "mkl", "libgcc-ng", "openssl", "__glibc", "r-base=4.1", "r-ggplot2", "ffmpeg", "cuda-nvcc", "six"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"r-base", "r-ggplot2", "ffmpeg", "cuda-nvcc"}, got.Foreign); diff != "" {
		t.Errorf("foreign (-want +got)\n%s", diff)
	}
	if len(got.Warnings) != 4 || !strings.Contains(got.Warnings[0], "cudatoolkit was left out") {
		t.Errorf("warnings %q", got.Warnings)
	}
	if diff := cmp.Diff([]string{"six"}, got.Requirements); diff != "" {
		t.Errorf("requirements (-want +got)\n%s", diff)
	}
	c := open(t, t.TempDir(), envs.Options{DockerHost: "none"})
	_, err = c.Prepare(t.Context(), conda("r-base", "ffmpeg"), nil, nil)
	if berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), "r-base, ffmpeg are not Python packages") || !strings.Contains(err.Error(), "micromamba") {
		t.Errorf("Prepare: %v", err)
	}
	bin := t.TempDir()
	os.WriteFile(bin+"/ffmpeg", []byte("#!/bin/sh\n"), 0o755)
	t.Setenv("PATH", bin)
	got, err = envs.Translate(conda("ffmpeg"))
	if err != nil || len(got.Foreign) > 0 || len(got.Warnings) != 1 {
		t.Errorf("with the program on the node: %+v, %v", got, err)
	}
}

func TestRequirements(t *testing.T) {
	got, err := envs.Translate(berth.LaunchEnv{
		Conda: "dependencies: [python=3.10, {pip: [\"--extra-index-url https://user:secret@example.test/simple\", \"torch==2.1  # cpu\", -U, --prefer-binary]}]",
		Pip:   "# comment\n-i https://example.test/a\n--find-links=https://example.test/b\nnumpy>=1.2; python_version < '3.12'\npandas[excel]==2.0 \\\n  --hash=sha256:abc\n--pre\ngit+https://example.test/x.git#egg=x\nname @ https://example.test/n.whl\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(envs.Translation{
		Python:       "3.10",
		Requirements: []string{"torch==2.1", "numpy>=1.2; python_version < '3.12'", "pandas[excel]==2.0    --hash=sha256:abc", "git+https://example.test/x.git#egg=x", "name @ https://example.test/n.whl"},
		Options:      []string{"--extra-index-url https://****@example.test/simple", "--index-url https://example.test/a", "--find-links https://example.test/b", "--prerelease allow"},
		Hash:         got.Hash,
	}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestRefused(t *testing.T) {
	for line, part := range map[string]string{
		"-r more.txt":                "names another file",
		"-c constraints.txt":         "names another file",
		"-e .":                       "editable",
		"./wheels/x.whl":             "is a path",
		"x-1.0-py3-none-any.whl":     "is a path",
		"file:///tmp/x":              "is a path",
		"name @ file:///tmp/x":       "is a path",
		"../pkg":                     "is a path",
		"--find-links ./wheels":      "names a folder",
		"--global-option=build":      "not supported",
		"-f/somewhere":               "names a folder",
		"--index-url file:///simple": "names a folder",

		"x@file:///etc":                  "is a path",
		"x[a,b]@file:///etc":             "is a path",
		"x @ FILE:///etc":                "is a path",
		"x@/etc":                         "is a path",
		"x @ ../other":                   "is a path",
		"x @ ${HOME}/other":              "is a path",
		"x@git+file:///srv/repo":         "is a path",
		"git+file:///srv/repo":           "is a path",
		"FILE:///etc":                    "is a path",
		"file:/etc":                      "is a path",
		"/etc/x":                         "is a path",
		"x.zip":                          "is a path",
		"numpy\r-r /etc/passwd":          "control character",
		"--index-url /srv/simple":        "names a folder",
		"--extra-index-url ./simple":     "names a folder",
		"--find-links FILE:///srv":       "names a folder",
		"-i https://a.test -f /etc":      "more than one option",
		"-e file:///etc":                 "editable",
		"-r /etc/passwd":                 "names another file",
		"--requirement=/etc/passwd":      "names another file",
		"x @ https:///etc":               "is a path",
		"https:/etc":                     "is a path",
		"x @ file://localhost/etc ; a":   "is a path",
		"--find-links git+file:///srv/x": "names a folder",
	} {
		_, err := envs.Translate(berth.LaunchEnv{Pip: line})
		if berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, line := range []string{
		"x@https://example.test/x.whl", "x[a] @ git+https://example.test/x.git@main#egg=x", "git+ssh://git@example.test/x.git", "x @ git+git@example.test:o/x.git",
		"numpy==1.2 --hash=sha256:a/b", "numpy; python_version < '3'", "-i https://u:p@example.test/simple", "https://example.test/x.tar.gz",
	} {
		if _, err := envs.Translate(berth.LaunchEnv{Pip: line}); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, text := range []string{"channels: ['file:///srv/c']\ndependencies: [numpy]", "dependencies: [{pip: ['x@file:///etc']}]"} {
		if _, err := envs.Translate(berth.LaunchEnv{Conda: text}); berth.CodeOf(err) != berth.Invalid {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"dependencies: [numpy=>1.2]", "dependencies: [{conda: [x]}]", "dependencies: [[1]]", "dependencies: {a: b", "dependencies: [python=abc]", "dependencies: ['numpy 1.2 >=3']"} {
		if _, err := envs.Translate(berth.LaunchEnv{Conda: text}); berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), "conda file") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestHash(t *testing.T) {
	hash := func(e berth.LaunchEnv) string {
		t.Helper()
		got, err := envs.Translate(e)
		if err != nil {
			t.Fatal(err)
		}
		return got.Hash
	}
	base := hash(conda("python=3.10", "numpy=1.26", "pandas>=1,<2"))
	for name, same := range map[string]berth.LaunchEnv{
		"order":          conda("pandas <2,>=1", "numpy=1.26", "python=3.10"),
		"case":           conda("python=3.10", "NumPy=1.26.*", "Pandas >=1, <2"),
		"name":           {Name: "other", Conda: "name: x\ndependencies: [python=3.10, numpy=1.26, 'pandas>=1,<2']"},
		"comment":        {Conda: "# hello\ndependencies: [python=3.10, numpy=1.26, 'pandas>=1,<2']"},
		"pip spelling":   {Conda: "dependencies: [python=3.10]", Pip: "numpy==1.26.*\npandas<2,>=1"},
		"listed twice":   conda("python=3.10", "numpy=1.26", "numpy=1.26", "pandas>=1,<2"),
		"without engine": {Image: "base", Conda: "dependencies: [python=3.10, numpy=1.26, 'pandas>=1,<2']"},
	} {
		if hash(same) != base {
			t.Errorf("%s changes the hash", name)
		}
	}
	for name, other := range map[string]berth.LaunchEnv{
		"python":  conda("python=3.11", "numpy=1.26", "pandas>=1,<2"),
		"version": conda("python=3.10", "numpy=1.25", "pandas>=1,<2"),
		"more":    conda("python=3.10", "numpy=1.26", "pandas>=1,<2", "six"),
		"index":   {Conda: "dependencies: [python=3.10, numpy=1.26, 'pandas>=1,<2']", Pip: "--extra-index-url https://example.test"},
	} {
		if hash(other) == base {
			t.Errorf("%s does not change the hash", name)
		}
	}
}

// The names that jobs give are understood, whatever the form.
func TestCuratedNames(t *testing.T) {
	for name, want := range map[string]string{
		"azureml:AzureML-sklearn-1.0-ubuntu20.04-py38-cpu@latest":                            "3.8 scikit-learn~=1.0.0",
		"AzureML-sklearn-0.24-ubuntu18.04-py37-cpu:5":                                        "3.7 scikit-learn~=0.24.0",
		"azureml:sklearn-1.5@latest":                                                         "3.10 scikit-learn~=1.5.0",
		"azureml://registries/azureml/environments/sklearn-1.1/labels/latest":                "3.9 scikit-learn~=1.1.0",
		"azureml://registries/azureml/environments/sklearn-1.5/versions/33":                  "3.10 scikit-learn~=1.5.0",
		"azureml://registries/azureml/environments/AzureML-sklearn-1.0-ubuntu20.04-py38-cpu": "3.8 scikit-learn~=1.0.0",
		"azureml:lightgbm-3.3@latest":                                                        "3.10 lightgbm>=4.6.0",
		"AzureML-ACPT-pytorch-1.12-py39-cuda11.6-gpu:8":                                      "3.9 torch==1.12.1",
		"acpt-pytorch-2.8-cuda12.6":                                                          "3.10 torch==2.10.0",
		"AzureML-tensorflow-2.5-ubuntu20.04-py38-cuda11-gpu:27":                              "3.8 tensorflow~=2.5.0",
		"tensorflow-2.16-cuda12":                                                             "3.11 tensorflow[and-cuda]==2.16.2",
		"AzureML-Minimal:2":                                                                  "3.10 azureml-defaults",
		"azureml:responsibleai-ubuntu20.04-py38-cpu@latest":                                  "3.8 responsibleai",
		"azureml://registries/azureml/environments/mldesigner/labels/latest":                 "3.10 mldesigner",
	} {
		e, ok := envs.Curated(name)
		if !ok {
			t.Errorf("%s is not known", name)
			continue
		}
		got, err := envs.Translate(e)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if s := got.Python + " " + strings.Join(got.Requirements, " "); !strings.HasPrefix(s, got.Python+" pip ") || !strings.Contains(s, strings.SplitN(want, " ", 2)[1]) || got.Python != strings.Fields(want)[0] {
			t.Errorf("%s: %s, want %s", name, s, want)
		}
	}
	five, _ := envs.Curated("sklearn-1.5")
	for _, want := range []string{"pandas~=1.5.3", "azureml-mlflow", "azureml-defaults", "azureml-inference-server-http"} {
		if !strings.Contains(five.Conda, "- "+want+"\n") {
			t.Errorf("sklearn-1.5 has no %s:\n%s", want, five.Conda)
		}
	}
	for name, want := range map[string]string{"sklearn-1.6": "sklearn-1.5", "azureml:AzureML-sklern-1.0:4": "sklearn-1.0", "tensorflow-cuda12": "tensorflow-2.16-cuda12", "mine": ""} {
		if got := envs.NearestCurated(name); got != want {
			t.Errorf("nearest to %s: %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"", "mine", "azureml:mine:3", "sklearn", "AzureML-Designer", "none", "python"} {
		if e, ok := envs.Curated(name); ok {
			t.Errorf("%q is taken for %+v", name, e)
		}
	}
}

func FuzzTranslate(f *testing.F) {
	f.Add("dependencies:\n- python=3.8\n- pip:\n  - six==1.16.0\n", "numpy>=1\n-i https://example.test\n")
	f.Fuzz(func(t *testing.T, conda, pip string) {
		a, err := envs.Translate(berth.LaunchEnv{Conda: conda, Pip: pip})
		if err != nil {
			if berth.CodeOf(err) != berth.Invalid {
				t.Errorf("code %s of %v", berth.CodeOf(err), err)
			}
			return
		}
		if b, err := envs.Translate(berth.LaunchEnv{Conda: conda, Pip: pip}); err != nil || a.Hash != b.Hash {
			t.Errorf("not the same twice: %v", err)
		}
	})
}

func TestDockerArgs(t *testing.T) {
	var s envs.ContainerSpec
	left := s.Apply([]string{"--shm-size 2g --ipc=host", "-e", "A=b", "--ulimit=memlock=-1:-1", "--privileged", "-v", "/:/host", "--cap-add", "SYS_PTRACE", "--rm", "--shm-size=much"})
	want := envs.ContainerSpec{ShmSize: 2 << 30, IPC: "host", Env: []string{"A=b"}, Ulimits: []string{"memlock=-1:-1"}, CapAdd: []string{"SYS_PTRACE"}}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"--privileged", "-v /:/host", "--rm", "--shm-size=much"}, left); diff != "" {
		t.Errorf("left (-want +got)\n%s", diff)
	}
}
