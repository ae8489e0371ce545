package mltable

import "io"

// quotedEnds keeps the ends of lines in quoted values as they are: encoding/csv makes \n of \r\n
// there too. It takes one \r before each \n, so each in a quoted value gets one more.
type quotedEnds struct {
	r         io.Reader
	delimiter string
	in        []byte
	made      []byte // of in
	out       []byte // of that, what was not read yet
	err       error

	at      place
	matched int  // bytes of the delimiter
	cr      bool // the last byte of the value was one
}

// place is where in a record a byte is.
type place byte

const (
	fieldStart place = iota
	plain
	quoted
	quoteSeen // in a quoted value: its end, half of a quote, or a stray quote
	crSeen    // after such a quote
)

func newQuotedEnds(r io.Reader, delimiter rune) *quotedEnds {
	return &quotedEnds{r: r, delimiter: string(delimiter), in: make([]byte, 32<<10)}
}

func (q *quotedEnds) Read(p []byte) (int, error) {
	for len(q.out) == 0 {
		if q.err != nil {
			return 0, q.err
		}
		var n int
		n, q.err = q.r.Read(q.in)
		q.made = q.made[:0]
		for _, b := range q.in[:n] {
			if q.double(b) {
				q.made = append(q.made, '\r')
			}
			q.made = append(q.made, b)
		}
		q.out = q.made
	}
	n := copy(p, q.out)
	q.out = q.out[n:]
	return n, nil
}

// double takes the next byte, and says whether it ends a line in a quoted value, after a \r.
func (q *quotedEnds) double(b byte) bool {
	switch q.at {
	case fieldStart:
		if b == '"' {
			q.at, q.matched = quoted, 0
			return false
		}
		q.plain(b)
		return false
	case plain:
		q.plain(b)
		return false
	case quoteSeen:
		switch {
		case b == '"':
			q.at, q.cr, q.matched = quoted, false, 0
			return false
		case b == '\n':
			q.at, q.matched = fieldStart, 0
			return false
		case b == '\r':
			q.at, q.matched = crSeen, 0
			return false
		case q.delimits(b):
			return false
		}
		q.at, q.cr = quoted, false // a stray quote
	case crSeen:
		if b == '\n' {
			q.at = fieldStart
			return false
		}
		q.at, q.cr = quoted, true
	}
	end := b == '\n' && q.cr
	q.cr = b == '\r'
	if b == '"' {
		q.at, q.matched = quoteSeen, 0
	}
	return end
}

// plain takes a byte of a value without quotes.
func (q *quotedEnds) plain(b byte) {
	switch {
	case b == '\n':
		q.at, q.matched = fieldStart, 0
	case !q.delimits(b):
		q.at = plain
	}
}

// delimits says whether a byte is, or may become, the delimiter, which begins the next field.
func (q *quotedEnds) delimits(b byte) bool {
	if b != q.delimiter[q.matched] {
		q.matched = 0
		if b != q.delimiter[0] {
			return false
		}
	}
	if q.matched++; q.matched == len(q.delimiter) {
		q.at, q.matched = fieldStart, 0
	} else if q.at == fieldStart {
		q.at = plain
	}
	return true
}
