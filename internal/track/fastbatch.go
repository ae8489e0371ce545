package track

import "strconv"

// parseBatch reads a batch as clients write it, without building a tree. Anything that is not quite right makes it give up:
// slowBatch reads it then, and says what is wrong.
func parseBatch(body []byte) (*batch, bool) {
	p := parser{b: body}
	b := &batch{}
	ok := p.fields(func(name string) bool {
		switch name {
		case "run_id", "run_uuid", "runId":
			id, ok := p.plainText()
			if ok && id != "" {
				b.run = id
			}
			return ok
		case "metrics":
			return p.elements(func() bool {
				m, ok := p.metric()
				b.metrics = append(b.metrics, m)
				return ok
			})
		case "params":
			return p.elements(func() bool { return p.pair(&b.params) })
		case "tags":
			return p.elements(func() bool { return p.pair(&b.tags) })
		}
		_, err := p.value(1)
		return err == nil
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
		name, err := p.text()
		if err != nil || !p.is(':') {
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
	n, err := p.number()
	if err != nil {
		return 0, false
	}
	i, err := strconv.ParseInt(string(n), 10, 64)
	return i, err == nil
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
		_, err := p.value(1)
		return err == nil
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
			if p.i < len(p.b) && p.b[p.i] == '"' {
				var s string
				if s, ok = p.plainText(); ok {
					m.Point.Value, ok = floatOf(s)
				}
			} else if n, err := p.number(); err == nil {
				m.Point.Value, ok = floatOf(n)
			}
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
		default:
			_, err := p.value(1)
			ok = err == nil
		}
		return ok
	})
	return m, ok && value && timestamp && m.Key != ""
}
