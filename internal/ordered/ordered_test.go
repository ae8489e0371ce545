package ordered_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/ordered"
)

func decode(t testing.TB, text string) any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func TestMarshal(t *testing.T) {
	for _, c := range []struct {
		name, value, want string
		like              []string
	}{
		{"the order of another", `{"a":1,"b":{"y":1,"x":2}}`, `{"b":{"x":2,"y":1},"a":1}`, []string{` { "b" : { "x":0, "y":0 }, "a":0 } `}},
		{"what is new comes last, by name", `{"n":1,"m":2,"b":3,"a":4}`, `{"b":3,"a":4,"m":2,"n":1}`, []string{`{"b":0,"gone":0,"a":0}`}},
		{"items of lists", `[{"a":1,"b":2},[{"a":1,"b":2}],{"a":1,"b":2}]`, `[{"b":2,"a":1},[{"b":2,"a":1}],{"a":1,"b":2}]`, []string{`[{"b":0,"a":0},[{"b":0,"a":0}]]`}},
		{"two others", `{"a":{"p":1,"q":2,"r":3},"b":1,"c":2}`, `{"c":2,"a":{"r":3,"q":2,"p":1},"b":1}`, []string{`{"c":0,"a":{"r":0}}`, `{"b":0,"c":0,"a":{"q":0,"r":0,"p":0}}`}},
		{"another kind of value there", `{"a":{"y":1,"x":2},"b":[1]}`, `{"b":[1],"a":{"x":2,"y":1}}`, []string{`{"b":{"x":1},"a":[{"y":1}]}`}},
		{"members said twice", `{"a":1,"b":{"x":1,"y":2}}`, `{"b":{"y":2,"x":1},"a":1}`, []string{`{"b":{"x":0,"y":0},"a":0,"b":{"y":0,"x":0}}`}},
		{"escaped names", `{"a\"b":1,"ä":2,"\u0001":3,"<":4}`, `{"\u003c":4,"ä":2,"a\"b":1,"\u0001":3}`, []string{`{"\u003c":0,"ä":0,"a\"b":0,"\u0001":0}`}},
		{"no other", `{"b":null,"a":[true,false,1.50,"x"]}`, `{"a":[true,false,1.50,"x"],"b":null}`, nil},
		{"empty ones", `{"b":{},"a":[]}`, `{"b":{},"a":[]}`, []string{`{"b":{},"a":[]}`}},
	} {
		like := make([][]byte, len(c.like))
		for i, l := range c.like {
			like[i] = []byte(l)
		}
		got, err := ordered.Marshal(decode(t, c.value), like...)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s %v, want %s", c.name, got, err, c.want)
		}
	}
}

// Objects with very many members, and very deep ones, take time in proportion to their size.
func TestLarge(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"z":0`)
	for i := range 200_000 {
		b.WriteString(`,"k`)
		b.WriteString(strings.Repeat("x", i%7))
		b.WriteString(string(json.Number(itoa(i))))
		b.WriteString(`":1`)
	}
	b.WriteString("}")
	for _, text := range []string{b.String(), strings.Repeat(`{"a":[`, 4000) + strings.Repeat(`]}`, 4000)} {
		got, err := ordered.Marshal(decode(t, text), []byte(text), []byte(text))
		if err != nil || string(got) != text {
			t.Errorf("%d bytes came back as %d: %v", len(text), len(got), err)
		}
	}
}

func itoa(i int) string { b, _ := json.Marshal(i); return string(b) }

// FuzzMarshal: whatever the order is taken from, the value is the same; taken from the text itself,
// so is the order.
func FuzzMarshal(f *testing.F) {
	f.Add(`{"b":1,"a":{"d":[{"f":1,"e":2}],"c":"x"}}`, `{"a":{"c":1}}`)
	f.Add(`[1,{"a":"\u2028"}]`, `{"a`)
	f.Add(`{"":"\ud800"}`, "{\"\x80\":1,\"\\")
	f.Fuzz(func(t *testing.T, text, like string) {
		dec := json.NewDecoder(strings.NewReader(text))
		dec.UseNumber()
		var v any
		if dec.Decode(&v) != nil {
			return
		}
		for _, l := range []string{like, text} {
			got, err := ordered.Marshal(v, []byte(l), []byte(like))
			if err != nil {
				t.Fatal(err)
			}
			if again := decode(t, string(got)); !reflect.DeepEqual(v, again) {
				t.Fatalf("%q like %q became %q", text, l, got)
			}
		}
		plain, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ordered.Marshal(v); err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("%s, %v, want %s", got, err, plain)
		}
	})
}

const job = `{"properties":{"tags":{"z":"1","a":"2"},"jobType":"Command","environmentVariables":{"Z":"1","A":"2"},"inputs":{"zulu":{"value":"1",
"jobInputType":"literal"},"alpha":{"value":"2","jobInputType":"literal"}},"outputs":{"out":{"mode":"ReadWriteMount","jobOutputType":"uri_folder"}},
"experimentName":"x","command":"echo ${{inputs.zulu}}","description":null,"limits":{"timeout":"PT5M"},"resources":{"instanceCount":1}},"id":"/x/y","name":"j"}`

func BenchmarkMarshal(b *testing.B) {
	v := decode(b, job)
	b.Run("ordered", func(b *testing.B) {
		for b.Loop() {
			if _, err := ordered.Marshal(v, []byte(job)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		for b.Loop() {
			if _, err := json.Marshal(v); err != nil {
				b.Fatal(err)
			}
		}
	})
}
