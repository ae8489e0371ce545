package mltable

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/parquet"
)

// parquetFile writes the rows of one Parquet file.
func (w *writer) parquetFile(ctx context.Context, from *os.Root, name string) (err error) {
	// The file is anybody's, and so is what the decompressors make of it.
	defer func() {
		if r := recover(); r != nil {
			err = berth.Errorf(berth.Invalid, "it is not a sound Parquet file: reading it ends with %v", r)
		}
	}()
	in, err := from.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return berth.Errorf(berth.Invalid, "it is not a regular file")
	}
	f, err := parquet.Open(in, info.Size())
	if err != nil {
		return err
	}
	p := &projection{file: f, path: w.table.read.pathColumn, name: name, index: map[string]int{}}
	if err := p.plan(w.runs); err != nil {
		return err
	}
	var out *os.File
	var buffer *bufio.Writer
	err = f.Copy(ctx, p.selection(w.runs), func() (io.Writer, error) {
		if out, err = w.open(name); err != nil {
			return nil, err
		}
		buffer = bufio.NewWriterSize(out, 256<<10)
		return buffer, nil
	})
	if out == nil {
		return err
	}
	return errors.Join(err, buffer.Flush(), out.Close())
}

// projection is which columns of a Parquet file are left.
type projection struct {
	file    *parquet.File
	name    string         // of the file
	path    bool           // the column with the name of the file is left
	index   map[string]int // of the columns of the file by name
	columns []int          // that are left
	reads   []int          // that filters look at
}

// plan follows the columns through the steps: one that does not exist, or no longer, is an error.
func (p *projection) plan(runs []*run) error {
	names := p.file.Columns()
	for i, n := range names {
		if _, twice := p.index[n]; !twice {
			p.index[n] = i
		}
		p.columns = append(p.columns, i)
	}
	if _, taken := p.index[pathColumn]; taken && p.path {
		return berth.Errorf(berth.Invalid, "include_path_column: there is a column %s already", pathColumn)
	}
	has := func(n string) bool {
		return p.path && n == pathColumn || slices.ContainsFunc(p.columns, func(i int) bool { return names[i] == n })
	}
	for _, s := range runs {
		for _, c := range s.filtered {
			if !has(c.column) {
				return berth.Errorf(berth.Invalid, "filter: there is no column %s", c.column)
			}
			if err := p.look(c); err != nil {
				return fmt.Errorf("filter: %w", err)
			}
		}
		for _, c := range slices.Concat(s.keep, s.drop) {
			if !has(c) {
				return berth.Errorf(berth.Invalid, "%s: there is no column %s", s.description, c)
			}
		}
		goes := func(n string) bool {
			return slices.Contains(s.drop, n) || s.keep != nil && !slices.Contains(s.keep, n)
		}
		p.columns = slices.DeleteFunc(p.columns, func(i int) bool { return goes(names[i]) })
		p.path = p.path && !goes(pathColumn)
		if len(p.columns) == 0 && !p.path {
			return berth.Errorf(berth.Invalid, "%s: no column is left", s.description)
		}
	}
	return nil
}

// look notes that a filter looks at a column, which must have values of the type that it is
// compared with.
func (p *projection) look(c comparison) error {
	i, ok := p.index[c.column]
	if !ok { // the path
		if _, ok := c.want.(string); !ok {
			return berth.Errorf(berth.Invalid, "column %s has strings", pathColumn)
		}
		return nil
	}
	p.reads = append(p.reads, i)
	return p.file.Comparable(i, c.want)
}

func (p *projection) selection(runs []*run) parquet.Selection {
	s := parquet.Selection{Columns: p.columns, Reads: p.reads}
	if p.path {
		s.PathColumn, s.Path = pathColumn, p.name
	}
	runs = slices.DeleteFunc(slices.Clone(runs), func(r *run) bool { return r.keep != nil || r.drop != nil })
	if len(runs) == 0 {
		return s
	}
	s.Done = func() bool { return slices.ContainsFunc(runs, (*run).full) }
	s.Row = func(value func(int) any) bool {
		named := func(n string) any {
			i, ok := p.index[n]
			if !ok {
				return p.name
			}
			if v := value(i); v != nil {
				return v
			}
			return null{}
		}
		return !slices.ContainsFunc(runs, func(r *run) bool {
			if r.filter != nil {
				return !r.filter(named)
			}
			return !r.wants()
		})
	}
	return s
}
