package berth

import (
	"bytes"
	"crypto/sha256"
	"path"
	"strconv"
	"strings"
)

// Tree is the manifest of a folder or of one file: its contents by hash. A node requests its text
// from the server once, and the hash of the text names it.
type Tree struct {
	Single bool // it is one file, which stands for itself
	Files  []TreeFile
	// Skipped are names in the folder that cannot be files on a node; only some of them if there
	// are many.
	Skipped []string
}

// TreeFile is a file of a tree, or a folder in it that may be empty.
type TreeFile struct {
	Path string // below the folder, with slashes; that of a folder ends with one
	Size int64
	Mode uint32 // permissions
	Hash string // SHA-256, in hex
}

// Folder reports whether it is a folder.
func (f *TreeFile) Folder() bool { return strings.HasSuffix(f.Path, "/") }

// The text is a line, a record for each file that a zero byte ends, and a line with their number,
// without which it is not whole.
const (
	treeFolder = "berth tree 1 folder\n"
	treeSingle = "berth tree 1 file\n"
	treeEnd    = "end "
	treeSkip   = "skip "
)

// AppendHead, AppendFile and AppendEnd write the text of a tree, piece by piece.
func (t *Tree) AppendHead(b []byte) []byte {
	if t.Single {
		return append(b, treeSingle...)
	}
	return append(b, treeFolder...)
}

// AppendFile is described at AppendHead.
func (f *TreeFile) AppendFile(b []byte) []byte {
	b = append(b, f.Hash...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, f.Size, 10)
	b = append(b, ' ')
	b = strconv.AppendUint(b, uint64(f.Mode), 8)
	b = append(b, ' ')
	b = append(b, f.Path...)
	return append(b, 0)
}

// AppendSkipped writes a name that is left out.
func AppendSkipped(b []byte, name string) []byte {
	return append(append(append(b, treeSkip...), name...), 0)
}

// AppendEnd is described at AppendHead.
func (t *Tree) AppendEnd(b []byte, files int) []byte {
	b = append(b, treeEnd...)
	b = strconv.AppendInt(b, int64(files), 10)
	return append(b, '\n')
}

// ParseTree reads the text of a tree and refuses one that is truncated, or that contains a path
// outside its folder, or the same path twice.
func ParseTree(text []byte) (*Tree, error) {
	bad := func(format string, args ...any) (*Tree, error) {
		return nil, Errorf(Invalid, "the manifest "+format, args...)
	}
	t := new(Tree)
	rest, ok := bytes.CutPrefix(text, []byte(treeFolder))
	if !ok {
		if rest, ok = bytes.CutPrefix(text, []byte(treeSingle)); !ok {
			return bad("has an unsupported format")
		}
		t.Single = true
	}
	t.Files = make([]TreeFile, 0, bytes.Count(rest, []byte{0}))
	left, names := string(rest), distinct{}
	for {
		record, more, found := strings.Cut(left, "\x00")
		if !found {
			break
		}
		left = more
		if name, ok := strings.CutPrefix(record, treeSkip); ok {
			t.Skipped = append(t.Skipped, name)
			continue
		}
		f, err := parseTreeFile(record)
		if err != nil {
			return nil, err
		}
		if !names.add(t.Files, strings.TrimSuffix(f.Path, "/")) {
			return bad("contains %q twice", f.Path)
		}
		t.Files = append(t.Files, f)
	}
	if left != string(t.AppendEnd(nil, len(t.Files))) {
		return bad("is truncated")
	}
	if t.Single && (len(t.Files) != 1 || strings.Contains(t.Files[0].Path, "/")) {
		return bad("describes one file but contains others")
	}
	return t, nil
}

// distinct finds a name that is there twice. Manifests are nearly always in order, and then the one
// before is all that has to be looked at.
type distinct struct {
	last string
	seen map[string]bool // all names, once one was out of order
}

// add is false for a name that is among the files already.
func (d *distinct) add(files []TreeFile, name string) bool {
	if d.seen == nil && (name > d.last || len(files) == 0) {
		d.last = name
		return true
	}
	if d.seen == nil {
		d.seen = make(map[string]bool, cap(files))
		for i := range files {
			d.seen[strings.TrimSuffix(files[i].Path, "/")] = true
		}
	}
	if d.seen[name] {
		return false
	}
	d.seen[name] = true
	return true
}

func parseTreeFile(record string) (f TreeFile, err error) {
	bad := func(why string) (TreeFile, error) {
		return f, Errorf(Invalid, "the manifest has a record that %s: %q", why, record)
	}
	hash, rest, _ := strings.Cut(record, " ")
	bytes, rest, _ := strings.Cut(rest, " ")
	permissions, name, ok := strings.Cut(rest, " ")
	if !ok {
		return bad("lacks a part")
	}
	size, err1 := strconv.ParseInt(bytes, 10, 64)
	mode, err2 := strconv.ParseUint(permissions, 8, 32)
	if err1 != nil || err2 != nil || size < 0 || mode&^0o777 != 0 {
		return bad("has no size or mode")
	}
	f = TreeFile{Path: name, Size: size, Mode: uint32(mode), Hash: hash}
	if !f.Folder() && !isHash(f.Hash) {
		return bad("has no hash")
	}
	if !TreePath(strings.TrimSuffix(f.Path, "/")) {
		return bad("has a path outside the folder")
	}
	return f, nil
}

// TreePath reports whether a path can be that of a file in a folder, on any node.
func TreePath(p string) bool {
	if p == "" || p == "." || p == ".." || path.IsAbs(p) || path.Clean(p) != p || strings.HasPrefix(p, "../") || strings.ContainsAny(p, "\\\x00") {
		return false
	}
	for part := range strings.SplitSeq(p, "/") {
		if len(part) > maxTreePart {
			return false
		}
	}
	return true
}

// maxTreePart is how many bytes the name of a file or folder may have: as many as file systems
// take.
const maxTreePart = 255

func isHash(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(s) == 2*sha256.Size
}

// Bytes returns the total size of all files.
func (t *Tree) Bytes() (n int64) {
	for i := range t.Files {
		n += t.Files[i].Size
	}
	return n
}
