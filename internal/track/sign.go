package track

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// What a signed address is good for.
const (
	signRead   = "r"
	signWrite  = "w"
	signBlocks = "b" // of an upload, which the server completes
)

// An Address is one at which a blob is read or written without a token.
type Address struct {
	Container, Name string
	// Perm is "r" to read the blob, "w" to write it, "b" to write blocks of it.
	Perm  string
	Who   Caller
	Until time.Time
	// Owner says that the blob is written whosever job its name belongs to.
	Owner bool
	// Of is what the blob belongs to, for [CheckOf] when the address is used; "" is nothing.
	Of string
}

// address is that of a file for the caller, who may do with it what perm says.
func (c *call) address(f file, perm string, life time.Duration) (Address, error) {
	a := Address{Container: f.container, Name: f.name, Perm: perm, Who: c.who, Until: time.Now().Add(life), Owner: true}
	if perm == signRead {
		return a, nil
	}
	switch {
	case f.run != nil:
		if err := c.signRun(&a, f.run); err != nil {
			return a, err
		}
	case f.model != nil:
		a.Of = c.reference(kindLogged, f.model.doc)
	case perm != signBlocks: // nobody would be asked who may complete it
		return a, refuse(denied, "The files of runs and models only are uploaded with a signed address")
	}
	return a, nil
}

// signRun has an address end with the run that it is for, or with the job whose run that is. While
// the job is there, its user alone writes to its folder; an administrator is asked by nobody.
func (c *call) signRun(a *Address, r *run) (err error) {
	if r.doc == nil { // that of a run keeps others from its name, see CheckJob
		id := r.ID
		if r, err = c.jobRunOf(c.ctx, id); err != nil {
			return err
		}
		if r == nil || r.doc == nil {
			return noRun(id)
		}
	}
	a.Of = c.reference(kindRuns, r.doc)
	if !r.isJob() {
		return nil
	}
	var job *store.Doc
	err = c.s.DB.View(c.ctx, func(tx *store.Tx) (err error) {
		job, err = c.jobNamed(tx, r.ID)
		return err
	})
	if job != nil {
		a.Of, a.Owner = c.reference(kindJobs, job), c.who.Admin
	}
	return err
}

// reference names a document for CheckOf. Another that has the name later has another ID.
func (w *workspace) reference(kind string, d *store.Doc) string {
	return strings.Join([]string{strconv.FormatInt(d.ID, 10), kind, url.QueryEscape(w.Key), url.QueryEscape(d.Name)}, " ")
}

// CheckOf returns an error with the code Unauthenticated if what Address.Of names is not there any
// more, or is the run of a deleted job of whose name there is another.
func CheckOf(tx *store.Tx, of string) error {
	f := strings.Split(of, " ")
	if len(f) != 4 {
		return berth.Errorf(berth.Unauthenticated, "it is for something unknown")
	}
	workspace, err := url.QueryUnescape(f[2])
	if err != nil {
		return err
	}
	name, err := url.QueryUnescape(f[3])
	if err != nil {
		return err
	}
	is := func(kind string) (*store.Doc, error) {
		d, err := tx.Get(workspace, kind, name, "")
		if berth.CodeOf(err) == berth.NotFound {
			return nil, nil
		}
		return d, err
	}
	d, err := is(f[1])
	if err != nil {
		return err
	}
	var job *store.Doc
	if f[1] == kindRuns {
		if job, err = is(kindJobs); err != nil {
			return err
		}
	}
	if d == nil || strconv.FormatInt(d.ID, 10) != f[0] || job != nil {
		return berth.Errorf(berth.Unauthenticated, "what %s was when it was made is gone", name)
	}
	return nil
}

// isFolder reports whether a file is the folder of a run or model, or above it.
func (f file) isFolder() bool {
	uri := ""
	switch {
	case f.run != nil:
		uri = f.run.URI
	case f.model != nil:
		uri = f.model.URI
	}
	root, ours := proxied(uri)
	return f.path == "" || ours && (root == f.path || isBelow(uri, f.path))
}
