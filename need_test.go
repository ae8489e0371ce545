package berth_test

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/berthml/berth"
)

// TestNeeds reads what a job needs from its properties.
func TestNeeds(t *testing.T) {
	doc := func(pairs ...string) json.RawMessage {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		b, _ := json.Marshal(map[string]any{"properties": m})
		return b
	}
	n, err := berth.NeedsOf(doc(berth.CPUsProperty, "0.5", berth.MemoryProperty, "1.5g", berth.GPUsProperty, "0", berth.StdinProperty, "terminal", berth.TerminalProperty, "40x120"))
	if err != nil || n.CPUs != 0.5 || n.Memory != 3<<29 || n.GPUs != 0 || n.Stdin == nil || *n.Stdin != (berth.Stdin{Terminal: true, Rows: 40, Columns: 120}) {
		t.Errorf("%+v %v", n, err)
	}
	if n, err := berth.NeedsOf(json.RawMessage(`{"command": "x"}`)); err != nil || n.GPUs != -1 || n.Stdin != nil {
		t.Errorf("%+v %v", n, err)
	}
	for _, bad := range []json.RawMessage{
		doc(berth.CPUsProperty, "0"), doc(berth.CPUsProperty, "NaN"), doc(berth.CPUsProperty, "-1"), doc(berth.CPUsProperty, "two"),
		doc(berth.MemoryProperty, "lots"), doc(berth.MemoryProperty, "1"), doc(berth.MemoryProperty, "4x"), doc(berth.MemoryProperty, "-4g"), doc(berth.MemoryProperty, "1e30g"),
		doc(berth.GPUsProperty, "-1"), doc(berth.GPUsProperty, "1.5"), doc(berth.StdinProperty, "keyboard"),
	} {
		if _, err := berth.NeedsOf(bad); berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), "it must be") {
			t.Errorf("%s: %v", bad, err)
		}
	}

	l := berth.Launch{CPUs: 4, Memory: 8 << 30, GPUs: []int{2, 3, 5}}
	berth.Needs{CPUs: 8, Memory: 1 << 30, GPUs: 2}.Limit(&l)
	if l.CPUs != 4 || l.Memory != 1<<30 || !slices.Equal(l.GPUs, []int{2, 3}) || l.GPUCount != 2 || l.NoGPU {
		t.Errorf("%+v", l)
	}
	berth.Needs{GPUs: 0}.Limit(&l)
	if !l.NoGPU || len(l.GPUs) != 0 {
		t.Errorf("%+v", l)
	}
}

// TestInputFrames: what is written is read, and what is cut is no end.
func TestInputFrames(t *testing.T) {
	var b bytes.Buffer
	frames := []berth.InputFrame{
		{Kind: berth.InputData, Data: []byte("hello\n")}, {Kind: berth.InputResize, Rows: 40, Columns: 120}, {Kind: berth.InputData, Data: []byte{}}, {Kind: berth.InputEnd},
	}
	for _, f := range frames {
		if _, err := f.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
	}
	whole := bytes.Clone(b.Bytes())
	for _, want := range frames {
		got, err := berth.ReadInput(&b)
		if err != nil || got.Kind != want.Kind || want.Kind == berth.InputData && !bytes.Equal(got.Data, want.Data) || got.Rows != want.Rows || got.Columns != want.Columns {
			t.Errorf("%+v %v, want %+v", got, err, want)
		}
	}
	if _, err := berth.ReadInput(&b); err != io.EOF {
		t.Error(err)
	}
	if _, err := berth.ReadInput(bytes.NewReader(whole[:5])); err != io.ErrUnexpectedEOF {
		t.Error(err)
	}
	if _, err := berth.ReadInput(strings.NewReader("x\x00\x00")); berth.CodeOf(err) != berth.Invalid {
		t.Error(err)
	}
}
