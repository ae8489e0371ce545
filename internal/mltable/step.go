package mltable

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/berthml/berth"
)

// format is what rows are read from.
type format string

const (
	delimited format = "read_delimited"
	jsonLines format = "read_json_lines"
	columnar  format = "read_parquet"
)

// reading says how rows are read.
type reading struct {
	format      format
	delimiter   rune
	header      string
	encoding    string
	pathColumn  bool
	dropInvalid bool // lines that are not JSON
}

// sample is what take_random_sample says.
type sample struct {
	probability float64
	seed        uint64
}

// add takes the next transformation.
func (t *Table) add(name string, value any) (err error) {
	s := step{description: name}
	switch name {
	case string(delimited), string(jsonLines), string(columnar):
		if t.read != nil {
			return berth.Errorf(berth.Invalid, "transformations: %s after %s", name, t.read.format)
		}
		t.read, err = parseReading(format(name), value)
		return err
	case "skip":
		s.skip, err = count(name, value)
	case "take":
		s.take, err = count(name, value)
	case "take_random_sample":
		s.sample, err = parseSample(value)
	case "keep_columns":
		s.keep, err = columns(name, value)
	case "drop_columns":
		s.drop, err = columns(name, value)
	case "filter":
		text, ok := value.(string)
		if !ok {
			return berth.Errorf(berth.Invalid, "filter must be a string")
		}
		s.filter, s.filtered, err = parseFilter(text)
		if err == nil && slices.ContainsFunc(s.filtered, comparison.ofTimes) && (t.read == nil || t.read.format != columnar) {
			err = unsupported("filter with datetime of a table without read_parquet")
		}
	default:
		return unsupported(name)
	}
	if err != nil {
		return err
	}
	if t.read != nil {
		t.rows = append(t.rows, s)
		return nil
	}
	if s.keep != nil || s.drop != nil || s.filter != nil {
		return unsupported(name + " of a table that reads no rows")
	}
	t.files = append(t.files, s)
	return nil
}

func count(name string, v any) (*int64, error) {
	n, ok := v.(int)
	if !ok || n < 0 {
		return nil, berth.Errorf(berth.Invalid, "%s must be a whole number that is not negative, not %v", name, v)
	}
	out := int64(n)
	return &out, nil
}

func columns(name string, v any) ([]string, error) {
	bad := berth.Errorf(berth.Invalid, "%s must be a list of names of columns", name)
	list, ok := v.([]any)
	if text, is := v.(string); is {
		list, ok = []any{text}, true
	}
	if !ok || len(list) == 0 {
		return nil, bad
	}
	out := make([]string, len(list))
	for i, x := range list {
		if out[i], ok = x.(string); !ok {
			return nil, bad
		}
	}
	return out, nil
}

func parseSample(v any) (*sample, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, berth.Errorf(berth.Invalid, "take_random_sample must be a mapping with probability and seed")
	}
	out := &sample{probability: -1}
	for key, x := range m {
		n, whole := x.(int)
		switch f, isFloat := x.(float64); {
		case key == "probability" && isFloat:
			out.probability = f
		case key == "probability" && whole:
			out.probability = float64(n)
		case key == "seed" && whole:
			out.seed = uint64(n) //nolint:gosec // any number will do
		case key == "seed" && x == nil:
		default:
			return nil, berth.Errorf(berth.Invalid, "take_random_sample: %s cannot be %v", key, x)
		}
	}
	if !(out.probability >= 0 && out.probability <= 1) {
		return nil, berth.Errorf(berth.Invalid, "take_random_sample: probability must be between 0 and 1")
	}
	return out, nil
}

// run is a step of which some files or rows have been counted.
type run struct {
	step
	counted int64
	random  *rand.Rand
}

func (s step) begin() *run {
	r := &run{step: s}
	if s.sample != nil {
		r.random = rand.New(rand.NewPCG(s.sample.seed, s.sample.seed)) //nolint:gosec // a sample, not a secret
	}
	return r
}

// wants says whether the next file or row passes skip, take and take_random_sample.
func (r *run) wants() bool {
	r.counted++
	switch {
	case r.skip != nil:
		return r.counted > *r.skip
	case r.take != nil:
		return r.counted <= *r.take
	case r.sample != nil:
		return r.random.Float64() < r.sample.probability
	}
	return true
}

// full says that nothing passes any more.
func (r *run) full() bool { return r.take != nil && r.counted >= *r.take }

// headers are the values of header.
const (
	noHeader    = "no_header"
	firstFile   = "from_first_file"
	sameHeaders = "all_files_same_headers"
	ownHeaders  = "all_files_different_headers"
)

func parseReading(f format, v any) (*reading, error) {
	r := &reading{format: f, delimiter: ',', header: sameHeaders, encoding: "utf8"}
	m, ok := v.(map[string]any)
	if !ok && v != nil {
		return nil, berth.Errorf(berth.Invalid, "%s must be a mapping of its settings", f)
	}
	for key, x := range m {
		if err := r.set(key, x); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *reading) set(key string, x any) error {
	text, isText := x.(string)
	yes, isBool := x.(bool)
	bad := berth.Errorf(berth.Invalid, "%s: %s cannot be %v", r.format, key, x)
	switch {
	case key == "include_path_column" && isBool:
		r.pathColumn = yes
	case r.format == columnar:
		return unsupported("read_parquet with " + key)
	case key == "encoding" && isText:
		r.encoding = strings.ToLower(text)
		if !known(r.encoding) {
			return unsupported(string(r.format) + " with encoding " + text)
		}
	case r.format == jsonLines && key == "invalid_lines" && (text == "error" || text == "drop"):
		r.dropInvalid = text == "drop"
	case r.format == jsonLines:
		return bad
	case key == "delimiter" && isText:
		runes := []rune(text)
		if len(runes) != 1 {
			return unsupported("read_delimited with delimiter " + text)
		}
		r.delimiter = runes[0]
	case key == "header" && (text == noHeader || text == firstFile || text == sameHeaders || text == ownHeaders):
		r.header = text
	case (key == "infer_column_types" || key == "empty_as_string" || key == "support_multi_line") && isBool:
		// Values stay the text that they are.
	default:
		return bad
	}
	return nil
}
