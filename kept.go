package berth

import (
	"path"
	"slices"
)

// IsKept says whether a folder of a job's working directory is kept without being named as an
// output.
func IsKept(name string) bool { return name == "outputs" || name == "logs" }

// IsByTools says whether a file or folder is by its name one that tools make for themselves beside
// code: nobody wants it elsewhere.
func IsByTools(name string) bool {
	base := path.Base(name)
	return slices.Contains([]string{"__pycache__", "node_modules", "wandb"}, base) || slices.Contains([]string{".pyc", ".pyo"}, path.Ext(base))
}
