package berth_test

import (
	"io"
	"strings"
	"testing"

	"github.com/berthml/berth"
)

// TestPackText: a pack comes back as it was written, and one that was cut anywhere is an error.
func TestPackText(t *testing.T) {
	var text []byte
	want := map[string]string{"a b\nc": "one", "empty": "", "z/ü": "two"}
	for _, name := range []string{"a b\nc", "empty", "z/ü"} {
		text = append(berth.AppendPackFile(text, name, int64(len(want[name]))), want[name]...)
	}
	text = berth.AppendPackEnd(text, len(want))
	got := map[string]string{}
	err := berth.ReadPack(strings.NewReader(string(text)), func(path string, _ int64, r io.Reader) error {
		b, err := io.ReadAll(r)
		got[path] = string(b)
		return err
	})
	if err != nil || len(got) != len(want) {
		t.Errorf("%q, %v", got, err)
	}
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s: %q", name, got[name])
		}
	}
	none := func(string, int64, io.Reader) error { return nil }
	for n := range text {
		if err := berth.ReadPack(strings.NewReader(string(text[:n])), none); err == nil {
			t.Errorf("the first %d bytes are taken for the whole", n)
		}
	}
	if err := berth.ReadPack(strings.NewReader("1 "+strings.Repeat("n", 1<<20)), none); berth.CodeOf(err) != berth.Invalid {
		t.Error(err)
	}
}
