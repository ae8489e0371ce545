package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
)

// upload notes that the file or folder v names is to be uploaded, and gives the placeholder that
// stands for the result.
func (s *scope) upload(v *value, u Upload) string {
	u.Links, u.At = s.options.Links, Error{File: v.doc.name, Line: v.line, Col: v.col, Field: s.field}
	u.Placeholder = "upload:" + u.Kind + ":" + u.Path
	if len(u.Includes) > 0 {
		sum := sha256.Sum256([]byte(strings.Join(u.Includes, "\x00")))
		u.Placeholder += "#" + hex.EncodeToString(sum[:4])
	}
	for _, known := range s.draft.uploads {
		if known.Placeholder == u.Placeholder {
			return u.Placeholder
		}
	}
	if st, err := os.Stat(u.Path); err == nil && !st.IsDir() && !st.Mode().IsRegular() {
		s.fail(v, "%s is neither a file nor a folder and cannot be uploaded", u.Path)
		return u.Placeholder
	}
	if f, err := u.listing(); err == nil { // what else is wrong is said when it is uploaded
		for _, stray := range f.strays {
			if !s.strays[stray] {
				s.strays[stray] = true
				s.fail(v, "%s", stray)
			}
		}
	}
	s.draft.uploads = append(s.draft.uploads, u)
	return u.Placeholder
}

// code is the source of a job or component: a local file or folder, or a reference to a code asset.
var code = typ{name: "a path", showFunc: showAsset, readFunc: func(s *scope, v *value) any {
	path, ok := readText(s, v).(string)
	if !ok {
		return nil
	}
	if abs := s.resolve(v, path); exists(abs) {
		if filepath.Dir(abs) == abs {
			s.fail(v, "the root of the file system cannot be used as code")
			return nil
		}
		return s.upload(v, Upload{Kind: "code", Path: abs})
	}
	switch {
	case strings.HasPrefix(path, "git+"):
		s.fail(v, "code from a Git URL is not supported; clone the repository and use its local path")
	case strings.HasPrefix(path, "azureml://feeds/"):
		return "azureml://registries/" + strings.TrimPrefix(path, "azureml://feeds/")
	case strings.HasPrefix(path, "azureml:"):
		if short := strings.TrimPrefix(path, "azureml:"); strings.Contains(short, "@") && !strings.Contains(short, "/") {
			s.fail(v, "%s: code has no labels; write azureml:NAME:VERSION", describe(v))
		} else if s.checkAsset(v, "codes", true) {
			return s.assetID("codes", path)
		}
	case webForm.MatchString(path):
		return path
	default:
		s.fail(v, "%s does not exist (looked for %s)", path, s.resolve(v, path))
	}
	return nil
}}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
