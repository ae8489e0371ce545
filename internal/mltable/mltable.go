// Package mltable reads MLTable files and evaluates them: which files a table consists of, and
// which rows of them.
//
// Without a transformation that reads rows, a table is a selection of files. With read_delimited,
// read_json_lines or read_parquet it is their rows, which are written to files of the same names
// and format. Parquet files of which all is left stay as they are.
package mltable

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/berthml/berth"
)

// Name is the name of the file in a table's folder.
const Name = "MLTable"

// MaxSize bounds an MLTable file.
const MaxSize = 1 << 20

// Table is a table that can be evaluated.
type Table struct {
	paths []selector
	files []step // before rows are read: of the list of files
	read  *reading
	rows  []step // of rows, in order
}

// What paths may have: a node that evaluates a table serves others too.
const (
	maxPaths = 1000
	maxPath  = 4096 // bytes
)

// selector is an item of paths.
type selector struct {
	kind    string // file, folder or pattern
	pattern string // relative to the folder of the table, clean
	parts   []string
}

// step is a transformation after paths, of files or of rows.
type step struct {
	skip, take  *int64
	sample      *sample
	keep, drop  []string
	filter      condition
	filtered    []comparison // of filter
	description string
}

// Rows says whether the table is rows of its files, so that they have to be written.
func (t *Table) Rows() bool {
	return t.read != nil && (t.read.format != columnar || t.read.pathColumn || len(t.rows) > 0)
}

// Form is how rows of text that Write has written are to be read.
type Form struct {
	Format    string `json:"format"` // delimited or lines
	Delimiter string `json:"delimiter,omitempty"`
	Header    bool   `json:"header,omitempty"`
}

// Form is that of the table's rows; ok is false if they are not rows of text.
func (t *Table) Form() (form Form, ok bool) {
	switch {
	case t.read == nil || t.read.format == columnar:
		return Form{}, false
	case t.read.format != delimited:
		return Form{Format: "lines"}, true
	}
	return Form{Format: "delimited", Delimiter: string(t.read.delimiter), Header: t.read.header != noHeader}, true
}

// Parse reads the text of an MLTable file. What cannot be evaluated here is refused.
func Parse(text []byte) (*Table, error) {
	t, err := parse(text)
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "the MLTable file: %w", err)
	}
	return t, nil
}

func parse(text []byte) (*Table, error) {
	if len(text) > MaxSize {
		return nil, berth.Errorf(berth.Invalid, "it is larger than %d bytes", MaxSize)
	}
	var top map[string]any
	if err := yaml.Unmarshal(text, &top); err != nil {
		return nil, fmt.Errorf("it is not YAML: %w", err)
	}
	t := &Table{}
	for key := range top {
		switch key {
		case "type", "$schema", "paths", "transformations", "metadata", "traits", "skip_validation":
		default:
			return nil, unsupported(key)
		}
	}
	if kind, ok := top["type"]; ok && kind != "mltable" {
		return nil, berth.Errorf(berth.Invalid, "type must be mltable, not %v", kind)
	}
	if err := t.parsePaths(top["paths"]); err != nil {
		return nil, err
	}
	list, ok := top["transformations"].([]any)
	if !ok && top["transformations"] != nil {
		return nil, berth.Errorf(berth.Invalid, "transformations must be a list")
	}
	for _, item := range list {
		name, value, err := named(item)
		if err == nil {
			err = t.add(name, value)
		}
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// unsupported refuses what would have to be evaluated and is not.
func unsupported(what string) error {
	return berth.Errorf(berth.Invalid, "%s cannot be evaluated on a node; use mode ro_mount or direct, and evaluate the table with the mltable package", what)
}

// named is an item of transformations: a name, or a mapping with one.
func named(item any) (name string, value any, err error) {
	switch x := item.(type) {
	case string:
		return x, nil, nil
	case map[string]any:
		if len(x) == 1 {
			for name, value = range x {
				return name, value, nil
			}
		}
	}
	return "", nil, berth.Errorf(berth.Invalid, "transformations: each item must be a mapping with one key, the transformation")
}

func (t *Table) parsePaths(v any) error {
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return berth.Errorf(berth.Invalid, "paths must be a list of file, folder or pattern")
	}
	if len(list) > maxPaths {
		return berth.Errorf(berth.Invalid, "paths has %d items; %d are allowed: use patterns", len(list), maxPaths)
	}
	for _, item := range list {
		m, _ := item.(map[string]any)
		if len(m) != 1 {
			return berth.Errorf(berth.Invalid, "paths: each item must be a mapping with one of file, folder and pattern")
		}
		for kind, p := range m {
			text, ok := p.(string)
			if !slices.Contains([]string{"file", "folder", "pattern"}, kind) || !ok {
				return berth.Errorf(berth.Invalid, "paths: each item must be a mapping with one of file, folder and pattern, which is a string")
			}
			clean, err := relative(text)
			if err == nil && kind == "pattern" {
				_, err = path.Match(clean, "")
			}
			if err != nil {
				return fmt.Errorf("paths: %s: %w", text, err)
			}
			parts := slices.CompactFunc(strings.Split(clean, "/"), func(a, b string) bool { return a == "**" && b == "**" })
			t.paths = append(t.paths, selector{kind: kind, pattern: clean, parts: parts})
		}
	}
	return nil
}

// relative is a path below the table's folder, clean.
func relative(p string) (string, error) {
	if scheme, _, ok := strings.Cut(p, ":"); ok && !strings.ContainsAny(scheme, "/*?[") {
		return "", unsupported("an address")
	}
	if len(p) > maxPath {
		return "", berth.Errorf(berth.Invalid, "the path is longer than %d bytes", maxPath)
	}
	clean := path.Clean(p)
	if p == "" || path.IsAbs(p) || clean == ".." || strings.HasPrefix(clean, "../") || strings.Contains(p, "\\") {
		return "", berth.Errorf(berth.Invalid, "the path must be relative to the MLTable file, and below its folder")
	}
	return clean, nil
}

// Select returns those of the files below the table's folder that the table consists of, in its
// order. MLTable itself is never among them.
func (t *Table) Select(ctx context.Context, files []string) ([]string, error) {
	out, missing, err := t.match(ctx, files)
	if err != nil {
		return nil, err
	}
	if missing != nil {
		return nil, berth.Errorf(berth.NotFound, "the MLTable file: paths: %s %s matches no file in its folder", missing.kind, missing.pattern)
	}
	for _, s := range t.files {
		run := s.begin()
		out = slices.DeleteFunc(out, func(string) bool { return !run.wants() })
	}
	return out, nil
}

// Sort puts files that Select returned before, of which nothing else is there any more, into the
// table's order.
func (t *Table) Sort(ctx context.Context, files []string) ([]string, error) {
	out, _, err := t.match(ctx, files)
	return out, err
}

// match returns the files that paths name, and the first of paths that names none.
func (t *Table) match(ctx context.Context, files []string) (out []string, missing *selector, err error) {
	sorted := slices.Sorted(slices.Values(files))
	seen := map[string]bool{Name: true}
	for i := range t.paths {
		s, found := &t.paths[i], false
		for n, f := range sorted {
			if n%1024 == 0 && ctx.Err() != nil {
				return nil, nil, context.Cause(ctx)
			}
			if !s.matches(f) {
				continue
			}
			found = true
			if !seen[f] {
				seen[f] = true
				out = append(out, f)
			}
		}
		if !found && missing == nil {
			missing = s
		}
	}
	return out, missing, nil
}

func (s *selector) matches(file string) bool {
	switch s.kind {
	case "file":
		return file == s.pattern
	case "folder":
		return s.pattern == "." || strings.HasPrefix(file, s.pattern+"/")
	}
	return glob(s.parts, strings.Split(file, "/"))
}

// glob matches part by part; ** is any number of folders. ends[i] says that the pattern so far can
// end before part i of the name.
func glob(pattern, name []string) bool {
	ends := make([]bool, len(name)+1)
	ends[0] = true
	for _, p := range pattern {
		next := make([]bool, len(name)+1)
		for i := range name {
			switch {
			case p == "**":
				next[i] = next[i] || ends[i]
				next[i+1] = next[i]
			case ends[i]:
				ok, err := path.Match(p, name[i])
				next[i+1] = ok && err == nil
			}
		}
		if p == "**" {
			next[len(name)] = next[len(name)] || ends[len(name)]
		}
		ends = next
	}
	return ends[len(name)]
}
