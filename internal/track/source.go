package track

import (
	"path"
	"strconv"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// writeRunOf writes the run of the job whose files a new version has, if it is not written yet: the
// version names that run, and nobody else gets a job of its name while it is there.
func (c *call) writeRunOf(source string) error {
	id, err := c.runNamedBy(source)
	if err != nil || id == "" || c.who.Job != "" && c.who.Job != id {
		return err
	}
	if r := c.run(id); r != nil && r.doc != nil {
		return nil
	}
	_, err = c.jobRunOf(c.ctx, id)
	return err
}

// runNamedBy is the ID of the run in whose folder a source is, "" where it is in none.
func (c *call) runNamedBy(source string) (id string, err error) {
	if id, _, ok := inRunOf(source); ok {
		return id, nil
	}
	if p, ours := proxied(c.home(source)); ours {
		if seg := strings.SplitN(p, "/", 4); len(seg) >= 3 && seg[2] == "artifacts" {
			id = seg[1]
		}
		return id, nil
	}
	if schemeOf(source) != "azureml" {
		return "", nil
	}
	err = c.s.DB.View(c.ctx, func(tx *store.Tx) error {
		p, err := c.s.Locator.Resolve(tx, c.Of, c.who.User, source)
		if err == nil && (p.Container == c.Blobs || p.Container == c.Artifacts) {
			id, _ = c.jobFolder(p.Container, p.Name)
		}
		return nil
	})
	return id, err
}

// findFiles finds where the files of a new version with an azureml URI are. Those outside the
// containers of the workspace are the client's business.
func (c *call) findFiles(x *change, v *version) error {
	uri := c.inRun(v.URI)
	if schemeOf(uri) != "azureml" || v.HeldIn != "" {
		return nil
	}
	p, err := c.s.Locator.Resolve(x.tx, x.w.Of, v.User, uri)
	switch {
	case berth.CodeOf(err) == berth.Internal:
		return err
	case p.Ours() && (p.Container == c.Blobs || p.Container == c.Artifacts):
		v.HeldIn, v.Held = p.Container, strings.Trim(p.Name, "/")
	case c.who.Job != "" && (err != nil || p.Ours()) && !v.ofVersion():
		return refuse(denied, "The token of job %s does not register files that are not in this workspace: %s", c.who.Job, v.URI)
	}
	return nil
}

// ofVersion says whether a version is made of another one, or of a logged model.
func (v *version) ofVersion() bool { return strings.HasPrefix(v.Source, "models:/") }

// mayRegister refuses versions of files that the job may not read: whoever loads a registered model
// reads them.
func (c *call) mayRegister(v *version) error {
	if c.who.Job == "" {
		return nil
	}
	uri := c.inRun(v.URI)
	if strings.HasPrefix(uri, runsScheme) { // whoever makes that run later would have its files read
		return refuse(denied, "The token of job %s does not register files of a run that is not there: %s", c.who.Job, v.URI)
	}
	if v.HeldIn != "" {
		if id, _, ok := inRunOf(v.URI); ok && c.mayRun(c.run(id)) == nil || v.ofVersion() {
			return nil
		}
		return c.mayFile(c.fileIn(v.HeldIn, v.Held), false)
	}
	p, ours := proxied(uri)
	if !ours {
		return nil
	}
	p, err := safePath(p)
	if err != nil {
		return err
	}
	return c.mayFile(c.fileAt(p), false)
}

// checkAbove refuses versions of a folder that has whole runs or logged models below it, or will
// have them: none of those could ever be removed.
func (c *call) checkAbove(v *version) error {
	f, ours := c.filesOf(v)
	if !ours || f.asset != nil || v.Container != "" || !c.isAbove(f) {
		return nil
	}
	return invalid("Invalid model version source: '%s'. It is above the files of runs and logged models. Name the folder of one model.", v.Source)
}

// isAbove says whether a folder has, or will have, runs or logged models below it.
func (w *workspace) isAbove(f file) bool {
	p := f.path
	switch {
	case f.run != nil || f.model != nil:
		return false
	case p != "":
	case f.name == "":
		return true
	case f.container != w.Artifacts:
		return f.name+"/" == locate.OutputRoot
	case !strings.HasPrefix(f.name+"/", otherArtifacts):
		return strings.HasPrefix(locate.ArtifactPath(""), f.name+"/")
	default:
		p = strings.Trim(strings.TrimPrefix(f.name+"/", otherArtifacts), "/")
	}
	if p == "" {
		return true
	}
	first, rest, _ := strings.Cut(p, "/")
	if _, err := strconv.Atoi(first); err == nil && (rest == "" || rest == "models") { // of an experiment to come
		return true
	}
	above := false
	w.view(func(x *index) {
		r := x.run(path.Base(p))
		above = r != nil && isBelow(r.URI, p)
		for _, e := range x.experiments {
			root, ours := proxied(e.Location)
			above = above || ours && (root == p || root+"/models" == p || strings.HasPrefix(root, p+"/"))
		}
	})
	return above
}
