package envs

import (
	_ "embed"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/berthml/berth"
)

// curatedText is the package lists of Azure's curated environments, as scripts/curated.py writes
// them from Azure's own definitions.
//
//go:embed curated.txt
var curatedText string

// A recipe is what a curated environment consists of.
type recipe struct {
	python    string
	image     string // without the registry
	packages  []string
	overrides []string
}

// recipes are the curated environments by name.
var recipes = sync.OnceValue(func() map[string]*recipe { return readRecipes(curatedText) })

func readRecipes(text string) map[string]*recipe {
	all := map[string]*recipe{}
	var last *recipe
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		list, indented := strings.CutPrefix(line, "\t")
		overrides, isOverrides := strings.CutPrefix(list, "!")
		switch fields := strings.Split(line, " "); {
		case strings.HasPrefix(line, "#"):
		case !indented && len(fields) == 3:
			last = &recipe{python: fields[1], image: fields[2]}
			all[strings.ToLower(fields[0])] = last
		case isOverrides && last != nil:
			last.overrides = strings.Fields(overrides)
		case last != nil:
			last.packages = strings.Fields(list)
		}
	}
	return all
}

// A family is a group of older curated environments that differ in the version of one package.
type family struct {
	match    func() *regexp.Regexp // of the name in lower case without azureml-; the first group is the version
	python   func(version string) string
	packages []string // {v} is the version
}

// families are curated environments whose definitions Azure does not publish any more, by what
// people use them for. docs/environments.md shows this table.
var families = []family{
	{
		pattern(`^(?:scikit-learn|sklearn)-(\d+\.\d+)`), since("1.2", "3.9", "3.10"),
		[]string{"scikit-learn~={v}.0", "numpy<2", "scipy", "pandas<2", "joblib", "matplotlib", "psutil", "tqdm", "azureml-mlflow", "azureml-defaults"},
	},
	{
		pattern(`^lightgbm-(\d+\.\d+)`), always("3.10"),
		[]string{"lightgbm~={v}.0", "scikit-learn<1.6", "xgboost<2", "numpy<2", "scipy", "pandas<2", "matplotlib", "psutil", "tqdm", "azureml-mlflow", "azureml-defaults"},
	},
	{
		pattern(`^xgboost-(\d+\.\d+)`), always("3.10"),
		[]string{"xgboost~={v}.0", "scikit-learn<1.6", "numpy<2", "scipy", "pandas<2", "psutil", "tqdm", "azureml-mlflow", "azureml-defaults"},
	},
	{
		pattern(`^(?:acpt-)?pytorch-(\d+\.\d+)`), since("2.1", "3.9", "3.10"),
		[]string{"torch~={v}.0", "torchvision", "numpy<2", "transformers", "accelerate", "tensorboard", "pillow", "matplotlib", "psutil", "tqdm", "azureml-mlflow", "azureml-defaults"},
	},
	{
		pattern(`^tensorflow-(\d+\.\d+)`), since("2.12", "3.9", "3.10"),
		[]string{"tensorflow~={v}.0", "tensorboard", "pandas<2", "scipy", "matplotlib", "psutil", "tqdm", "azureml-mlflow", "azureml-defaults"},
	},
	{
		pattern(`^responsibleai(?:$|-)`), always("3.10"),
		[]string{"responsibleai", "raiutils", "scikit-learn<1.6", "numpy<2", "pandas<3", "mlflow-skinny"},
	},
	{
		pattern(`^python-sdk-v2(?:$|-)`), always("3.10"),
		[]string{"azure-ai-ml", "azure-identity", "azureml-mlflow"},
	},
	{
		pattern(`^minimal(?:$|-)`), always("3.10"),
		[]string{"azureml-defaults", "numpy", "pandas"},
	},
}

func always(python string) func(string) string { return func(string) string { return python } }

// since takes the newer interpreter from a version of the package on.
func since(version, older, newer string) func(string) string {
	from, _ := parsePyVersion(version)
	return func(v string) string {
		if got, ok := parsePyVersion(v); ok && got.compare(from) < 0 {
			return older
		}
		return newer
	}
}

var (
	registryName = pattern(`(?i)^azureml://registries/[^/]+/environments/([^/]+)(?:/(?:versions|labels)/[^/]+)?$`)
	namedPython  = pattern(`-py(?:thon)?(3)\.?(\d+)`)
	// oldName is how names of environments went on after the version, until they were published.
	oldName = pattern(`-(?:ubuntu|py3|cuda|cpu|gpu)`)
)

// Curated is the environment that stands for one of Azure's curated ones, named as jobs name them:
// NAME, azureml:NAME@latest, azureml:NAME:VERSION or
// azureml://registries/azureml/environments/NAME/versions/VERSION. The version of the environment
// does not matter. It reports false for names it does not know.
func Curated(name string) (berth.LaunchEnv, bool) {
	short := curatedName(name)
	key := strings.TrimPrefix(strings.ToLower(short), "azureml-")
	r := recipeOf(key)
	if r == nil {
		return berth.LaunchEnv{}, false
	}
	return berth.LaunchEnv{Name: short, Conda: r.condaFile()}, true
}

// curatedName is the name alone of an environment that a job names.
func curatedName(name string) string {
	if m := registryName().FindStringSubmatch(name); m != nil {
		name = m[1]
	}
	name = strings.TrimPrefix(name, "azureml:")
	name, _, _ = strings.Cut(name, "@")
	name, _, _ = strings.Cut(name, ":")
	return name
}

// recipeOf finds what a name stands for: the environment of that name, the one whose name it
// continues (sklearn-1.0-ubuntu20.04-py38-cpu), or one of a family.
func recipeOf(key string) *recipe {
	if r := recipes()[key]; r != nil {
		return r
	}
	longest := ""
	for n := range recipes() {
		if strings.HasPrefix(key, n+"-") && len(n) > len(longest) {
			longest = n
		}
	}
	if longest != "" {
		r := *recipes()[longest]
		r.python = pythonIn(key, r.python)
		return &r
	}
	for _, f := range families {
		m := f.match().FindStringSubmatch(key)
		if m == nil {
			continue
		}
		version := ""
		if len(m) > 1 {
			if version = m[1]; !oldName().MatchString(key) {
				continue
			}
		}
		r := &recipe{python: pythonIn(key, f.python(version))}
		for _, p := range f.packages {
			r.packages = append(r.packages, strings.ReplaceAll(p, "{v}", version))
		}
		if strings.Contains(key, "inference") {
			r.packages = append(r.packages, "azureml-inference-server-http")
		}
		return r
	}
	return nil
}

// pythonIn is the version of Python that a name says, or else the other one.
func pythonIn(key, other string) string {
	if p := namedPython().FindStringSubmatch(key); p != nil {
		return p[1] + "." + p[2]
	}
	return other
}

// condaFile is the recipe as a conda file.
func (r *recipe) condaFile() string {
	var b strings.Builder
	python := "python"
	if r.python != "" {
		python += "=" + r.python
	}
	b.WriteString("dependencies:\n  - " + python + "\n  - pip\n")
	if len(r.packages) > 0 {
		b.WriteString("  - pip:\n")
	}
	for _, p := range r.packages {
		b.WriteString("    - " + p + "\n")
	}
	if len(r.overrides) > 0 {
		b.WriteString("overrides:\n")
	}
	for _, p := range r.overrides {
		b.WriteString("  - " + p + "\n")
	}
	return b.String()
}

// CuratedNames are the names of the curated environments whose definitions Azure publishes.
func CuratedNames() []string { return slices.Sorted(maps.Keys(recipes())) }

// NearestCurated is the name of the curated environment that is most like a name; empty where none
// is.
func NearestCurated(name string) string {
	key := strings.TrimPrefix(strings.ToLower(curatedName(name)), "azureml-")
	key = strings.Replace(key, "scikit-learn", "sklearn", 1)
	best, least := "", len(key)/2+1
	names := CuratedNames()
	for _, n := range slices.Backward(names) { // a name without its version means the newest
		if key != "" && (strings.HasPrefix(n, key+"-") || strings.HasPrefix(n, "acpt-"+key+"-")) {
			return n
		}
	}
	for _, n := range names {
		if d := berth.Distance(key, n); d < least || d == least && best != "" { // the newest of several
			best, least = n, d
		}
	}
	return best
}
