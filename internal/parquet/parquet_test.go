package parquet_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	oracle "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/parquet"
)

type row struct {
	ID   int64     `parquet:"id,delta"`
	Name string    `parquet:"name,dict"`
	Key  string    `parquet:"key,delta"`
	X    *float64  `parquet:"x,optional,split"`
	Good bool      `parquet:"good"`
	At   time.Time `parquet:"at,timestamp(millisecond)"`
	Tags []string  `parquet:"tags,list,dict"`
}

// seeds are small files, of all compressions.
func seeds(t testing.TB) (out [][]byte) {
	t.Helper()
	var rows []row
	for i := range 20 {
		r := row{ID: int64(i), Name: []string{"a", "b"}[i%2], Key: string(rune('a' + i)), Good: i%3 == 0, At: time.Unix(int64(i), 0)}
		if i%4 != 0 {
			r.X = new(float64(i))
			r.Tags = []string{"x", r.Key}
		}
		rows = append(rows, r)
	}
	for version := 1; version <= 2; version++ {
		for _, codec := range []compress.Codec{&oracle.Uncompressed, &oracle.Snappy, &oracle.Gzip, &oracle.Zstd} {
			var b bytes.Buffer
			w := oracle.NewGenericWriter[row](&b, oracle.Compression(codec), oracle.DataPageVersion(version), oracle.MaxRowsPerRowGroup(15))
			if _, err := w.Write(rows); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			out = append(out, b.Bytes())
		}
	}
	return out
}

// copyHalf copies every second row and every second column, after it has read all values.
func copyHalf(ctx context.Context, file []byte) ([]byte, error) {
	f, err := parquet.Open(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return nil, err
	}
	var s parquet.Selection
	for i := range f.Columns() {
		if f.Comparable(i, nil) == nil {
			s.Reads = append(s.Reads, i)
		}
		if i%2 == 0 {
			s.Columns = append(s.Columns, i)
		}
	}
	n := 0
	s.Row = func(value func(int) any) bool {
		for _, c := range s.Reads {
			value(c)
		}
		n++
		return n%2 == 0
	}
	s.Done = func() bool { return n > 100_000 } // of a file that says it has very many
	var out bytes.Buffer
	err = f.Copy(ctx, s, func() (io.Writer, error) { return &out, nil })
	return out.Bytes(), err
}

// check is that a damaged file is refused, or copied to one that can be opened.
func check(t *testing.T, file []byte) {
	t.Helper()
	out, err := copyHalf(t.Context(), file)
	if err != nil {
		if code := berth.CodeOf(err); code != berth.Invalid {
			t.Errorf("%v has code %v", err, code)
		}
		return
	}
	if len(out) > 0 {
		if _, err := parquet.Open(bytes.NewReader(out), int64(len(out))); err != nil {
			t.Errorf("what was written cannot be read: %v", err)
		}
	}
}

// TestDamaged cuts real files at many places, and changes many of their bytes.
func TestDamaged(t *testing.T) {
	for n, file := range seeds(t) {
		out, err := copyHalf(t.Context(), file)
		if err != nil || len(out) == 0 {
			t.Fatal(err)
		}
		for i := range file {
			if (i+n)%11 != 0 {
				continue
			}
			check(t, file[:i])
			for _, x := range []byte{1, 0x80, 0xff} {
				odd := slices.Clone(file)
				odd[i] ^= x
				check(t, odd)
			}
		}
	}
}

// TestCancelled: copying ends with its context.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	want := errors.New("stopped")
	cancel(want)
	if _, err := copyHalf(ctx, seeds(t)[0]); !errors.Is(err, want) {
		t.Error(err)
	}
}

func FuzzCopy(f *testing.F) {
	for _, file := range seeds(f) {
		f.Add(file)
		f.Add(file[:len(file)/2])
	}
	f.Fuzz(check)
}
