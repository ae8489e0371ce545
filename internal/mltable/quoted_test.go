package mltable_test

import (
	"encoding/csv"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth/internal/mltable"
)

// TestRowsKeepEnds: values with ends of lines in them, of any system, are what they were.
func TestRowsKeepEnds(t *testing.T) {
	for name, table := range map[string]string{",": "read_delimited", "\t": "read_delimited: {delimiter: \"\\t\"}", "é": "read_delimited: {delimiter: é}"} {
		text := "a,b\r\n\"x\r\ny\",1\r\n\"\"\"\r\n\"\"\",\"p\nq\"\n\"u\rv\",\"\r\n\r\n\"\r\n"
		got, err := evaluate(t, "paths: [{file: a.csv}]\ntransformations:\n- "+table+"\n", map[string]string{"a.csv": strings.ReplaceAll(text, ",", name)})
		if err != nil {
			t.Fatal(err)
		}
		want := strings.ReplaceAll("a,b\n\"x\r\ny\",1\n\"\"\"\r\n\"\"\",\"p\nq\"\n\"u\rv\",\"\r\n\r\n\"\n", ",", name)
		if diff := cmp.Diff(want, got["a.csv"]); diff != "" {
			t.Error(name, diff)
		}
	}
}

// TestRowsRoundTrip is a law: rows that were written as CSV come out as they are.
func TestRowsRoundTrip(t *testing.T) {
	value := rapid.StringOf(rapid.SampledFrom([]rune("a,\"\r\n é")))
	rapid.Check(t, func(rt *rapid.T) {
		rows := rapid.SliceOfN(rapid.SliceOfN(value, 2, 2), 1, 5).Draw(rt, "rows")
		rows = append([][]string{{"x", "y"}}, rows...)
		var in strings.Builder
		w := csv.NewWriter(&in)
		if err := w.WriteAll(rows); err != nil {
			rt.Fatal(err)
		}
		got, err := evaluate(t, "paths: [{file: a.csv}]\ntransformations:\n- read_delimited\n", map[string]string{"a.csv": in.String()})
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(in.String(), got["a.csv"]); diff != "" {
			rt.Fatal(diff)
		}
	})
}

// TestQuotedEnds is a law: but for ends of lines in values, any text is read as it was, however
// its quotes are.
func TestQuotedEnds(t *testing.T) {
	text := rapid.StringOf(rapid.SampledFrom([]rune("a,é\"\"\r\n\n")))
	rapid.Check(t, func(t *rapid.T) {
		in, comma := text.Draw(t, "text"), rapid.SampledFrom([]rune(",é")).Draw(t, "delimiter")
		read := func(r io.Reader, ends string) (rows [][]string) {
			c := csv.NewReader(r)
			c.Comma, c.FieldsPerRecord, c.LazyQuotes = comma, -1, true
			rows, err := c.ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range rows {
				for i := range row {
					row[i] = strings.ReplaceAll(row[i], ends, "\n")
				}
			}
			return rows
		}
		if diff := cmp.Diff(read(strings.NewReader(in), "\n"), read(mltable.QuotedEnds(iotest.OneByteReader(strings.NewReader(in)), comma), "\r\n")); diff != "" {
			t.Fatalf("%q: %s", in, diff)
		}
	})
}
