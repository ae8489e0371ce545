package track

import (
	"cmp"
	"io"
	"path"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// What the token of a job opens: its own run, the runs and models it made, and the experiment they
// are in. It reads every registered model and adds versions to it, as its user may; the rest of a
// registered model it changes where it is its user's. Everybody else's token opens the workspace.

// jobRun is the run of the job that asks; serve has seen to it that it is there.
func (c *call) jobRun() *run { return c.run(c.who.Job) }

// mayRun refuses runs that are not the job's.
func (c *call) mayRun(r *run) error {
	if c.who.Job == "" || r.ID == c.who.Job || r.isOf(c.who, r.doc) {
		return nil
	}
	return refuse(denied, "The token of job %s cannot access run %s", c.who.Job, r.ID)
}

// mayExperiment refuses experiments that the job is not in.
func (c *call) mayExperiment(id string) error {
	if c.who.Job == "" {
		return nil
	}
	if r := c.jobRun(); r != nil && r.Experiment == id {
		return nil
	}
	return refuse(denied, "The token of job %s cannot access experiment %s", c.who.Job, id)
}

// mayLogged refuses models that the job did not make.
func (c *call) mayLogged(m *loggedModel) error {
	if c.who.Job == "" || m.isOf(c.who, m.doc) {
		return nil
	}
	return refuse(denied, "The token of job %s cannot access model %s", c.who.Job, m.ID)
}

// mayCreateExperiment refuses jobs: they have one.
func (c *change) mayCreateExperiment(who Caller) error {
	if who.Job == "" {
		return nil
	}
	return refuse(denied, "The token of job %s cannot create experiments; set experiment_name in the job", who.Job)
}

// mayReadLogged lets jobs read models of their experiment.
func (c *call) mayReadLogged(m *loggedModel) error {
	if c.mayLogged(m) == nil {
		return nil
	}
	return c.mayExperiment(m.Experiment)
}

// mayRegistered refuses to change registered models of others than the job's user.
func (c *call) mayRegistered(m *registered) error {
	if c.who.Job == "" || m.User == c.who.User {
		return nil
	}
	return refuse(denied, "The token of job %s cannot change model %s, which does not belong to the job's user %s", c.who.Job, m.Name, c.who.User)
}

// mayVersion refuses to change versions that are neither of the job's user nor of a model of
// theirs.
func (c *call) mayVersion(m *registered, v *version) error {
	if v.User == c.who.User {
		return nil
	}
	return c.mayRegistered(m)
}

// mayEnd refuses to end what others than the caller made: a name and a version mean one thing to
// everybody who has written them down.
func (c *call) mayEnd(what, maker string) error {
	if c.who.Admin || maker == c.who.User || maker == "" {
		return nil
	}
	return refuse(denied, "%s was created by %s; only they or an administrator may delete or rename it", what, maker)
}

func (c *call) mayEndVersion(m *registered, v *version) error {
	return c.mayEnd("Version "+itoa(v.Number)+" of model "+m.Name, v.User)
}

// mayStore refuses what takes space where the workspace is full.
func (c *call) mayStore() error {
	if c.who.Full == nil {
		return nil
	}
	return c.who.Full(c.ctx)
}

// checkEach is after how many bytes of an upload the caller is checked again.
const checkEach = 64 << 20

// An uploadBody is the body of an upload of a file at a path. It breaks off when Check of the
// caller refuses it, and at its end when the path has become somebody else's: a slow one may take
// longer than a job.
type uploadBody struct {
	c    *call
	path string
	to   file
	r    io.Reader
	n    int64
	next int64 // when the caller is checked
}

func (c *call) uploadBody(p string, to file) io.Reader {
	return &uploadBody{c: c, path: p, to: to, r: c.r.Body, next: checkEach}
}

func (b *uploadBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.n += int64(n)
	ended := err == io.EOF
	if err != nil && !ended || !ended && b.n < b.next {
		return n, err
	}
	b.next = b.n + checkEach
	if b.c.who.Check != nil {
		if err := b.c.who.Check(b.c.ctx, b.n); err != nil {
			return n, err
		}
	}
	if ended {
		if err := b.still(); err != nil {
			return n, err
		}
	}
	return n, err
}

// still checks again whose the path is.
func (b *uploadBody) still() error {
	f, err := b.c.fileFor(b.path)
	switch {
	case err != nil:
		return err
	case f.container != b.to.container || f.name != b.to.name:
		return refuse(badRequest, "The path %s became another file's while it was uploaded; upload it again", b.path)
	}
	return b.c.mayFile(f, true)
}

// mayFile refuses files that are not the job's. It may read those of its experiment's models, and
// of registered ones.
func (c *call) mayFile(f file, write bool) error {
	if write && f.asset != nil {
		return refuse(denied, "The files of registered version %d cannot be changed; create a new version", f.asset.Number)
	}
	if c.who.Job == "" {
		if write {
			return c.mayChange(f)
		}
		return nil
	}
	err := refuse(denied, "The token of job %s cannot access this path", c.who.Job)
	switch {
	case f.run != nil:
		err = c.mayRun(f.run)
	case f.model != nil && write:
		err = c.mayLogged(f.model)
	case f.model != nil:
		err = c.mayReadLogged(f.model)
	}
	if err != nil && !write && c.isRegistered(f) {
		return nil
	}
	return err
}

// mayChange refuses to change the files of others' jobs: those of the job itself, and of the runs
// and models that its code made.
func (c *call) mayChange(f file) error {
	if o, _, _ := f.origin(); o.Job == "" || c.who.Admin {
		return nil
	}
	return c.s.DB.View(c.ctx, func(tx *store.Tx) error { return c.mayChangeIn(tx, f, "change its files") })
}

// mayDelete refuses to delete the runs and models of others' jobs, whose files would be removed.
func (c *call) mayDelete(x *change, f file) error { return c.mayChangeIn(x.tx, f, "delete it") }

func (c *call) mayChangeIn(tx *store.Tx, f file, act string) error {
	o, _, what := f.origin()
	if o.Job == "" || c.who.Admin {
		return nil
	}
	user, err := c.owner(tx, f)
	if err != nil || user != "" && user == c.who.User {
		return err
	}
	return refuse(denied, "%s is of a job of %s; only they and administrators may %s", what, cmp.Or(user, "somebody else"), act)
}

// CheckJob refuses the name of a new job that a run has, unless it was a job of the same user that
// was deleted. It would be the run of the new job too. Names that logged models have for their IDs
// are refused also. What a run says of its user in user_id
// counts for nothing: clients write it.
func CheckJob(tx *store.Tx, workspace, name, user string) error {
	if isForeignModel(strings.ToLower(name)) { // points are kept by the ID of what has them
		return berth.Errorf(berth.Conflict, "%s has the form of the id of a logged model; choose another name for the job", name)
	}
	d, err := tx.Get(workspace, kindRuns, name, "")
	if berth.CodeOf(err) == berth.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	r, err := decode[run](d)
	if err != nil {
		return err
	}
	if !r.isJob() {
		return berth.Errorf(berth.Conflict, "there is a run %s, which is not a job; choose another name for the job", r.ID)
	}
	if maker := r.jobUser(); maker != user {
		return berth.Errorf(berth.Conflict, "there is a run %s of %s, of a job that was deleted; choose another name for the job", r.ID, cmp.Or(maker, "somebody else"))
	}
	return nil
}

// mayEmpty refuses to delete a folder that has files of others' jobs below it.
func (c *call) mayEmpty(f file) error {
	if f.run != nil || f.model != nil || f.asset != nil {
		return nil // it is all theirs
	}
	var inside []file
	c.view(func(x *index) {
		for _, m := range x.logged {
			if m.Job != "" && isBelow(m.URI, f.path) {
				inside = append(inside, file{model: m})
			}
		}
		for _, n := range x.runs {
			if n.r.Job != "" && isBelow(n.r.URI, f.path) {
				inside = append(inside, file{run: n.r})
			}
		}
	})
	for _, g := range inside {
		if err := c.mayChange(g); err != nil {
			return err
		}
	}
	return nil
}

// isBelow says whether an artifact URI is below a path of the artifact proxy.
func isBelow(uri, p string) bool {
	root, ours := proxied(uri)
	return ours && strings.HasPrefix(root, p+"/")
}

// isRegistered says whether a file is one of a registered version's. What is registered above the
// run or model that the file belongs to opens nothing.
func (c *call) isRegistered(f file) bool {
	names := c.namesOf(f)
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, n := range names {
		for p := n.path; p != "" && p != "." && len(p) >= len(n.top); p = path.Dir(p) {
			if c.index.roots[p] > 0 {
				return true
			}
		}
	}
	return false
}

// A nameOf is a path by which a version may name a file, and which part of it is the root of what
// the file belongs to.
type nameOf struct{ path, top string }

func (w *workspace) namesOf(f file) []nameOf {
	switch {
	case f.run != nil:
		rest := f.inRun()
		names := []nameOf{{f.path, strings.TrimSuffix(f.path, rest)}}
		if root, ours := proxied(f.run.URI); ours && w.fileAt(root+rest).name == f.name {
			id := runsScheme + f.run.ID
			names = append(names, nameOf{root + rest, root}, nameOf{id + rest, id})
		}
		return names
	case f.model != nil:
		top, _, _ := strings.Cut(f.path+"/", "/"+f.model.ID+"/")
		return []nameOf{{f.path, top + "/" + f.model.ID}}
	}
	return []nameOf{{path: f.path}}
}
