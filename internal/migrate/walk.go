package migrate

import (
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// listed is an entry of a folder of a server.
type listed struct {
	Path string `json:"path"`
	Dir  bool   `json:"is_dir"`
	Size *int64 `json:"file_size"`
}

// entry is what is walked.
func (l listed) entry() client.RunFile {
	f := client.RunFile{Path: l.Path, Dir: l.Dir, Size: unlisted}
	if l.Size != nil && *l.Size >= 0 {
		f.Size = *l.Size
	}
	return f
}

// What a run or model may have for its files to be listed.
const (
	maxEntries = 1_000_000
	maxDepth   = 100
	maxPaths   = 256 << 20 // bytes
)

// walk is the files of a tree of a source, whose folders are listed one at a time.
func walk(list func(folder string) ([]client.RunFile, error)) (out []File, err error) {
	n, size := 1, 0 // with the root
	err = client.WalkArtifacts("", func(folder string) ([]client.RunFile, error) {
		switch {
		case n > maxEntries:
			return nil, berth.Errorf(berth.Invalid, "there are more than %d files and folders; "+copyFiles, maxEntries)
		case size > maxPaths:
			return nil, berth.Errorf(berth.Invalid, "the paths of the files have more than %d MiB; "+copyFiles, maxPaths>>20)
		case strings.Count(folder, "/") > maxDepth:
			return nil, berth.Errorf(berth.Invalid, "the folder %.500q is more than %d folders deep; "+copyFiles, folder, maxDepth)
		}
		entries, err := list(folder)
		n += len(entries)
		for _, e := range entries {
			size += len(e.Path)
		}
		return entries, err
	}, func(f client.RunFile) { out = append(out, File{Path: f.Path, Size: f.Size, Err: checkPath(f.Path)}) })
	if err != nil {
		return nil, err
	}
	return out, nil
}
