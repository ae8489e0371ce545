package mltable

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berthml/berth"
)

// maxRow limits what is read of one row: a quote that is never closed would otherwise take in a
// whole file.
const maxRow = 16 << 20

// maxColumns limits the columns of delimited text.
const maxColumns = 10_000

// pathColumn is the name of the column that include_path_column adds.
const pathColumn = "Path"

// Write evaluates the rows of files, which Select returned, below from, and writes those that are
// left to files of the same names below to. Files without rows are not written.
func (t *Table) Write(ctx context.Context, from *os.Root, files []string, to *os.Root) error {
	w := &writer{table: t, to: to}
	for _, s := range t.rows {
		w.runs = append(w.runs, s.begin())
	}
	for _, name := range files {
		if slices.ContainsFunc(w.runs, (*run).full) {
			return nil
		}
		write := w.file
		if t.read.format == columnar {
			write = w.parquetFile
		}
		if err := write(ctx, from, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

type writer struct {
	table  *Table
	to     *os.Root
	runs   []*run
	header []string // of the first file
}

// row is one row: its columns in order.
type row struct {
	names  []string
	values []any // string, or json.RawMessage
}

func (r *row) value(column string) any {
	i := slices.Index(r.names, column)
	if i < 0 {
		return nil
	}
	raw, ok := r.values[i].(json.RawMessage)
	if !ok {
		return r.values[i]
	}
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return nil
	}
	return v
}

func (r *row) remove(drop func(name string) bool) {
	var names []string
	var values []any
	for i, n := range r.names {
		if !drop(n) {
			names, values = append(names, n), append(values, r.values[i])
		}
	}
	r.names, r.values = names, values
}

// apply says whether a row is part of the table, and leaves the columns that are.
func (w *writer) apply(r *row) (bool, error) {
	for _, s := range w.runs {
		switch {
		case s.filter != nil:
			for _, c := range s.filtered {
				if w.table.read.format == delimited && !slices.Contains(r.names, c.column) {
					return false, berth.Errorf(berth.Invalid, "filter: there is no column %s", c.column)
				}
			}
			if !s.filter(r.value) {
				return false, nil
			}
		case s.keep != nil || s.drop != nil:
			for _, c := range slices.Concat(s.keep, s.drop) {
				if w.table.read.format == delimited && !slices.Contains(r.names, c) {
					return false, berth.Errorf(berth.Invalid, "%s: there is no column %s", s.description, c)
				}
			}
			r.remove(func(n string) bool { return slices.Contains(s.drop, n) || s.keep != nil && !slices.Contains(s.keep, n) })
		default:
			if !s.wants() {
				return false, nil
			}
		}
	}
	return true, nil
}

// file writes the rows of one file.
func (w *writer) file(ctx context.Context, from *os.Root, name string) error {
	in, err := from.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	bounded := &bounded{r: in, left: maxRow}
	text, err := decode(bufio.NewReaderSize(bounded, 64<<10), w.table.read.encoding)
	if err != nil {
		return err
	}
	read := w.lines(text, bounded)
	if w.table.read.format == delimited {
		read = w.records(text)
	}
	var out *output
	for {
		bounded.left = maxRow
		if err := ctx.Err(); err != nil {
			return err
		}
		r, err := read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if w.table.read.pathColumn {
			r.names, r.values = append([]string{pathColumn}, r.names...), append([]any{w.pathValue(name)}, r.values...)
		}
		ok, err := w.apply(r)
		if err != nil {
			return err
		}
		if ok {
			if out == nil {
				if out, err = w.create(name); err != nil {
					return err
				}
				defer out.file.Close()
			}
			if err := out.write(r); err != nil {
				return err
			}
		}
		if slices.ContainsFunc(w.runs, (*run).full) {
			break
		}
	}
	if out == nil {
		return nil
	}
	return out.close()
}

func (w *writer) pathValue(name string) any {
	if w.table.read.format == delimited {
		return name
	}
	raw, _ := json.Marshal(name) // a string always can be
	return json.RawMessage(raw)
}

// records reads delimited text.
func (w *writer) records(text io.Reader) func() (*row, error) {
	c := csv.NewReader(newQuotedEnds(text, w.table.read.delimiter))
	c.Comma, c.FieldsPerRecord, c.LazyQuotes = w.table.read.delimiter, -1, true
	var header []string
	return func() (*row, error) {
		fields, err := c.Read()
		if err != nil {
			return nil, err
		}
		if header == nil {
			switch h := w.table.read.header; {
			case h == noHeader:
				for i := range fields {
					header = append(header, fmt.Sprintf("Column%d", i+1))
				}
			case h == firstFile && w.header != nil:
				header = w.header
			default:
				header, w.header = fields, fields
				if fields, err = c.Read(); err != nil {
					return nil, err
				}
			}
		}
		if len(header) > maxColumns {
			return nil, berth.Errorf(berth.Invalid, "there are %d columns; %d are allowed", len(header), maxColumns)
		}
		line, _ := c.FieldPos(0)
		if len(fields) > len(header) {
			return nil, berth.Errorf(berth.Invalid, "line %d has %d fields, more than there are columns (%d)", line, len(fields), len(header))
		}
		r := &row{names: header, values: make([]any, len(header))}
		for i := range header {
			r.values[i] = ""
			if i < len(fields) {
				r.values[i] = fields[i]
			}
		}
		return r, nil
	}
}

// lines reads JSON lines.
func (w *writer) lines(text io.Reader, read *bounded) func() (*row, error) {
	s := bufio.NewScanner(text)
	s.Buffer(nil, maxRow)
	line := 0
	return func() (*row, error) {
		for s.Scan() {
			line++
			read.left = maxRow
			if len(strings.TrimSpace(s.Text())) == 0 {
				continue
			}
			r, err := object(s.Bytes())
			if err == nil {
				return r, nil
			}
			if !w.table.read.dropInvalid {
				return nil, berth.Errorf(berth.Invalid, "line %d is not a JSON object: %w", line, err)
			}
		}
		if err := s.Err(); err != nil {
			return nil, err
		}
		return nil, io.EOF
	}
}

// object is the row of a JSON object, with its members in order.
func object(text []byte) (*row, error) {
	d := json.NewDecoder(strings.NewReader(string(text)))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.Join(err, errors.New("it does not begin with {"))
	}
	r := &row{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, err
		}
		name, _ := key.(string)
		r.names, r.values = append(r.names, name), append(r.values, raw)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the object")
	}
	return r, nil
}

// output is a file that is written.
type output struct {
	file   *os.File
	buffer *bufio.Writer
	csv    *csv.Writer // nil for JSON lines
	header bool        // is still to be written
}

// open creates a file for what is written.
func (w *writer) open(name string) (*os.File, error) {
	if dir := filepath.Dir(name); dir != "." {
		if err := w.to.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	return w.to.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
}

func (w *writer) create(name string) (*output, error) {
	f, err := w.open(name)
	if err != nil {
		return nil, err
	}
	o := &output{file: f, buffer: bufio.NewWriterSize(f, 64<<10)}
	if w.table.read.format == delimited {
		o.csv, o.header = csv.NewWriter(o.buffer), w.table.read.header != noHeader
		o.csv.Comma = w.table.read.delimiter
	}
	return o, nil
}

func (o *output) write(r *row) error {
	if o.csv == nil {
		return o.writeObject(r)
	}
	if o.header {
		o.header = false
		if err := o.csv.Write(r.names); err != nil {
			return err
		}
	}
	fields := make([]string, len(r.values))
	for i, v := range r.values {
		fields[i], _ = v.(string)
	}
	if len(fields) == 1 && fields[0] == "" { // a blank line would not be a row
		o.csv.Flush()
		_, err := o.buffer.WriteString("\"\"\n")
		return errors.Join(o.csv.Error(), err)
	}
	return o.csv.Write(fields)
}

func (o *output) writeObject(r *row) error {
	for i, n := range r.names {
		name, err := json.Marshal(n)
		if err != nil {
			return err
		}
		raw, _ := r.values[i].(json.RawMessage)
		between := ","
		if i == 0 {
			between = "{"
		}
		if _, err := fmt.Fprintf(o.buffer, "%s%s:%s", between, name, raw); err != nil {
			return err
		}
	}
	end := "}\n"
	if len(r.names) == 0 {
		end = "{}\n"
	}
	_, err := o.buffer.WriteString(end)
	return err
}

func (o *output) close() error {
	var err error
	if o.csv != nil {
		o.csv.Flush()
		err = o.csv.Error()
	}
	return errors.Join(err, o.buffer.Flush(), o.file.Close())
}

// bounded fails where one row is larger than maxRow.
type bounded struct {
	r    io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, berth.Errorf(berth.Invalid, "a row is larger than %d MB; is a quote not closed?", maxRow>>20)
	}
	n, err := b.r.Read(p)
	b.left -= n
	return n, err
}
