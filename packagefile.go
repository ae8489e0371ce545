package berth

// PackageFiles are the names of files that say which packages the programs of their folder need, in
// the order in which they are looked for: what says exactly which versions comes first.
var PackageFiles = []string{
	"uv.lock", "poetry.lock", "pylock.toml", "requirements.txt", "environment.yml", "environment.yaml", "conda.yml", "conda.yaml", "pyproject.toml",
}
