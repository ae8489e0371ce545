package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Not everybody may write everywhere. A folder that somebody uploads to is theirs, and what a
// registered version consists of stays as it is; docs/adr/0009-code-of-others.md says why. Both are
// a hold on the folder, which covers every name below it.

// The kinds of documents: holds, and what somebody uploaded that was there already.
const (
	kindHolds  = "blobholds"
	kindProofs = "blobproofs"
)

// hold is what keeps a folder, or one blob, from being written to. Its document is named for the
// place.
type hold struct {
	// Owner is who uploads there. Nobody else adds or changes anything.
	Owner string `json:"owner,omitempty"`
	// Versions are the registered versions that lie there. What there is stays as it is, for
	// everybody.
	Versions []string `json:"versions,omitempty"`
	// Makers are the users who registered the versions among them that hold only what their maker
	// wrote.
	Makers map[string]string `json:"makers,omitempty"`
	// Whole says that nothing is added to them either.
	Whole bool `json:"whole,omitempty"`
	// Version is the version token of what lies there now, see Version.
	Version string `json:"version,omitempty"`
}

type writerKey struct{}

// WithUser returns a context whose writes belong to a user. Other writes belong to nobody.
func WithUser(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, writerKey{}, user)
}

func writer(ctx context.Context) string {
	user, _ := ctx.Value(writerKey{}).(string)
	return user
}

func placeKey(parts ...string) string {
	h := sha256.Sum256([]byte(strings.Join(parts, "\x00"))) // which no name has
	return hex.EncodeToString(h[:])
}

func getHold(tx *store.Tx, container, name string) (h hold, d *store.Doc, err error) {
	d, err = tx.Get("", kindHolds, placeKey(container, name), "")
	if berth.CodeOf(err) == berth.NotFound {
		return h, nil, nil
	}
	if err == nil {
		err = json.Unmarshal(d.Body, &h)
	}
	return h, d, err
}

func putHold(tx *store.Tx, container, name string, h hold, d *store.Doc) error {
	body, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if d == nil {
		d = &store.Doc{Kind: kindHolds, Name: placeKey(container, name), Parent: container, CreatedBy: h.Owner, Body: body}
		return tx.Insert(d)
	}
	d.Body, d.Parent = body, container
	return tx.Save(d)
}

// uploadRoots are the folders below which clients name folders for what they claim to hold.
var uploadRoots = []string{"LocalUpload/", "az-ml-artifacts/"}

// uploadFolder is the folder a client named for its content that a name lies in, "" when there is
// none.
func uploadFolder(name string) string {
	for _, root := range uploadRoots {
		if rest, ok := strings.CutPrefix(name, root); ok {
			if hash, _, ok := strings.Cut(rest, "/"); ok && hash != "" {
				return root + hash
			}
		}
	}
	return ""
}

// restraint is why a name may not be written to, as far as it may not.
type restraint struct {
	owner   string   // whose the folder is
	change  error    // why what is there may not change
	makers  []maker  // whose files there may not change
	add     error    // why nothing may be added
	version string   // a version that consists of it
	named   []string // the places above it that have a Version
}

// maker is a user whose version holds what they wrote themselves.
type maker struct{ user, version string }

// refuse is why a blob that is there may not change, nil where it may.
func (r restraint) refuse(b *store.Blob) error {
	if r.change != nil {
		return r.change
	}
	for _, m := range r.makers {
		if b.Writer == m.user || b.Writer == "" {
			return belongsTo(b.Name, m.version)
		}
	}
	return nil
}

func belongsTo(name, version string) error {
	return held("blob " + quote(name) + " belongs to " + version + ", and versions are immutable; upload to another path and register a new version")
}

// restrained collects the holds on a name.
func restrained(tx *store.Tx, container, name, writer string) (r restraint, err error) {
	if strings.HasPrefix(name, fixedRoot) {
		r.change = held("blob " + quote(name) + " is in storage reserved for registered versions; write to another path")
		r.add, r.version = r.change, "a version"
		return r, nil
	}
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		h, d, err := getHold(tx, container, name[:i])
		if err != nil {
			return r, err
		}
		if d == nil {
			continue
		}
		if h.Version != "" {
			r.named = append(r.named, name[:i])
		}
		if h.Owner != "" {
			r.owner = h.Owner
		}
		if h.Owner != "" && h.Owner != writer {
			r.change = held("blob " + quote(name) + " is in a folder that " + h.Owner + " uploads to; others can upload only identical content there")
			r.add = r.change
		}
		r.holdVersions(name, h)
	}
	return r, nil
}

// holdVersions adds what the versions at one place hold.
func (r *restraint) holdVersions(name string, h hold) {
	for _, v := range h.Versions {
		r.version = v
		if user, ok := h.Makers[v]; ok {
			r.makers = append(r.makers, maker{user, v})
			continue
		}
		r.change = belongsTo(name, v)
		if h.Whole {
			r.add = r.change
		}
	}
}

// held is Azure's error for a blob that a policy keeps as it is.
func held(msg string) error {
	return &berth.Error{Code: berth.Conflict, Wire: "BlobImmutableDueToPolicy", Msg: msg}
}

// alreadyThere says whether a write is done before it began: a held blob has this content already.
// It is an error where it has another.
func alreadyThere(tx *store.Tx, container, name, writer, hash string) (*store.Blob, error) {
	r, err := restrained(tx, container, name, writer)
	if err != nil {
		return nil, err
	}
	folder := uploadFolder(name)
	if folder != "" && r.owner == "" && writer != "" && r.add == nil {
		h, d, err := getHold(tx, container, folder)
		if err != nil {
			return nil, err
		}
		h.Owner = writer
		if err := putHold(tx, container, folder, h, d); err != nil {
			return nil, err
		}
	}
	if r.change == nil && r.add == nil && len(r.makers) == 0 {
		return nil, changed(tx, container, r.named)
	}
	old, err := tx.Blob(container, name)
	switch {
	case berth.CodeOf(err) == berth.NotFound && r.add != nil:
		return nil, r.add
	case err != nil && berth.CodeOf(err) != berth.NotFound:
		return nil, err
	case err != nil || r.refuse(old) == nil:
		return nil, changed(tx, container, r.named)
	case old.Hash == "" || old.Hash != hash:
		return nil, r.refuse(old)
	}
	if folder != "" && writer != "" && writer != r.owner {
		return old, prove(tx, container, name, writer, hash)
	}
	return old, nil
}

// mayAdd refuses an upload in parts to a name where nothing is and nothing may be added.
func (s *Store) mayAdd(ctx context.Context, container, name string) error {
	return s.db.View(ctx, func(tx *store.Tx) error {
		r, err := restrained(tx, container, name, writer(ctx))
		if err != nil || r.add == nil {
			return err
		}
		if _, err = tx.Blob(container, name); berth.CodeOf(err) == berth.NotFound {
			return r.add
		}
		return err
	})
}

// proof is what somebody has uploaded that was there already.
type proof struct {
	Hash string `json:"hash"`
}

// prove notes that somebody has uploaded the content with this hash, which was there already.
func prove(tx *store.Tx, container, name, writer, hash string) error {
	body, err := json.Marshal(proof{hash})
	if err != nil {
		return err
	}
	d, err := tx.Get("", kindProofs, placeKey(container, name, writer), "")
	switch {
	case berth.CodeOf(err) == berth.NotFound:
		return tx.Insert(&store.Doc{Kind: kindProofs, Name: placeKey(container, name, writer), Parent: container, CreatedBy: writer, Body: body})
	case err != nil || bytes.Equal(d.Body, body):
		return err
	}
	d.Body = body
	return tx.Save(d)
}

// hasProved says whether somebody has uploaded to a name at all, and whether it was what is there
// now.
func hasProved(tx *store.Tx, b *store.Blob, user string) (did, same bool, err error) {
	d, err := tx.Get("", kindProofs, placeKey(b.Container, b.Name, user), "")
	if berth.CodeOf(err) == berth.NotFound {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	var p proof
	err = json.Unmarshal(d.Body, &p)
	return true, p.Hash != "" && p.Hash == b.Hash, err
}

// Own makes a folder somebody's.
func Own(tx *store.Tx, container, name, user string) error {
	h, d, err := getHold(tx, container, name)
	if err != nil {
		return err
	}
	if d != nil {
		return berth.Errorf(berth.Conflict, "the folder %s is in use", quote(name))
	}
	h.Owner = user
	return putHold(tx, container, name, h, d)
}

// shared are folders of everybody's, which no version holds.
var shared = []string{"", "LocalUpload", "az-ml-artifacts", "azureml", "azureml/versions", "azureml/ExperimentRun", "ExperimentRun", "UI", "mlflow"}

// isShared says whether a folder is everybody's. In mlflow/N/models are the logged models of an
// experiment.
func isShared(name string) bool {
	if rest, ok := strings.CutPrefix(name, "mlflow/"); ok {
		_, err := strconv.Atoi(strings.TrimSuffix(rest, "/models"))
		return err == nil
	}
	return slices.Contains(shared, name)
}

// Hold keeps what lies at a place as it is, because a version consists of it. Others may be added.
// Several versions may lie at one place. Where the folder is not the user's own, only the files
// that they wrote are kept: others go on with theirs.
func Hold(tx *store.Tx, container, name, version, user string) error {
	name = strings.TrimRight(name, "/")
	if isShared(name) {
		return nil
	}
	owner, err := mayHold(tx, container, name, user)
	if err != nil {
		return err
	}
	if owner == user || uploadFolder(name+"/") != "" {
		return addHold(tx, container, name, version, "", false)
	}
	return addHold(tx, container, name, version, user, false)
}

// HoldAll is Hold for a folder to which nobody has a reason to write any more: all files are kept,
// whoever wrote them.
func HoldAll(tx *store.Tx, container, name, version string) error {
	return addHold(tx, container, strings.TrimRight(name, "/"), version, "", false)
}

// HoldWhole is Hold for what is run: nothing is added to it either. Where the folder is nobody's,
// others may go on to add to it, and what the version consists of is kept at another place, which
// it returns.
func HoldWhole(tx *store.Tx, container, name, version, user string) (place string, err error) {
	name = strings.TrimRight(name, "/")
	if isShared(name) {
		return "", berth.Errorf(berth.Invalid, "the folder %s is shared; put the files of %s in a separate folder", quote(name), version)
	}
	owner, err := mayHold(tx, container, name, user)
	if err != nil {
		return "", err
	}
	if owner != "" && owner != user && uploadFolder(name+"/") == "" {
		return "", held("the folder " + quote(name) + " is used by " + owner + " for uploads; upload to a folder of your own")
	}
	if owner != "" {
		return name, addHold(tx, container, name, version, "", true)
	}
	if err := addHold(tx, container, name, version, user, false); err != nil {
		return "", err
	}
	return fix(tx, container, name, version)
}

// mayHold refuses a folder to which somebody uploaded a part of what another one uploads, and
// returns whose it is.
func mayHold(tx *store.Tx, container, name, user string) (owner string, err error) {
	r, err := restrained(tx, container, name, user)
	if err == nil && r.owner != "" && r.owner != user && uploadFolder(name+"/") != "" {
		err = proved(tx, container, name, user, r.owner)
	}
	return r.owner, err
}

// addHold adds a version to a hold. maker is the user whose files it holds, "" for all files.
func addHold(tx *store.Tx, container, name, version, maker string, whole bool) error {
	h, d, err := getHold(tx, container, name)
	if err != nil || slices.Contains(h.Versions, version) {
		return err
	}
	if maker != "" {
		if h.Makers == nil {
			h.Makers = map[string]string{}
		}
		h.Makers[version] = maker
	}
	h.Versions, h.Whole = append(h.Versions, version), h.Whole || whole
	return putHold(tx, container, name, h, d)
}

// proved refuses a folder to which somebody uploaded what is there already, if there is more in it
// than that.
func proved(tx *store.Tx, container, name, user, owner string) error {
	did, missing := false, ""
	err := below(tx, container, name, func(b *store.Blob) error {
		once, same, err := hasProved(tx, b, user)
		if did = did || once; !same {
			missing = b.Name
		}
		return err
	})
	if err != nil {
		return err
	}
	if did && missing != "" {
		return held("the folder " + quote(name) + " was first uploaded by " + owner + ", with " + quote(missing) + " that you did not upload; use another folder")
	}
	return nil
}

// Release ends what Hold or HoldWhole began.
func Release(tx *store.Tx, container, name, version string) error {
	if err := unfix(tx, container, version); err != nil {
		return err
	}
	name = strings.TrimRight(name, "/")
	h, d, err := getHold(tx, container, name)
	if err != nil || d == nil {
		return err
	}
	delete(h.Makers, version)
	if h.Versions = slices.DeleteFunc(h.Versions, func(v string) bool { return v == version }); len(h.Versions) == 0 {
		h.Whole = false
		if h.Owner == "" {
			return tx.Delete("", kindHolds, d.Name, "")
		}
	}
	return putHold(tx, container, name, h, d)
}

// Owner is who uploads to the folder a name is in, "" when it is nobody's.
func (s *Store) Owner(ctx context.Context, container, name string) (owner string, err error) {
	err = s.db.View(ctx, func(tx *store.Tx) error {
		r, err := restrained(tx, container, name, "")
		owner = r.owner
		return err
	})
	return owner, err
}
