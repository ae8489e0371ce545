package track

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
)

// params are the parameters of a call, from its body or its query. The first thing wrong with them
// stays, and is what done returns; the words are MLflow's.
type params struct {
	m   object
	q   url.Values
	err error
}

const seeDocs = " See the API docs for more information about request parameters."

func (p *params) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// done is the first error.
func (p *params) done() error { return p.err }

// get is a value under its name, in either spelling.
func (p *params) get(name string) (any, bool) {
	if p.q != nil {
		if v, ok := p.q[name]; ok {
			return v[0], true
		}
		return nil, false
	}
	v := p.m[name]
	if v == nil {
		v = p.m[camel(name)]
	}
	return v, v != nil
}

func (p *params) has(name string) bool {
	_, ok := p.get(name)
	return ok
}

func camel(name string) string {
	if !strings.Contains(name, "_") {
		return name
	}
	var b strings.Builder
	for i, w := range strings.Split(name, "_") {
		if i > 0 && w != "" {
			w = strings.ToUpper(w[:1]) + w[1:]
		}
		b.WriteString(w)
	}
	return b.String()
}

func required(name string) error {
	return invalid("Missing value for required parameter '%s'."+seeDocs, name)
}

func wrongType(name string, v any) error {
	return invalid("Invalid value %s for parameter '%s' supplied:  Hint: Value was of type '%s'."+seeDocs, brief(v), name, pythonType(v))
}

// maxShown is how much of a value an error shows.
const maxShown = 1024

// brief is dump of a value for an error: of a long one, the beginning.
func brief(v any) string {
	d := dumper{comma: ",", colon: ":", most: maxShown}
	d.write(v)
	return beginning(d.b.String())
}

// beginning is as much of a text as an error shows.
func beginning(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + "..."
}

func pythonType(v any) string {
	switch v := v.(type) {
	case string:
		return "str"
	case bool:
		return "bool"
	case list:
		return "list"
	case object:
		return "dict"
	case number:
		if strings.ContainsAny(string(v), ".eENI") {
			return "float"
		}
		return "int"
	}
	return "NoneType"
}

// dump writes a value as Python's json does, keys sorted, no spaces.
func dump(v any) string {
	d := dumper{comma: ",", colon: ":", most: math.MaxInt}
	d.write(v)
	return d.b.String()
}

// pretty writes a value as Python's json does by default.
func pretty(v any) string {
	d := dumper{comma: ", ", colon: ": ", most: math.MaxInt}
	d.write(v)
	return d.b.String()
}

// A dumper writes values as Python's json does, until it has written most bytes.
type dumper struct {
	b            strings.Builder
	comma, colon string
	most         int
}

func (d *dumper) write(v any) {
	switch v := v.(type) {
	case number:
		d.b.WriteString(string(v))
	case list:
		d.b.WriteByte('[')
		for i, x := range v {
			if d.b.Len() > d.most {
				return
			}
			if i > 0 {
				d.b.WriteString(d.comma)
			}
			d.write(x)
		}
		d.b.WriteByte(']')
	case object:
		d.b.WriteByte('{')
		for i, k := range sortedKeys(v) {
			if d.b.Len() > d.most {
				return
			}
			if i > 0 {
				d.b.WriteString(d.comma)
			}
			d.write(k)
			d.b.WriteString(d.colon)
			d.write(v[k])
		}
		d.b.WriteByte('}')
	default:
		b, err := json.Marshal(v)
		if err != nil {
			b = []byte("null")
		}
		d.b.Write(b)
	}
}

// text is a string that may be absent.
func (p *params) text(name string) string {
	v, ok := p.get(name)
	if !ok {
		return ""
	}
	s, ok := v.(string)
	if !ok {
		p.fail(wrongType(name, v))
	}
	return s
}

// need is a string that must be there and not be empty.
func (p *params) need(name string) string {
	s := p.text(name)
	if s == "" {
		p.fail(required(name))
	}
	return s
}

// runID is the run a call is about.
func (p *params) runID() string {
	id := p.text("run_id")
	if id == "" {
		id = p.text("run_uuid")
	}
	if id == "" {
		p.fail(required("run_id"))
	}
	return id
}

func (p *params) int(name string, absent int64) int64 {
	v, ok := p.get(name)
	if !ok {
		return absent
	}
	n, ok := intOf(v)
	if !ok {
		p.fail(wrongType(name, v))
	}
	return n
}

// intOf reads an integer: a number without a fraction, or one in quotes.
func intOf(v any) (int64, bool) {
	var t string
	switch v := v.(type) {
	case number:
		t = string(v)
	case string:
		t = v
	default:
		return 0, false
	}
	if n, err := strconv.ParseInt(t, 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(t, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<63 {
		return 0, false
	}
	return int64(f), true
}

// floatOf reads a number: NaN and infinities travel in quotes.
func floatOf(v any) (float64, bool) {
	var t string
	switch v := v.(type) {
	case number:
		t = string(v)
	case string:
		t = v
	default:
		return 0, false
	}
	switch t {
	case "NaN":
		return math.NaN(), true
	case "Infinity":
		return math.Inf(1), true
	case "-Infinity":
		return math.Inf(-1), true
	}
	f, err := strconv.ParseFloat(t, 64)
	if err != nil && !math.IsInf(f, 0) || strings.ContainsAny(t, "xX_pPiIaA") {
		return 0, false
	}
	return f, true
}

func (p *params) bool(name string) bool {
	v, ok := p.get(name)
	if !ok {
		return false
	}
	switch v := v.(type) {
	case bool:
		return v
	case string:
		if b := strings.ToLower(v); p.q != nil && (b == "true" || b == "false") {
			return b == "true"
		}
		p.fail(invalid("Invalid boolean value: %s, must be 'true' or 'false'.", v))
	default:
		p.fail(wrongType(name, v))
	}
	return false
}

// texts is a list of strings.
func (p *params) texts(name string) []string {
	if p.q != nil {
		return p.q[name]
	}
	v, ok := p.get(name)
	if !ok {
		return nil
	}
	l, ok := v.(list)
	if !ok {
		p.fail(wrongType(name, v))
	}
	out := make([]string, 0, len(l))
	for _, x := range l {
		s, ok := x.(string)
		if !ok {
			p.fail(wrongType(name, v))
			return nil
		}
		out = append(out, s)
	}
	return out
}

// count is how many elements a list has.
func (p *params) count(name string) int {
	v, _ := p.get(name)
	l, _ := v.(list)
	return len(l)
}

// items is a list of objects.
func (p *params) items(name string) []object {
	v, ok := p.get(name)
	if !ok {
		return nil
	}
	l, ok := v.(list)
	if !ok {
		p.fail(wrongType(name, v))
	}
	out := make([]object, 0, len(l))
	for _, x := range l {
		m, ok := x.(object)
		if !ok {
			p.fail(wrongType(name, v))
			return nil
		}
		out = append(out, m)
	}
	return out
}

// A pair is a key and a value: a tag or a parameter.
type pair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// pairs is a list of tags or parameters. Each needs a key.
func (p *params) pairs(name string) []pair {
	items := p.items(name)
	out := make([]pair, 0, len(items))
	for i, m := range items {
		at := params{m: m}
		x := pair{Key: at.text("key"), Value: at.text("value")}
		if at.err != nil {
			p.fail(wrongType(name, p.m[name]))
			return nil
		}
		if x.Key == "" {
			p.fail(required(fmt.Sprintf("%s[%d].key", name, i)))
			return nil
		}
		out = append(out, x)
	}
	return out
}

// float is a number that may be NaN or infinite, and must be there.
func (p *params) float(name string) float64 {
	v, ok := p.get(name)
	if !ok {
		p.fail(required(name))
		return 0
	}
	f, ok := floatOf(v)
	if !ok {
		p.fail(wrongType(name, v))
	}
	return f
}

// limit is max_results, within its bounds.
func (p *params) limit(absent, most int64) int {
	if v, ok := p.get("max_results"); ok {
		n, ok := intOf(v)
		if !ok {
			p.fail(wrongType("max_results", v))
		}
		if n < 1 {
			p.fail(invalid("Invalid value %d for parameter 'max_results' supplied. It must be a positive integer", n))
		}
		if n > most {
			p.fail(invalid("Invalid value %d for parameter 'max_results' supplied. It must be at most %d."+seeDocs, n, most))
		}
		return int(n)
	}
	return int(absent)
}
