package envs

import (
	"regexp"
	"strings"

	"github.com/berthml/berth"
)

// A family is a group of Azure's curated environments that differ in the version of one package.
type family struct {
	match    func() *regexp.Regexp // of the name in lower case without azureml-; the first group is the version
	python   func(version string) string
	packages []string // {v} is the version
}

// families are the curated environments that are known, by what people use them for. Azure's images
// hold more: its own SDK packages of the first generation, profilers and patches for the image's
// operating system are left out. docs/environments.md shows this table.
var families = []family{
	{
		pattern(`^(?:scikit-learn|sklearn)-(\d+\.\d+)`), since("1.2", "3.9", "3.10"),
		[]string{"scikit-learn~={v}.0", "numpy<2", "scipy", "pandas<3", "joblib", "matplotlib", "psutil", "tqdm", "mlflow-skinny"},
	},
	{
		pattern(`^lightgbm-(\d+\.\d+)`), always("3.10"),
		[]string{"lightgbm~={v}.0", "scikit-learn<1.6", "xgboost<2", "numpy<2", "scipy", "pandas<3", "matplotlib", "psutil", "tqdm", "mlflow-skinny"},
	},
	{
		pattern(`^xgboost-(\d+\.\d+)`), always("3.10"),
		[]string{"xgboost~={v}.0", "scikit-learn<1.6", "numpy<2", "scipy", "pandas<3", "psutil", "tqdm", "mlflow-skinny"},
	},
	{
		pattern(`^(?:acpt-)?pytorch-(\d+\.\d+)`), since("2.1", "3.9", "3.10"),
		[]string{"torch~={v}.0", "torchvision", "numpy<2", "transformers", "accelerate", "tensorboard", "pillow", "matplotlib", "psutil", "tqdm", "mlflow-skinny"},
	},
	{
		pattern(`^tensorflow-(\d+\.\d+)`), since("2.12", "3.9", "3.10"),
		[]string{"tensorflow~={v}.0", "tensorboard", "pandas<3", "scipy", "matplotlib", "psutil", "tqdm", "mlflow-skinny"},
	},
	{
		pattern(`^responsibleai(?:$|-)`), always("3.10"),
		[]string{"responsibleai", "raiutils", "scikit-learn<1.6", "numpy<2", "pandas<3", "mlflow-skinny"},
	},
	{
		pattern(`^mldesigner(?:$|-)`), always("3.10"),
		[]string{"mldesigner", "mlflow-skinny"},
	},
	{
		pattern(`^python-sdk-v2(?:$|-)`), always("3.10"),
		[]string{"azure-ai-ml", "azure-identity", "mlflow-skinny"},
	},
	{
		pattern(`^minimal(?:$|-)`), always("3.10"),
		[]string{"mlflow-skinny", "numpy", "pandas"},
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
)

// Curated is the environment that stands in for one of Azure's curated ones, named as jobs name
// them: NAME, azureml:NAME@latest, azureml:NAME:VERSION or
// azureml://registries/azureml/environments/NAME/versions/VERSION. The version of the environment
// does not matter. It reports false for names it does not know.
func Curated(name string) (berth.LaunchEnv, bool) {
	short := name
	if m := registryName().FindStringSubmatch(short); m != nil {
		short = m[1]
	}
	short = strings.TrimPrefix(short, "azureml:")
	short, _, _ = strings.Cut(short, "@")
	short, _, _ = strings.Cut(short, ":")
	key := strings.TrimPrefix(strings.ToLower(short), "azureml-")
	for _, f := range families {
		m := f.match().FindStringSubmatch(key)
		if m == nil {
			continue
		}
		version := ""
		if len(m) > 1 {
			version = m[1]
		}
		python := f.python(version)
		if p := namedPython().FindStringSubmatch(key); p != nil {
			python = p[1] + "." + p[2]
		}
		var b strings.Builder
		b.WriteString("dependencies:\n  - python=" + python + "\n  - pip\n  - pip:\n")
		for _, p := range f.packages {
			b.WriteString("    - " + strings.ReplaceAll(p, "{v}", version) + "\n")
		}
		if strings.Contains(key, "inference") {
			b.WriteString("    - azureml-inference-server-http\n")
		}
		return berth.LaunchEnv{Name: short, Conda: b.String()}, true
	}
	return berth.LaunchEnv{}, false
}
