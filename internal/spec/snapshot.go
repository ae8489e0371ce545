package spec

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthml/berth"
)

// MaxFiles bounds a snapshot: more is a mistake, such as a home folder named as code.
const MaxFiles = 200_000

// HashVersion and IndexedVersion name the ways Folder.Hash is made; they travel beside the hash.
// Azure's hash takes reading every file. With an index the hash is one of the files' hashes, so
// that only files that were changed are read.
const (
	HashVersion    = 202208
	IndexedVersion = 1
)

// Folder is what is uploaded for a local path.
type Folder struct {
	Files []File
	// Hash is the content hash that code is de-duplicated by: without an index it is equal to the
	// one Azure's clients make. HashVersion says which it is.
	Hash        string
	HashVersion int
	// Skipped says of what is neither a file nor a folder what it is: it is not uploaded.
	Skipped []string
	// Ignored are the first files and folders (which end with a slash) that only .gitignore leaves
	// out.
	Ignored []string
	// strays says of each link that leads out of the folder what is wrong with it.
	strays []string
}

// File is one file of a Folder.
type File struct {
	Name string // relative to the folder, with slashes
	Path string // absolute, links followed
	Size int64
	Hash string // SHA-256 in hex, where it is known
	// Asked says that .amlignore takes it back (a line with !), whatever else would leave it out.
	Asked bool

	stamp stamp
}

// stamp is what tells a file that was changed from one that was not, as far as the system says.
type stamp struct {
	modified, changed int64 // nanoseconds
	inode             uint64
}

// Snapshot lists the files to upload for Path, a folder or a single file, less what .amlignore (or,
// failing that, .gitignore) in it names, and hashes them. Includes are put beside the code, each
// under its own name. Links are followed within the folder; one that leads out of it, to nothing,
// or back to a folder that is being listed is an error.
func (u Upload) Snapshot() (*Folder, error) {
	f, err := u.List()
	if err != nil {
		return nil, err
	}
	return f, u.Sum(f)
}

// List is Snapshot without the hash: no file is read.
func (u Upload) List() (*Folder, error) {
	f, err := u.listing()
	return f, u.wrong(err)
}

// Sum gives what List listed its hash. Files are read unless the index knows the folder as it
// looks.
func (u Upload) Sum(f *Folder) error {
	if len(f.strays) > 0 {
		return berth.Errorf(berth.Invalid, "%s", strings.Join(f.strays, "\n"))
	}
	f.sort()
	f.HashVersion = HashVersion
	if u.Index == "" {
		return u.wrong(f.sum())
	}
	f.HashVersion = IndexedVersion
	now := time.Now()
	looks, settled := f.looks(now)
	if settled {
		if f.Hash = u.recall(looks); f.Hash != "" {
			return nil
		}
	}
	if err := u.sumFiles(f, now); err != nil {
		return u.wrong(err)
	}
	if settled {
		u.remember(looks, f.Hash)
	}
	return nil
}

// Again looks at the files of a folder anew and sums them up. What the index says of them is not
// believed.
func (u Upload) Again(f *Folder) error {
	u.forget()
	for i := range f.Files {
		x := found{file: f.Files[i].Path, name: f.Files[i].Name}
		switch x.look(); {
		case x.err != nil:
			return u.wrong(x.err)
		case x.skipped != "":
			return u.wrong(berth.Errorf(berth.Invalid, "%s, and was a file before", x.skipped))
		}
		f.Files[i] = x.is
	}
	return u.Sum(f)
}

// wrong is an error with the place in a file that names the upload.
func (u Upload) wrong(err error) error {
	if err == nil || u.At.File == "" {
		return err
	}
	at := u.At
	at.Msg = err.Error()
	return Errors{at}
}

// Bytes is how much there is in all files.
func (f *Folder) Bytes() (total int64) {
	for _, file := range f.Files {
		total += file.Size
	}
	return total
}

// fingerprint tells an upload's content apart from others: its hash, or, when there is much of it,
// its names, sizes and times.
func (u Upload) fingerprint() string {
	const much = 64 << 20
	f, err := u.listing()
	if err != nil {
		return u.Path
	}
	if f.Bytes() <= much && f.finish() == nil {
		return f.Hash
	}
	var b strings.Builder
	for _, file := range f.Files {
		fmt.Fprintf(&b, "%s %d", file.Name, file.Size)
		if st, err := os.Stat(file.Path); err == nil {
			fmt.Fprintf(&b, " %d", st.ModTime().UnixNano())
		}
		b.WriteByte('\n')
	}
	return hexSum(b.String())
}

// listing is a snapshot without its hash; links that lead out of the folder are among its strays.
// The index is left out: it changes with every upload.
func (u Upload) listing() (*Folder, error) {
	f := &Folder{}
	if rel := u.indexBelow(); rel != "" {
		u.Ignore = append(u.Ignore[:len(u.Ignore):len(u.Ignore)], "/"+rel+"/")
	}
	if u.Path == "" { // includes alone
		return f, f.include(u)
	}
	st, err := os.Stat(u.Path)
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "%s: %s", u.Path, reason(err))
	}
	if !st.IsDir() && !st.Mode().IsRegular() {
		return nil, berth.Errorf(berth.Invalid, "%s is neither a file nor a folder and cannot be uploaded", u.Path)
	}
	if !st.IsDir() {
		err = f.add(u.Path, filepath.Base(u.Path))
	} else {
		err = f.walk(u.Path, "", u)
	}
	if err != nil {
		return nil, err
	}
	return f, f.include(u)
}

// include adds further files and folders beside what is there. A name that ends in .zip stands for
// a folder beside it only when there is no such file; that form is not supported.
func (f *Folder) include(u Upload) error {
	seen := map[string]bool{}
	for _, file := range f.Files {
		seen[file.Name] = true
	}
	for _, inc := range u.Includes {
		before := len(f.Files)
		st, err := os.Stat(inc)
		switch {
		case err != nil:
			return berth.Errorf(berth.Invalid, "additional include %s: %s", inc, reason(err))
		case st.IsDir():
			err = f.walk(inc, filepath.Base(inc), u)
		default:
			err = f.add(inc, filepath.Base(inc))
		}
		if err != nil {
			return err
		}
		kept := f.Files[:before]
		for _, file := range f.Files[before:] {
			if !seen[file.Name] {
				seen[file.Name] = true
				kept = append(kept, file)
			}
		}
		f.Files = kept
	}
	return nil
}

func (f *Folder) add(file, name string) error {
	return f.addAll([]found{{file: file, name: name}})
}

// found is a file that was found for a snapshot.
type found struct {
	file, name string
	asked      bool
	// What stat says of it.
	is      File
	skipped string
	err     error
}

// addAll adds files in their order. They are looked at several at a time.
func (f *Folder) addAll(all []found) error {
	if n := len(f.Files) + len(all); n > MaxFiles {
		return tooMany(all[len(all)-1].file)
	}
	const batch = 256
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), (len(all)+batch-1)/batch) {
		workers.Go(func() {
			for {
				end := int(next.Add(batch))
				for i := end - batch; i < min(end, len(all)); i++ {
					all[i].look()
				}
				if end >= len(all) {
					return
				}
			}
		})
	}
	workers.Wait()
	f.Files = slices.Grow(f.Files, len(all))
	for i := range all {
		switch x := &all[i]; {
		case x.err != nil:
			return x.err
		case x.skipped != "":
			f.Skipped = append(f.Skipped, x.skipped)
		default:
			f.Files = append(f.Files, x.is)
		}
	}
	return nil
}

func tooMany(file string) error {
	return berth.Errorf(berth.Limit, "%s exceeds the limit of %d files in a snapshot; exclude files with .amlignore", file, MaxFiles)
}

// look asks the system about the file.
func (x *found) look() {
	real := x.file
	st, err := os.Lstat(x.file)
	if err == nil && st.Mode()&os.ModeSymlink != 0 {
		if real, err = filepath.EvalSymlinks(x.file); err == nil {
			st, err = os.Stat(real)
		}
		if to, _ := os.Readlink(x.file); errors.Is(err, fs.ErrNotExist) { // only to be shown
			x.err = berth.Errorf(berth.Invalid, "%s is a link to %s, which does not exist; remove the link or exclude it with .amlignore", x.file, to)
			return
		}
	}
	switch {
	case err != nil:
		x.err = berth.Errorf(berth.Invalid, "%s: %s", x.file, reason(err))
	case !st.Mode().IsRegular():
		x.skipped = x.name + " is " + special(st.Mode())
	default:
		x.is = File{Name: x.name, Path: real, Size: st.Size(), Asked: x.asked, stamp: stampOf(st)}
	}
}

// special is what something is that is neither a file nor a folder.
func special(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "not a regular file"
}

func (f *Folder) finish() error {
	f.sort()
	return f.sum()
}

// sort is by name without regard to case, as Azure's clients do.
func (f *Folder) sort() {
	type keyed struct {
		key  string
		file File
	}
	all := make([]keyed, len(f.Files))
	for i, file := range f.Files {
		all[i] = keyed{strings.ToLower(file.Name), file}
	}
	order := func(a, b keyed) int {
		return cmp.Or(strings.Compare(a.key, b.key), strings.Compare(a.file.Name, b.file.Name))
	}
	if slices.IsSortedFunc(all, order) {
		return
	}
	slices.SortStableFunc(all, order)
	for i := range all {
		f.Files[i] = all[i].file
	}
}

// sum makes the hash of sorted files: the count, every name and size, then every content.
func (f *Folder) sum() error {
	h := sha256.New()
	fmt.Fprint(h, len(f.Files))
	for _, file := range f.Files {
		fmt.Fprintf(h, "#%s#%d", file.Name, file.Size)
	}
	for _, file := range f.Files {
		if err := copyInto(h, file); err != nil {
			return berth.Errorf(berth.Invalid, "%s: %s", file.Path, reason(err))
		}
	}
	f.Hash = hex.EncodeToString(h.Sum(nil))
	return nil
}

// copyInto copies as much of a file as there was when it was listed: as much is uploaded.
func copyInto(w io.Writer, file File) error {
	r, err := os.Open(file.Path)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(w, io.LimitReader(r, file.Size))
	return err
}

// walk adds the files of dir, called prefix/….
func (f *Folder) walk(dir, prefix string, u Upload) error {
	dir = filepath.Clean(dir)
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return berth.Errorf(berth.Invalid, "%s: %s", dir, reason(err))
	}
	w := walker{folder: f, root: root, prefix: prefix, ignore: ignoreIn(dir, u.Ignore), links: u.Links}
	if err := w.walk(dir, root, prefix, nil); err != nil {
		return err
	}
	return f.addAll(w.found)
}

type walker struct {
	folder *Folder
	root   string // the real folder
	prefix string // of the names of its files
	ignore *Ignore
	links  bool // links may lead out of root
	found  []found
}

// errStray ends the listing of a folder outside as soon as it is known that something of it would
// be uploaded.
var errStray = errors.New("outside the folder")

// walk lists dir, which really is real and whose files are called prefix/…; open are the real
// folders above it.
func (w *walker) walk(dir, real, prefix string, open []string) error {
	if slices.Contains(open, real) {
		return berth.Errorf(berth.Invalid, "%s is a link to a folder that contains it; remove the link or exclude it with .amlignore", dir)
	}
	entries, err := os.ReadDir(real)
	if err != nil {
		return berth.Errorf(berth.Invalid, "%s: %s", dir, reason(err))
	}
	open = append(open[:len(open):len(open)], real)
	inside := w.within(real)
	for _, e := range entries {
		file, name := below(dir, e.Name(), filepath.Separator), e.Name()
		if prefix != "" {
			name = below(prefix, name, '/')
		}
		err := w.entry(e, file, name, open, inside)
		if errors.Is(err, errStray) && inside { // here the way out begins
			to, _ := filepath.EvalSymlinks(file) // only to be shown
			w.folder.strays = append(w.folder.strays, fmt.Sprintf("%s is a link to %s, which is outside the folder; "+
				"replace it with a copy, exclude it with .amlignore, or allow such links with BERTH_FOLLOW_LINKS=1", file, to))
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// entry adds a file, or all of a folder; the last of open is the real folder it is in, which is
// inside the one that is uploaded or not.
func (w *walker) entry(e fs.DirEntry, file, name string, open []string, inside bool) error {
	real, isDir := below(open[len(open)-1], e.Name(), filepath.Separator), e.IsDir()
	if e.Type()&os.ModeSymlink != 0 {
		if to, err := filepath.EvalSymlinks(file); err == nil {
			st, err := os.Stat(to)
			real, isDir, inside = to, err == nil && st.IsDir(), w.within(to)
		}
	}
	rel := strings.TrimPrefix(name[len(w.prefix):], "/")
	// Folders are listed even when a pattern matches them: a later line may take a file back.
	if isDir {
		if w.ignore.prunes(rel) {
			w.folder.ignored(w.ignore, name, rel+"/")
			return nil
		}
		return w.walk(file, real, name, open)
	}
	if w.ignore.Match(rel) {
		w.folder.ignored(w.ignore, name, rel)
		return nil
	}
	if isJoin(real) {
		return nil
	}
	if !inside {
		return errStray
	}
	if e.Type()&os.ModeSymlink == 0 {
		file = real
	}
	if len(w.folder.Files)+len(w.found) >= MaxFiles {
		return tooMany(file)
	}
	w.found = append(w.found, found{file: file, name: name, asked: w.ignore.asks(rel)})
	return nil
}

// below is a name in a directory. Both are clean.
func below(dir, name string, separator byte) string {
	if dir != "" && dir[len(dir)-1] == separator { // the root
		return dir + name
	}
	return dir + string(separator) + name
}

// within says whether a real path may be uploaded.
func (w *walker) within(real string) bool {
	rel, err := filepath.Rel(w.root, real)
	return w.links || err == nil && filepath.IsLocal(rel)
}
