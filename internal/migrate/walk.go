package migrate

import (
	"strings"

	"github.com/berthml/berth"
)

// listed is an entry of a folder.
type listed struct {
	Path string `json:"path"`
	Dir  bool   `json:"is_dir"`
	Size *int64 `json:"file_size"`
}

func (l listed) size() int64 {
	if l.Size == nil || *l.Size < 0 {
		return unlisted
	}
	return *l.Size
}

// What a run or model may have for its files to be listed.
const (
	maxEntries = 1_000_000
	maxDepth   = 100
	maxPaths   = 256 << 20 // bytes
)

// walk is the files of a tree whose folders are listed one at a time.
func walk(list func(folder string) ([]listed, error)) ([]File, error) {
	var out []File
	size := 0
	todo := []string{""} // those that were listed stay
	for i := 0; i < len(todo); i++ {
		folder := todo[i]
		switch {
		case len(out)+len(todo) > maxEntries:
			return nil, berth.Errorf(berth.Invalid, "there are more than %d files and folders; "+copyFiles, maxEntries)
		case size > maxPaths:
			return nil, berth.Errorf(berth.Invalid, "the paths of the files have more than %d MiB; "+copyFiles, maxPaths>>20)
		case strings.Count(folder, "/") > maxDepth:
			return nil, berth.Errorf(berth.Invalid, "the folder %.500q is more than %d folders deep; "+copyFiles, folder, maxDepth)
		}
		entries, err := list(folder)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if folder != "" && !strings.HasPrefix(e.Path, folder+"/") || e.Path == "" {
				return nil, berth.Errorf(berth.Invalid, "the list of folder %.500q has %.500q, which is not in it; "+copyFiles, folder, e.Path)
			}
			size += len(e.Path)
			if e.Dir {
				todo = append(todo, e.Path)
			} else {
				out = append(out, File{Path: e.Path, Size: e.size(), Err: checkPath(e.Path)})
			}
		}
	}
	return out, nil
}
