package track

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// parseBatch reads a batch as clients write it, without building a tree. Anything that is not quite
// right or too much, a field that it does not know or one that comes twice makes it give up:
// slowBatch reads it then, and says what is wrong.
func parseBatch(body []byte) (*batch, bool) {
	p := parser{b: body}
	b := &batch{}
	var run, metrics, params, tags bool
	once := func(seen *bool) bool {
		first := !*seen
		*seen = true
		return first
	}
	ok := p.fields(func(name string) (ok bool) {
		switch name {
		case "run_id", "run_uuid", "runId":
			if once(&run) {
				b.run, ok = p.plainText()
			}
			return ok
		case "metrics":
			return once(&metrics) && p.elements(func() bool {
				m, ok := p.metric()
				b.metrics = append(b.metrics, m)
				return ok && len(b.metrics) <= maxBatchMetrics
			})
		case "params":
			return once(&params) && p.elements(func() bool { return p.pair(&b.params) && len(b.params) <= maxBatchParams })
		case "tags":
			return once(&tags) && p.elements(func() bool { return p.pair(&b.tags) && len(b.tags) <= maxBatchTags })
		}
		return false
	})
	p.space()
	return b, ok && p.i == len(body) && b.run != ""
}

// fields calls each for every name of an object, with the parser at its value.
func (p *parser) fields(each func(name string) bool) bool {
	if !p.is('{') {
		return false
	}
	if p.is('}') {
		return true
	}
	for {
		p.space()
		name, ok := p.name()
		if !ok || !p.is(':') {
			return false
		}
		if p.space(); !each(name) {
			return false
		}
		if !p.is(',') {
			return p.is('}')
		}
	}
}

// fieldNames are those that a batch has.
var fieldNames = func() map[string]string {
	m := map[string]string{}
	for _, n := range []string{
		"run_id", "run_uuid", "metrics", "params", "tags", "key", "value", "timestamp", "step", "model_id", "dataset_name", "dataset_digest",
	} {
		m[n] = n
	}
	return m
}()

// name is the name of a field; those that are known are not made again.
func (p *parser) name() (string, bool) {
	if p.i < len(p.b) && p.b[p.i] == '"' {
		for j := p.i + 1; j < len(p.b) && j-p.i < 20; j++ {
			if p.b[j] != '"' {
				continue
			}
			if known, ok := fieldNames[string(p.b[p.i+1:j])]; ok {
				p.i = j + 1
				return known, true
			}
			break
		}
	}
	s, err := p.text()
	return s, err == nil
}

// elements calls each for every element of a list.
func (p *parser) elements(each func() bool) bool {
	if !p.is('[') {
		return false
	}
	if p.is(']') {
		return true
	}
	for {
		if p.space(); !each() {
			return false
		}
		if !p.is(',') {
			return p.is(']')
		}
	}
}

// plainText is a string, or null.
func (p *parser) plainText() (string, bool) {
	if p.word("null") {
		return "", true
	}
	s, err := p.text()
	return s, err == nil
}

func (p *parser) integer() (int64, bool) {
	start, negative := p.i, false
	if p.i < len(p.b) && p.b[p.i] == '-' {
		negative = true
		p.i++
	}
	first := p.i
	n := int64(0)
	for p.i < len(p.b) && isDigit(p.b[p.i]) {
		n = 10*n + int64(p.b[p.i]-'0')
		p.i++
	}
	if p.i == first || p.b[first] == '0' && p.i > first+1 || p.i-first > 18 || p.i < len(p.b) && (p.b[p.i] == '.' || p.b[p.i]|0x20 == 'e') { // as others write integers too
		p.i = start
		return 0, false
	}
	if negative {
		n = -n
	}
	return n, true
}

// float is a number, in quotes where JSON has no other way to say it.
func (p *parser) float() (float64, bool) {
	if p.i < len(p.b) && p.b[p.i] == '"' {
		s, ok := p.plainText()
		if !ok {
			return 0, false
		}
		return floatOf(s)
	}
	start := p.i
	n, err := p.digits()
	if err != nil {
		return 0, false
	}
	if f, err := strconv.ParseFloat(string(n), 64); err == nil && n[len(n)-1] <= '9' && !math.IsNaN(f) {
		return f, true
	}
	p.i = start
	m, err := p.number()
	if err != nil {
		return 0, false
	}
	return floatOf(m)
}

// skip passes over a value; the commonest is a text.
func (p *parser) skip() bool {
	if p.i < len(p.b) && p.b[p.i] == '"' {
		for j := p.i + 1; j < len(p.b); j++ {
			switch c := p.b[j]; {
			case c == '"':
				ok := utf8.Valid(p.b[p.i:j])
				p.i = j + 1
				return ok
			case c == '\\' || c < 0x20:
				_, err := p.text()
				return err == nil
			}
		}
		return false
	}
	_, err := p.value(1)
	return err == nil
}

func (p *parser) pair(to *[]pair) bool {
	var x pair
	ok := p.fields(func(name string) (ok bool) {
		switch name {
		case "key":
			x.Key, ok = p.plainText()
			return ok
		case "value":
			x.Value, ok = p.plainText()
			return ok
		}
		return false
	})
	*to = append(*to, x)
	return ok && x.Key != ""
}

func (p *parser) metric() (metric, bool) {
	var m metric
	value, timestamp := false, false
	ok := p.fields(func(name string) (ok bool) {
		switch name {
		case "key":
			m.Key, ok = p.plainText()
		case "value":
			m.Point.Value, ok = p.float()
			value = true
		case "timestamp":
			m.Point.Timestamp, ok = p.integer()
			timestamp = true
		case "step":
			m.Point.Step, ok = p.integer()
		case "model_id":
			m.Model, ok = p.plainText()
		case "dataset_name":
			m.Dataset, ok = p.plainText()
		case "dataset_digest":
			m.Digest, ok = p.plainText()
		case "run_id": // clients send it; the batch's counts
			ok = p.skip()
		}
		return ok
	})
	return m, ok && value && timestamp && m.Key != ""
}
