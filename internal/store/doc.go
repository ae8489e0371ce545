package store

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// Doc is one resource document: what the client sent, the fields that Berth owns, and the columns
// for queries.
type Doc struct {
	Workspace string // key of the workspace (lower case ARM id), "" for server-wide things
	Kind      string // collection: "jobs", "codes", "codes/versions", "computes", "workspaces", …
	Name      string // compared without case, kept as first written
	Version   string // for …/versions kinds, else ""
	ID        int64  // insertion order, assigned; lists are in its order
	Rev       berth.Rev
	Created   time.Time
	Updated   time.Time
	CreatedBy string
	Status    string // of a job
	Archived  bool
	Hash      string          // of content: code, a token, …
	Parent    string          // parent job, experiment, …
	Body      json.RawMessage // what the client sent, byte for byte
	Own       json.RawMessage // the fields Berth owns; may be nil
}

// HashOfName is the Hash by which documents are found whose names, unlike Doc.Name, are told apart
// by case: such a document has another Name.
func HashOfName(name string) string {
	h := sha256.Sum256([]byte(name))
	return hex.EncodeToString(h[:16])
}

const (
	docColumns  = "id, name, version, rev, created, updated, created_by, status, archived, hash, parent"
	docLong     = ", body, own"
	docIdentity = " WHERE scope = ? AND key = ? AND version = ?"
	selectDoc   = "SELECT " + docColumns + docLong + " FROM docs" + docIdentity
	insertDoc   = "INSERT INTO docs (id, scope, key, name, version, rev, created, updated, created_by, status, archived, hash, parent, body, own)" +
		" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, key, version) DO NOTHING"
	updateDoc   = "UPDATE docs SET rev = ?, updated = ?, created_by = ?, status = ?, archived = ?, hash = ?, parent = ?, body = ?, own = ?" + docIdentity
	updateState = "UPDATE docs SET rev = ?, updated = ?, status = ?, own = ? WHERE id = ?"
	deleteDoc   = "DELETE FROM docs" + docIdentity
)

// Get reads one document. A missing one is berth.NotFound.
func (tx *Tx) Get(workspace, kind, name, version string) (*Doc, error) {
	scope, err := tx.scope(workspace, kind)
	if err != nil {
		return nil, err
	}
	if scope == 0 {
		return nil, noDoc(kind, name, version)
	}
	k := docKey{scope, strings.ToLower(name), version}
	d := tx.memory.doc(k)
	if d != nil {
		return d, nil
	}
	err = tx.query(func(r row) (bool, error) {
		var err error
		d, err = scanDoc(r, true)
		return false, err
	}, selectDoc, scope, k.key, version)
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, noDoc(kind, name, version)
	}
	d.Workspace, d.Kind = workspace, kind
	tx.memory.keepDoc(k, d)
	return d, nil
}

// Insert adds a document. It sets ID, Rev and Updated, and Created where it is zero. An existing
// one of that name and version is berth.Conflict.
func (tx *Tx) Insert(d *Doc) error {
	scope, err := tx.makeScope(d.Workspace, d.Kind)
	if err != nil {
		return err
	}
	k := docKey{scope, strings.ToLower(d.Name), d.Version}
	delete(tx.derived, scopeKey{d.Workspace, d.Kind})
	rev, now := tx.next(), tx.Now()
	created := d.Created
	if created.IsZero() {
		created = now
	}
	n, err := tx.exec(insertDoc, int64(rev), scope, k.key, d.Name, d.Version, int64(rev),
		nanos(created), nanos(now), d.CreatedBy, d.Status, flag(d.Archived), d.Hash, d.Parent, []byte(d.Body), []byte(d.Own))
	if err != nil {
		return err
	}
	if n == 0 {
		return berth.Errorf(berth.Conflict, "%s already exists", title(d.Kind, d.Name, d.Version))
	}
	d.ID, d.Rev, d.Created, d.Updated = int64(rev), rev, created, now
	tx.memory.keepDoc(k, d)
	return nil
}

// Save writes an existing document: everything but ID, Name and Created. It sets Rev and Updated. A
// missing one is berth.NotFound.
func (tx *Tx) Save(d *Doc) error {
	scope, err := tx.scope(d.Workspace, d.Kind)
	if err != nil {
		return err
	}
	if scope == 0 {
		return noDoc(d.Kind, d.Name, d.Version)
	}
	k := docKey{scope, strings.ToLower(d.Name), d.Version}
	delete(tx.derived, scopeKey{d.Workspace, d.Kind})
	rev, now := tx.next(), tx.Now()
	var n int64
	if id := tx.memory.onlyState(k, d); id != 0 {
		n, err = tx.exec(updateState, int64(rev), nanos(now), d.Status, []byte(d.Own), id)
	} else {
		n, err = tx.exec(updateDoc, int64(rev), nanos(now), d.CreatedBy, d.Status, flag(d.Archived), d.Hash, d.Parent,
			[]byte(d.Body), []byte(d.Own), scope, k.key, d.Version)
	}
	if err != nil {
		return err
	}
	if n == 0 {
		return noDoc(d.Kind, d.Name, d.Version)
	}
	d.Rev, d.Updated = rev, now
	tx.memory.saved(k, d)
	return nil
}

// Delete removes a document. A missing one is berth.NotFound.
func (tx *Tx) Delete(workspace, kind, name, version string) error {
	scope, err := tx.scope(workspace, kind)
	if err != nil {
		return err
	}
	if scope == 0 {
		return noDoc(kind, name, version)
	}
	k := docKey{scope, strings.ToLower(name), version}
	delete(tx.derived, scopeKey{workspace, kind})
	tx.memory.dropDoc(k)
	n, err := tx.exec(deleteDoc, scope, k.key, version)
	if err != nil {
		return err
	}
	if n == 0 {
		return noDoc(kind, name, version)
	}
	tx.next()
	return nil
}

// scanDoc reads a row of docColumns, followed by docLong where long is set.
func scanDoc(r row, long bool) (*Doc, error) {
	var d Doc
	var created, updated int64
	var archived int64
	dest := []any{
		&d.ID, &d.Name, &d.Version, (*int64)(&d.Rev), &created, &updated, &d.CreatedBy, &d.Status, &archived, &d.Hash, &d.Parent,
		(*[]byte)(&d.Body), (*[]byte)(&d.Own),
	}
	if !long {
		dest = dest[:len(dest)-2]
	}
	if err := r.Scan(dest...); err != nil {
		return nil, err
	}
	d.Created, d.Updated, d.Archived = fromNanos(created), fromNanos(updated), archived != 0
	return &d, nil
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// title names a document for people: jobs/x, codes/c/versions/1.
func title(kind, name, version string) string {
	if version == "" {
		return kind + "/" + name
	}
	return strings.TrimSuffix(kind, "/versions") + "/" + name + "/versions/" + version
}

func noDoc(kind, name, version string) error {
	return berth.Errorf(berth.NotFound, "%s does not exist", title(kind, name, version))
}
