package mltable_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"github.com/berthml/berth"
)

// point is a row of the tests' Parquet files: types, encodings and nesting of many kinds.
type point struct {
	ID     int64     `parquet:"id,delta"`
	Place  string    `parquet:"place,dict"`
	Key    string    `parquet:"key,delta"`
	T      *float64  `parquet:"t,optional"`
	Small  int8      `parquet:"small"`
	Big    uint64    `parquet:"big,dict"`
	Ratio  float32   `parquet:"ratio,split"`
	Good   *bool     `parquet:"good,optional"`
	At     time.Time `parquet:"at,timestamp(microsecond)"`
	Day    int32     `parquet:"day,date"`
	Price  int64     `parquet:"price,decimal(2:10)"`
	Note   *string   `parquet:"note,optional,dict"`
	Codes  []int32   `parquet:"codes,list"`
	Inside struct {
		Names []string         `parquet:"names,list,dict"`
		Sizes map[string]int64 `parquet:"sizes"`
	} `parquet:"inside"`
}

var begin = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// points are rows from id from to id to.
func points(from, to int) (out []point) {
	for i := from; i < to; i++ {
		p := point{
			ID: int64(i), Place: []string{"UK", "FR", "secret"}[i%3], Key: fmt.Sprintf("key-%06d", i*7919%100_000), Small: int8(i % 100), Big: uint64(i) << 40,
			Ratio: float32(i) / 8, At: begin.Add(time.Duration(i) * time.Hour), Day: int32(19_723 + i), Price: int64(i) * 25,
		}
		if i%5 != 0 {
			p.T = new(float64(i) / 2)
		}
		if i%4 != 0 {
			p.Good = new(i%2 == 0)
		}
		if i%1000 == 0 {
			p.Note = new("a thousand")
		}
		for k := range i % 4 {
			p.Codes = append(p.Codes, int32(k))
			p.Inside.Names = append(p.Inside.Names, fmt.Sprint("n", k))
			if p.Inside.Sizes == nil {
				p.Inside.Sizes = map[string]int64{}
			}
			p.Inside.Sizes[fmt.Sprint(k)] = int64(i)
		}
		out = append(out, p)
	}
	return out
}

func parquetFile[T any](t testing.TB, rows []T, options ...parquet.WriterOption) string {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b, options...)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func readParquet[T any](t testing.TB, file string) []T {
	t.Helper()
	rows, err := parquet.Read[T](strings.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func openParquet(t testing.TB, file string) *parquet.File {
	t.Helper()
	f, err := parquet.OpenFile(strings.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const parquetTable = "paths: [{pattern: '**/*.parquet'}]\ntransformations:\n- read_parquet\n"

// TestParquetRows: rows that are left are those that the filter says, in files of every compression
// and version of pages.
func TestParquetRows(t *testing.T) {
	all := points(0, 1500)
	tests := []struct {
		steps string
		stays func(point) bool
	}{
		{`- filter: col("id") > 40 and (col("place") == "UK" or col("id") == 77)`, func(p point) bool { return p.ID > 40 && (p.Place == "UK" || p.ID == 77) }},
		{`- filter: col("t") < 300.5`, func(p point) bool { return p.T != nil && *p.T < 300.5 }},
		{`- filter: col("t") != 300.5`, func(p point) bool { return p.T != nil && *p.T != 300.5 }},
		{`- filter: col("good") == True`, func(p point) bool { return p.Good != nil && *p.Good }},
		{`- filter: col("good") != True`, func(p point) bool { return p.Good != nil && !*p.Good }},
		{`- filter: col("note") == "a thousand" or col("key") >= "key-09"`, func(p point) bool { return p.Note != nil || p.Key >= "key-09" }},
		{`- filter: col("at") >= datetime(2024, 2, 1, 12, 30) and col("day") < datetime(2026, 6, 1)`, func(p point) bool {
			return p.At.After(time.Date(2024, 2, 1, 12, 30, 0, 0, time.UTC)) && time.Unix(int64(p.Day)*86400, 0).Before(time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC))
		}},
		{`- filter: col("price") == 12.5 or col("ratio") > 370 or col("small") == 3 and col("big") > 1e15`, func(p point) bool {
			return p.Price == 1250 || p.Ratio > 370 || p.Small == 3 && p.Big > 1e15
		}},
		{`- filter: col("big") == 1099511627776000`, func(p point) bool { return p.Big == 1099511627776000 }},
		{"- skip: 10\n- take: 900", func(p point) bool { return p.ID >= 10 && p.ID < 910 }},
		{"- filter: col(\"id\") >= 5\n- take: 1200\n- filter: col(\"place\") != \"UK\"", func(p point) bool { return p.ID >= 5 && p.ID < 1205 && p.Place != "UK" }},
		{"- skip: 0", func(point) bool { return true }},
	}
	for name, codec := range map[string]compress.Codec{"none": &parquet.Uncompressed, "snappy": &parquet.Snappy, "gzip": &parquet.Gzip, "zstd": &parquet.Zstd} {
		for version := 1; version <= 2; version++ {
			options := []parquet.WriterOption{parquet.Compression(codec), parquet.DataPageVersion(version), parquet.PageBufferSize(2000), parquet.MaxRowsPerRowGroup(400), parquet.KeyValueMetadata("who", "me")}
			in := map[string]string{"a.parquet": parquetFile(t, all[:1000], options...), "d/b.parquet": parquetFile(t, all[1000:], options...)}
			// Rows are compared as they are read of the files: nil and empty lists are one.
			before := append(readParquet[point](t, in["a.parquet"]), readParquet[point](t, in["d/b.parquet"])...)
			for _, tt := range tests {
				t.Run(fmt.Sprint(name, version, tt.steps), func(t *testing.T) {
					want := slices.DeleteFunc(slices.Clone(before), func(p point) bool { return !tt.stays(p) })
					checkParquet(t, tt.steps, in, want)
				})
			}
		}
	}
}

// checkParquet evaluates a table of points, and compares their rows with those that it should have.
func checkParquet(t *testing.T, steps string, in map[string]string, want []point) {
	t.Helper()
	got, err := evaluate(t, parquetTable+steps, in)
	if err != nil {
		t.Fatal(err)
	}
	var rows []point
	for _, file := range slices.Sorted(maps.Keys(got)) {
		rows = append(rows, readParquet[point](t, got[file])...)
		a, b := openParquet(t, in[file]), openParquet(t, got[file])
		if who, _ := b.Lookup("who"); a.Schema().String() != b.Schema().String() || who != "me" {
			t.Errorf("the schema is %s", b.Schema())
		}
		for i, c := range b.Metadata().RowGroups[0].Columns {
			if was := a.Metadata().RowGroups[0].Columns[i].MetaData.Codec; c.MetaData.Codec != was {
				t.Errorf("column %v has compression %v, and had %v", c.MetaData.PathInSchema, c.MetaData.Codec, was)
			}
		}
	}
	if diff := cmp.Diff(want, rows); diff != "" || len(rows) == 0 {
		t.Errorf("%d rows, want %d: %.1000s", len(rows), len(want), diff)
	}
}

// TestParquetColumns: files have the columns that are left, in their order, with their types.
func TestParquetColumns(t *testing.T) {
	file := parquetFile(t, points(0, 100), parquet.MaxRowsPerRowGroup(30))
	for _, tt := range []struct{ steps, want string }{
		{"- keep_columns: [inside, t, id]", "id t inside"},
		{"- drop_columns: [id, key, small, big, ratio, at, day, price, note, codes, inside]", "place t good"},
		{"- keep_columns: [id, codes]\n- drop_columns: id", "codes"},
		{"- filter: col(\"key\") > \"key-05\"\n- keep_columns: [id, inside]", "id inside"},
	} {
		got, err := evaluate(t, parquetTable+tt.steps, map[string]string{"a.parquet": file})
		if err != nil {
			t.Errorf("%s: %v", tt.steps, err)
			continue
		}
		before, after := openParquet(t, file).Schema(), openParquet(t, got["a.parquet"]).Schema()
		var names []string
		for _, f := range after.Fields() {
			names = append(names, f.Name())
			i := slices.IndexFunc(before.Fields(), func(x parquet.Field) bool { return x.Name() == f.Name() })
			if i < 0 || before.Fields()[i].String() != f.String() {
				t.Errorf("%s: column %s is %s", tt.steps, f.Name(), f)
			}
		}
		if strings.Join(names, " ") != tt.want {
			t.Errorf("%s: %s, want %s", tt.steps, names, tt.want)
		}
		type row struct {
			ID    int64   `parquet:"id,optional"`
			Codes []int32 `parquet:"codes,list,optional"`
		}
		for i, r := range readParquet[row](t, got["a.parquet"]) {
			if strings.HasSuffix(tt.want, "codes") && len(r.Codes) != i%4 || strings.HasPrefix(tt.steps, "- keep_columns: [inside") && r.ID != int64(i) {
				t.Errorf("%s: row %d is %v", tt.steps, i, r)
			}
		}
	}
}

// TestParquetPath: include_path_column puts the name of the file before the other columns.
func TestParquetPath(t *testing.T) {
	type row struct {
		Path string
		ID   int64 `parquet:"id"`
	}
	in := map[string]string{"d/a.parquet": parquetFile(t, points(0, 3)), "d/b.parquet": parquetFile(t, points(3, 5)), "e.parquet": parquetFile(t, points(5, 9))}
	table := strings.Replace(parquetTable, "read_parquet", "read_parquet: {include_path_column: true}", 1)
	got, err := evaluate(t, table+"- filter: col(\"Path\") != \"e.parquet\" and col(\"id\") > 0\n- keep_columns: [Path, id]", in)
	if err != nil {
		t.Fatal(err)
	}
	rows := append(readParquet[row](t, got["d/a.parquet"]), readParquet[row](t, got["d/b.parquet"])...)
	if diff := cmp.Diff([]row{{"d/a.parquet", 1}, {"d/a.parquet", 2}, {"d/b.parquet", 3}, {"d/b.parquet", 4}}, rows); diff != "" || len(got) != 2 {
		t.Error(diff, len(got))
	}
	if name := openParquet(t, got["d/a.parquet"]).Schema().Fields()[0].Name(); name != "Path" {
		t.Errorf("the first column is %s", name)
	}
}

// TestParquetGone: nothing of rows that go is in the file, not in a dictionary either, nor in
// statistics.
func TestParquetGone(t *testing.T) {
	file := parquetFile(t, points(0, 500), parquet.Compression(&parquet.Uncompressed))
	got, err := evaluate(t, parquetTable+"- filter: col(\"place\") != \"secret\"", map[string]string{"a.parquet": file})
	if err != nil || !strings.Contains(file, "secret") || strings.Contains(got["a.parquet"], "secret") || !strings.Contains(got["a.parquet"], "UK") {
		t.Errorf("the file has values of rows that are gone: %v", err)
	}
	if got, err := evaluate(t, parquetTable+"- filter: col(\"place\") == \"none\"", map[string]string{"a.parquet": file}); err != nil || len(got) != 0 {
		t.Errorf("a file without rows is written: %v", err)
	}
}

func TestParquetErrors(t *testing.T) {
	file := parquetFile(t, points(0, 200))
	for _, tt := range []struct{ steps, text, want string }{
		{"- keep_columns: [nope]", file, "a.parquet: keep_columns: there is no column nope"},
		{"- drop_columns: [nope]", file, "a.parquet: drop_columns: there is no column nope"},
		{"- filter: col(\"nope\") > 1", file, "a.parquet: filter: there is no column nope"},
		{"- keep_columns: [id]\n- filter: col(\"t\") > 1", file, "a.parquet: filter: there is no column t"},
		{"- keep_columns: [id]\n- drop_columns: [id]", file, "a.parquet: drop_columns: no column is left"},
		{"- filter: col(\"codes\") > 1", file, "filter: column codes has lists or structs, which cannot be compared"},
		{"- filter: col(\"id\") == \"1\"", file, "filter: column id has numbers, and cannot be compared with strings"},
		{"- filter: col(\"at\") > \"2024-01-01\"", file, "column at has times such as datetime(2024, 12, 31), and cannot be compared with strings"},
		{"- filter: col(\"good\") == 1", file, "column good has booleans (True and False), and cannot be compared with numbers"},
		{"- take: 1", "text that is no Parquet file", "a.parquet: it is not a sound Parquet file"},
		{"- take: 1", "", "a.parquet: it is not a sound Parquet file: it is too short"},
		{"- take: 1", file[:len(file)/2], "a.parquet: it is not a sound Parquet file"},
		{"- take: 1", file[:len(file)-4] + "PARE", "a.parquet: encrypted Parquet files cannot be read"},
		{"- take: 1", parquetFile(t, points(0, 9), parquet.Compression(&parquet.Lz4Raw)), "compressed with LZ4 cannot be selected on a node"},
		{"- take: 1", parquetFile(t, points(0, 9), parquet.Compression(&parquet.Brotli)), "compressed with Brotli cannot be selected on a node"},
	} {
		_, err := evaluate(t, parquetTable+tt.steps, map[string]string{"a.parquet": tt.text})
		if err == nil || !strings.Contains(err.Error(), tt.want) || berth.CodeOf(err) != berth.Invalid {
			t.Errorf("%s: %v, want %s", tt.steps, err, tt.want)
		}
	}
	// Columns are copied whatever their compression is.
	got, err := evaluate(t, parquetTable+"- keep_columns: [id]", map[string]string{"a.parquet": parquetFile(t, points(0, 9), parquet.Compression(&parquet.Brotli))})
	if err != nil || len(readParquet[struct {
		ID int64 `parquet:"id"`
	}](t, got["a.parquet"])) != 9 {
		t.Error(err)
	}
}
