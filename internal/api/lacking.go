package api

import (
	"encoding/json"
	"regexp"
	"strings"
	"sync"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// noModule is what Python says of a module that it does not find.
var noModule = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`ModuleNotFoundError: No module named '?([A-Za-z0-9_.]+)`)
})

// lacking is what to do about a job that failed because it lacks a package of Python; nil for
// others.
func (c *call) lacking(tx *store.Tx, d *store.Doc, reason string) []string {
	module := noModule().FindStringSubmatch(reason)
	if module == nil || berth.JobStatus(d.Status) != berth.Failed {
		return nil
	}
	var job struct{ Properties berth.CommandJob }
	if json.Unmarshal(d.Body, &job) != nil {
		return nil
	}
	if job.Properties.EnvironmentID != "" {
		return []string{"add the package that has the module " + module[1] + " to the job's environment"}
	}
	if file := c.packageFile(tx, job.Properties.CodeID); file != "" {
		return []string{"berth run --environment " + file + " -- COMMAND, which installs what " + file + " names"}
	}
	return []string{"berth run --environment FILE -- COMMAND, with a requirements.txt or another file that names the package"}
}

// packageFile is the file of a job's code that names packages, "" if there is none.
func (c *call) packageFile(tx *store.Tx, code string) string {
	ref, err := berth.ParseRef(code, "codes")
	if err != nil {
		return ""
	}
	d, err := locate.Version(tx, c.ws, "codes", ref)
	if err != nil {
		return ""
	}
	var asset struct {
		Properties struct{ CodeURI string }
	}
	if json.Unmarshal(d.Body, &asset) != nil {
		return ""
	}
	container, at, ok, err := c.s.BlobOfAny(tx, asset.Properties.CodeURI)
	if err != nil || !ok {
		return ""
	}
	for _, name := range berth.PackageFiles {
		if b, err := tx.Blob(container, strings.TrimSuffix(at, "/")+"/"+name); err == nil && b != nil {
			return name
		}
	}
	return ""
}
