package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const uvLockText = `version = 1
requires-python = ">=3.12"

[[package]]
name = "colorama"
version = "0.4.6"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "click"
version = "8.1.7"
source = { registry = "https://pypi.org/simple" }
dependencies = [{ name = "colorama", marker = "sys_platform == 'win32'" }]

[[package]]
name = "mylib"
version = "0.1.0"
source = { directory = "libs/mylib" }
dependencies = [{ name = "click" }]

[[package]]
name = "numpy"
version = "1.26.4"
source = { registry = "https://pypi.org/simple" }
resolution-markers = ["python_full_version < '3.13'"]

[[package]]
name = "numpy"
version = "2.1.0"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "tool"
version = "2.0"
source = { git = "https://example.org/tool?rev=main#0123abc" }

[[package]]
name = "torch"
version = "2.4.0+cpu"
source = { registry = "https://download.pytorch.org/whl/cpu" }

[[package]]
name = "train"
version = "0.1.0"
source = { editable = "." }
dependencies = [
    { name = "numpy", version = "1.26.4", source = { registry = "https://pypi.org/simple" }, marker = "python_full_version < '3.13'" },
    { name = "numpy", version = "2.1.0", source = { registry = "https://pypi.org/simple" }, marker = "python_full_version >= '3.13'" },
    { name = "mylib" },
    { name = "tool" },
    { name = "torch" },
    { name = "uvicorn", extra = ["standard"] },
]

[package.dev-dependencies]
dev = [{ name = "tqdm" }]
docs = [{ name = "sphinx" }]

[[package]]
name = "sphinx"
version = "7.0"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "tqdm"
version = "4.66"
source = { registry = "https://pypi.org/simple" }
dependencies = [{ name = "colorama", marker = "sys_platform == 'win32'" }]

[[package]]
name = "uvicorn"
version = "0.30.0"
source = { registry = "https://pypi.org/simple" }
dependencies = [{ name = "click" }]

[package.optional-dependencies]
standard = [
    { name = "uvloop", marker = "sys_platform != 'win32' or platform_python_implementation == 'CPython'" },
    { name = "colorama", marker = "sys_platform == 'win32'" },
]

[[package]]
name = "uvloop"
version = "0.19.0"
source = { registry = "https://pypi.org/simple" }
`

const poetryMain = "[tool.poetry.dependencies]\npython = \"^3.10\"\nclick = \"^8.1\"\nlocal = {path = \"../local\"}\nextra = {version = \"1.0\", optional = true}\n"

// TestProjects reads lock files and pyproject.toml files of real tools' forms.
func TestProjects(t *testing.T) {
	for _, tt := range []struct {
		name           string
		files          map[string]string
		python, source string
		packages, left []string
	}{
		{
			"uv.lock",
			map[string]string{"uv.lock": uvLockText, "src/train/__init__.py": ""},
			">=3.12", "src",
			[]string{
				"colorama==0.4.6 ; sys_platform == 'win32'",
				"click==8.1.7",
				"numpy==1.26.4 ; python_full_version < '3.13'",
				"numpy==2.1.0 ; python_full_version >= '3.13'",
				"tool @ git+https://example.org/tool@0123abc",
				"--extra-index-url https://download.pytorch.org/whl/cpu",
				"torch==2.4.0+cpu",
				"tqdm==4.66",
				"uvicorn==0.30.0",
				"uvloop==0.19.0 ; sys_platform != 'win32' or platform_python_implementation == 'CPython'",
			},
			[]string{"mylib"},
		},
		{
			"poetry.lock",
			map[string]string{"pyproject.toml": poetryMain, "poetry.lock": `[[package]]
name = "click"
version = "8.1.7"
groups = ["main", "dev"]

[package.dependencies]
colorama = {version = "*", markers = "platform_system == \"Windows\""}

[[package]]
name = "colorama"
version = "0.4.6"
groups = ["main"]
markers = "platform_system == \"Windows\""

[[package]]
name = "pytest"
version = "8.0"
groups = ["dev"]

[metadata]
lock-version = "2.1"
python-versions = "^3.10"
`},
			">=3.10,<4", "",
			[]string{"click==8.1.7", `colorama==0.4.6 ; platform_system == "Windows"`},
			nil,
		},
		{
			"poetry.lock",
			map[string]string{"pyproject.toml": poetryMain, ".python-version": "3.11\n", "poetry.lock": `[[package]]
name = "click"
version = "8.1.7"

[package.dependencies]
Colorama = {version = "*", markers = "platform_system == \"Windows\""}

[[package]]
name = "colorama"
version = "0.4.6"

[[package]]
name = "pytest"
version = "8.0"

[package.dependencies]
colorama = "*"

[metadata]
lock-version = "2.0"
python-versions = "^3.10"
`},
			"=3.11", "",
			[]string{"click==8.1.7", `colorama==0.4.6 ; platform_system == "Windows"`},
			nil,
		},
		{
			"pylock.toml",
			map[string]string{"pylock.toml": `lock-version = "1.0"
requires-python = ">=3.11"
[[packages]]
name = "attrs"
version = "25.1.0"
marker = "python_version < '4'"
[[packages]]
name = "own"
[packages.directory]
path = "."
`},
			">=3.11", "",
			[]string{"attrs==25.1.0 ; python_version < '4'"},
			[]string{"own"},
		},
		{
			"pyproject.toml",
			map[string]string{"pyproject.toml": "[project]\nname = \"x\"\nrequires-python = \">=3.10\"\ndependencies = [\"rich>=13\", \"numpy; python_version < '3.14'\"]\n"},
			">=3.10", "",
			[]string{"rich>=13", "numpy; python_version < '3.14'"},
			nil,
		},
		{"pyproject.toml", map[string]string{"pyproject.toml": poetryMain}, ">=3.10,<4", "", []string{"click>=8.1,<9"}, []string{"local"}},
	} {
		dir := t.TempDir()
		for name, text := range tt.files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := projectFile(dir); got != filepath.Join(dir, tt.name) {
			t.Errorf("%s: the file is %q", tt.name, got)
		}
		p, err := readProject(filepath.Join(dir, tt.name))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if p.python != tt.python || p.source != tt.source || cmp.Diff(tt.packages, p.packages) != "" || cmp.Diff(tt.left, p.left) != "" {
			t.Errorf("%s: python %q, source %q, left %v (-want +got)\n%s", tt.name, p.python, p.source, p.left, cmp.Diff(tt.packages, p.packages))
		}
	}
}

// TestProjectRefused: what cannot be read says where and why.
func TestProjectRefused(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct{ text, want string }{
		"uv.lock":        {"version = 2\n", "only version 1 can be read"},
		"pyproject.toml": {"[tool.ruff]\nline-length = 100\n", "it names no dependencies"},
		"pylock.toml":    {"lock-version = ", "line 1"},
		"poetry.lock":    {"[[package]]\nname = \"x\"\n", ""},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(tt.text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := readProject(path)
		if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), ": toml: ")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := projectFile(dir); filepath.Base(got) != "uv.lock" {
		t.Error(got)
	}
}

// TestPoetryVersions turns Poetry's versions into pip's.
func TestPoetryVersions(t *testing.T) {
	for version, want := range map[string]string{
		"^1.2.3": ">=1.2.3,<2", "^0.3": ">=0.3,<0.4", "^0.0.3": ">=0.0.3,<0.0.4", "~1.2.3": ">=1.2.3,<1.3", "~1": ">=1,<2", "*": "", "1.2": "==1.2",
		">=1, <3": ">=1,<3", "~=2.1": "~=2.1", "": "",
	} {
		if got := caret(version); got != want {
			t.Errorf("%s is %q, want %q", version, got, want)
		}
	}
}
