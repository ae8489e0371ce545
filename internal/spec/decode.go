package spec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Limits on what is read, so that a hostile or mistaken file is refused in a moment.
const (
	MaxFile  = 16 << 20    // bytes of a file
	maxText  = 2 * MaxFile // bytes of all texts of a document, aliases counted as often as they are used
	maxNodes = 1_000_000   // values of a document, counted likewise
	maxDepth = 100         // nesting
	maxTwice = 50          // repeated keys that are told
)

// document is a YAML file: where it is, for relative paths and for messages.
type document struct {
	name string // as people know it
	dir  string // absolute
	path string // absolute, "" when the text did not come from a file
	// lines are the source, to find the place of an expression inside a text.
	lines []string
	// twice are keys that are there more than once.
	twice Errors
}

// open reads and decodes the file at path, name being what to call it in messages.
func open(path, name string) (*value, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, Errors{{File: name, Msg: err.Error()}}
	}
	if isDir(abs) {
		return nil, Errors{{File: name, Msg: "is a folder, not a YAML file"}}
	}
	data, err := ReadFile(abs)
	if err != nil {
		return nil, Errors{{File: name, Msg: reason(err)}}
	}
	return decode(data, &document{name: name, dir: filepath.Dir(abs), path: abs})
}

// ReadFile reads a file that somebody named, but for a little more than MaxFile of it: no pipe that
// nobody writes to, no device.
func ReadFile(path string) ([]byte, error) {
	// Looked at before it is opened: opening a pipe waits for whoever writes to it.
	if st, err := os.Stat(path); err == nil && !st.IsDir() && !st.Mode().IsRegular() && !handed(path) {
		return nil, &os.PathError{Op: "open", Path: path, Err: errors.New("is a pipe or a device, not a regular file")}
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, MaxFile+1))
}

// handed says whether path is something this process was started with, such as the shell's
// <(command): somebody writes to it.
func handed(path string) bool {
	return path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/") || strings.HasPrefix(path, "/proc/self/fd/")
}

// reason is a file error without the path it repeats.
func reason(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// decode reads one YAML document whose top is a mapping.
func decode(data []byte, doc *document) (v *value, err error) {
	v, err = decodeAny(data, doc)
	if err != nil {
		return nil, err
	}
	if v.shape == null {
		return nil, Errors{{File: doc.name, Msg: "file is empty"}}
	}
	if v.shape != mapping {
		return nil, Errors{{File: doc.name, Line: v.line, Col: v.col, Msg: "must contain a mapping (key: value), not " + v.shape.String()}}
	}
	return v, nil
}

// decodeAny is decode for any top-level value.
func decodeAny(data []byte, doc *document) (v *value, err error) {
	if len(data) > MaxFile {
		return nil, Errors{{File: doc.name, Msg: fmt.Sprintf("is larger than %d MB", MaxFile>>20)}}
	}
	data, bad := utf8Text(data)
	if bad != nil {
		return nil, Errors{{File: doc.name, Line: bad.line, Col: bad.col, Msg: bad.msg}}
	}
	// The parser is not ours: whatever it does with hostile input, the caller gets an error.
	defer func() {
		if r := recover(); r != nil {
			v, err = nil, Errors{{File: doc.name, Msg: fmt.Sprintf("is not valid YAML: %v", r)}}
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var top yaml.Node
	if err := dec.Decode(&top); errors.Is(err, io.EOF) {
		return &value{shape: null, doc: doc, line: 1, col: 1}, nil
	} else if err != nil {
		return nil, Errors{syntax(doc, data, err)}
	}
	var more yaml.Node
	if err := dec.Decode(&more); err == nil {
		return nil, Errors{{File: doc.name, Line: more.Line, Col: more.Column, Msg: "contains more than one document; put each in its own file"}}
	} else if !errors.Is(err, io.EOF) {
		return nil, Errors{syntax(doc, data, err)}
	}
	if len(top.Content) == 0 {
		return &value{shape: null, doc: doc, line: 1, col: 1}, nil
	}
	doc.lines = strings.Split(string(data), "\n")
	b := builder{doc: doc, open: map[*yaml.Node]bool{}}
	return b.build(top.Content[0], 0)
}

func syntax(doc *document, data []byte, err error) Error {
	e := Error{File: doc.name, Msg: strings.TrimPrefix(err.Error(), "yaml: ")}
	where := ""
	var load *yaml.LoadError
	if errors.As(err, &load) {
		e.Line, e.Col, e.Msg = load.Mark.Line, load.Mark.Column, "is not valid YAML: "+load.Message
		if e.Line == 0 && load.Mark.Index <= len(data) { // of what no text may hold only the offset is told
			e.Line, e.Col = placeOf(data[:load.Mark.Index])
		}
		if where = load.ContextMsg; where != "" && load.ContextMark != load.Mark {
			e.Msg += fmt.Sprintf(" (%s that begins at %d:%d)", where, load.ContextMark.Line, load.ContextMark.Column)
		}
	}
	if strings.Contains(e.Msg, "found character that cannot start any token") {
		e.Msg += " (indent with spaces, not tabs; put a string that begins with @, ` or % in quotes)"
	}
	if strings.HasPrefix(where, "while parsing a flow") {
		e.Msg += " (put ${{ }} in quotes inside { } or [ ])"
	}
	return e
}

// builder turns the parser's nodes into values by YAML 1.1's rules.
type builder struct {
	doc   *document
	count int
	text  int                 // bytes
	open  map[*yaml.Node]bool // anchors being built, to refuse a value that holds itself
}

func (b *builder) fail(n *yaml.Node, format string, args ...any) error {
	return Errors{{File: b.doc.name, Line: n.Line, Col: n.Column, Msg: fmt.Sprintf(format, args...)}}
}

func (b *builder) build(n *yaml.Node, depth int) (*value, error) {
	if b.count++; b.count > maxNodes {
		return nil, b.fail(n, "contains more than %d values; check for aliases that refer to aliases", maxNodes)
	}
	if depth > maxDepth {
		return nil, b.fail(n, "is nested more than %d levels deep", maxDepth)
	}
	v := &value{doc: b.doc, line: n.Line, col: n.Column}
	switch n.Kind {
	case yaml.AliasNode:
		if b.open[n.Alias] {
			return nil, b.fail(n, "anchor %q contains itself", n.Value)
		}
		return b.build(n.Alias, depth+1)
	case yaml.ScalarNode:
		if b.text += len(n.Value); b.text > maxText {
			return nil, b.fail(n, "contains more than %d MB of text; check for aliases that refer to aliases", maxText>>20)
		}
		return v, b.scalar(v, n)
	case yaml.SequenceNode:
		b.open[n] = true
		defer delete(b.open, n)
		v.shape = list
		for _, c := range n.Content {
			item, err := b.build(c, depth+1)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, item)
		}
		return v, b.collection(n, "!!seq")
	case yaml.MappingNode:
		b.open[n] = true
		defer delete(b.open, n)
		v.shape = mapping
		if err := b.pairs(v, n, depth); err != nil {
			return nil, err
		}
		return v, b.collection(n, "!!map")
	}
	return nil, b.fail(n, "is not valid YAML")
}

func (b *builder) scalar(v *value, n *yaml.Node) error {
	if n.Style&yaml.TaggedStyle != 0 && n.Tag != "!" {
		if err := tagged(v, n.ShortTag(), n.Value); err != nil {
			return b.fail(n, "%s", err)
		}
		return nil
	}
	if n.Tag == "!" || n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		v.shape, v.text = str, n.Value
		return nil
	}
	resolve(v, n.Value)
	return nil
}

func (b *builder) collection(n *yaml.Node, own string) error {
	if n.Style&yaml.TaggedStyle != 0 && n.ShortTag() != own {
		return b.fail(n, "tag %s is not supported; use only YAML's standard types", n.Tag)
	}
	return nil
}

// pairs fills the mapping v: merged keys first, then its own, the last of equal keys winning.
func (b *builder) pairs(v *value, n *yaml.Node, depth int) error {
	var merged, own []pair
	seen := make(map[string]*value, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, err := b.build(n.Content[i], depth+1)
		if err != nil {
			return err
		}
		val, err := b.build(n.Content[i+1], depth+1)
		if err != nil {
			return err
		}
		switch {
		case !k.scalar():
			return b.fail(n.Content[i], "a key must be a scalar, not %s", k.shape)
		case k.shape == str && k.text == "<<" && n.Content[i].Style == 0:
			more, err := b.merge(val)
			if err != nil {
				return err
			}
			merged = append(merged, more...)
		default:
			p := pair{key: keyText(k), at: k, val: val, text: k.shape == str}
			if first := seen[p.key]; first != nil && len(b.doc.twice) < maxTwice {
				b.doc.twice = append(b.doc.twice, Error{
					File: b.doc.name, Line: k.line, Col: k.col,
					Msg: fmt.Sprintf("duplicate key %q, first set on line %d; this value is used", p.key, first.line),
				})
			}
			seen[p.key] = k
			own = append(own, p)
		}
	}
	index := make(map[string]int, len(merged)+len(own))
	for _, p := range append(merged, own...) {
		if i, ok := index[p.key]; ok {
			v.pairs[i] = p
			continue
		}
		index[p.key] = len(v.pairs)
		v.pairs = append(v.pairs, p)
	}
	return nil
}

func (b *builder) merge(val *value) ([]pair, error) {
	switch val.shape {
	case mapping:
		return val.pairs, nil
	case list:
		var all []pair
		for i := len(val.items) - 1; i >= 0; i-- {
			if val.items[i].shape != mapping {
				break
			}
			all = append(all, val.items[i].pairs...)
		}
		if len(val.items) > 0 && val.items[0].shape == mapping {
			return all, nil
		}
	}
	return nil, Errors{{File: b.doc.name, Line: val.line, Col: val.col, Msg: "<< takes a mapping or a list of mappings, not " + val.shape.String()}}
}

// keyText is a key as JSON writes it.
func keyText(k *value) string {
	switch k.shape {
	case boolean:
		return strconv.FormatBool(k.yes)
	case null:
		return "null"
	}
	return k.python()
}
