package envs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// hasLibrary says whether the node's R has a library that conda calls r-NAME: its name in lower
// case. r-essentials stands for many, of which R itself brings none.
func hasLibrary(name string) bool {
	for _, dir := range rPaths() {
		list, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range list {
			if _, err := os.Stat(filepath.Join(dir, e.Name(), "DESCRIPTION")); err == nil && strings.EqualFold(e.Name(), name) {
				return true
			}
		}
	}
	return false
}

// rPaths is rLibraries, asked once: it takes a tenth of a second.
var rPaths = sync.OnceValue(rLibraries)

// rLibraries are the folders in which the node's R looks for libraries, none without R.
func rLibraries() []string {
	path, err := exec.LookPath(rscript)
	if err != nil {
		return nil
	}
	out, err := exec.CommandContext(context.Background(), path, "--vanilla", "-e", "cat(.libPaths(), sep = \"\\n\")").Output()
	if err != nil {
		return nil
	}
	return strings.Fields(string(out))
}
