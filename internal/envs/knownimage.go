package envs

import (
	"strings"

	"github.com/berthml/berth"
)

// Images whose Python packages are known can do without a container engine: a command that needs
// nothing else of them runs in an environment of the same packages.

var (
	pythonImage     = pattern(`^(?:docker\.io/|mcr\.microsoft\.com/mirror/docker/|public\.ecr\.aws/docker/)?(?:library/)?python(?::(?:(3\.\d+)[^@]*|latest|3|3-[a-z0-9.-]+|slim[a-z-]*|alpine[0-9.]*))?(?:@.*)?$`)
	devImage        = pattern(`^mcr\.microsoft\.com/(?:vscode/)?devcontainers/(?:python|anaconda|miniconda)(?::(?:[0-9.]+-)?(3\.\d+)?[^@]*)?(?:@.*)?$`)
	condaImage      = pattern(`^(?:docker\.io/)?(?:continuumio/(?:mini|ana)conda3|condaforge/(?:miniforge3|mambaforge))(?:[:@].*)?$`)
	curatedImage    = pattern(`^mcr\.microsoft\.com/azureml/(?:curated/)?([A-Za-z0-9._-]+?)(?:[:@].*)?$`)
	baseImage       = pattern(`^(?:openmpi|intelmpi|base)[a-z0-9.-]*?(?:-?ubuntu(\d+\.\d+))?$`)
	acptImage       = pattern(`^mcr\.microsoft\.com/(?:azureml/)?aifx/(?:acpt/)?[a-z0-9-]*-py(3)(\d+)-torch(\d)(\d+)[\dx](?:[:@].*)?$`)
	pytorchImage    = pattern(`^(?:docker\.io/)?pytorch/pytorch:(\d+\.\d+\.\d+)-[^@]*(?:@.*)?$`)
	tensorflowImage = pattern(`^(?:docker\.io/)?tensorflow/tensorflow:(\d+\.\d+\.\d+)[^@]*(?:@.*)?$`)
)

// basePythons are the versions of Python of Azure's base images, by their Ubuntu.
var basePythons = map[string]string{"16.04": "3.7", "18.04": "3.7", "20.04": "3.8", "22.04": "3.10", "24.04": "3.10"}

// knownImage is the environment that has the Python packages of an image, if they are known.
func knownImage(image string) (berth.LaunchEnv, bool) {
	r := imageRecipe(strings.TrimSpace(image))
	if r == nil {
		return berth.LaunchEnv{}, false
	}
	return berth.LaunchEnv{Name: image, Conda: r.condaFile()}, true
}

func imageRecipe(image string) *recipe {
	if m := pythonImage().FindStringSubmatch(image); m != nil {
		return &recipe{python: m[1]}
	}
	if m := devImage().FindStringSubmatch(image); m != nil {
		return &recipe{python: m[1]}
	}
	if condaImage().MatchString(image) {
		return &recipe{packages: []string{"requests"}}
	}
	if m := acptImage().FindStringSubmatch(image); m != nil {
		return &recipe{python: m[1] + "." + m[2], packages: []string{"torch~=" + m[3] + "." + m[4] + ".0", "torchvision", "torchaudio", "numpy", "pillow", "accelerate"}}
	}
	if m := pytorchImage().FindStringSubmatch(image); m != nil {
		return &recipe{python: "3.11", packages: []string{"torch==" + m[1], "torchvision", "torchaudio", "numpy"}}
	}
	if m := tensorflowImage().FindStringSubmatch(image); m != nil {
		return &recipe{python: "3.11", packages: []string{"tensorflow==" + m[1]}}
	}
	m := curatedImage().FindStringSubmatch(image)
	if m == nil {
		return nil
	}
	if b := baseImage().FindStringSubmatch(m[1]); b != nil {
		python := basePythons[b[1]]
		if python == "" {
			python = "3.10"
		}
		return &recipe{python: python, packages: []string{"requests"}} // what miniconda has
	}
	return recipeOf(strings.ToLower(m[1]))
}
