package mltable

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/berthml/berth"
)

// known says whether text in this encoding can be read.
func known(encoding string) bool {
	switch encoding {
	case "utf8", "utf8bom", "ascii", "iso88591", "latin1", "windows1252", "utf16":
		return true
	}
	return false
}

// decode makes UTF-8 of text in an encoding, without a byte order mark.
func decode(r *bufio.Reader, encoding string) (io.Reader, error) {
	switch encoding {
	case "iso88591", "latin1", "windows1252":
		return &decoder{next: func() (rune, error) {
			b, err := r.ReadByte()
			if encoding == "windows1252" && b >= 0x80 && b < 0xa0 {
				return windows1252[b-0x80], err
			}
			return rune(b), err
		}}, nil
	case "utf16":
		return decode16(r)
	}
	mark, err := r.Peek(3)
	if err == nil && bytes.Equal(mark, []byte("\ufeff")) {
		_, err = r.Discard(3)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return r, err
}

// windows1252 are the characters of that encoding between 0x80 and 0x9f.
var windows1252 = [32]rune{
	'€', utf8.RuneError, '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', utf8.RuneError, 'Ž', utf8.RuneError,
	utf8.RuneError, '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', utf8.RuneError, 'ž', 'Ÿ',
}

func decode16(r *bufio.Reader) (io.Reader, error) {
	var order binary.ByteOrder = binary.LittleEndian
	mark, err := r.Peek(2)
	if err == nil && (mark[0] == 0xfe && mark[1] == 0xff || mark[0] == 0xff && mark[1] == 0xfe) {
		if mark[0] == 0xfe {
			order = binary.BigEndian
		}
		_, err = r.Discard(2)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	unit := func() (rune, error) {
		var b [2]byte
		_, err := io.ReadFull(r, b[:])
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = berth.Errorf(berth.Invalid, "it is not UTF-16: its length is odd")
		}
		return rune(order.Uint16(b[:])), err
	}
	return &decoder{next: func() (rune, error) {
		a, err := unit()
		if err != nil || !utf16.IsSurrogate(a) {
			return a, err
		}
		b, err := unit()
		if errors.Is(err, io.EOF) {
			err = berth.Errorf(berth.Invalid, "it is not UTF-16: half a character is at its end")
		}
		return utf16.DecodeRune(a, b), err
	}}, nil
}

// decoder is UTF-8 of the characters that next returns.
type decoder struct {
	next func() (rune, error)
	rest []byte
}

func (d *decoder) Read(p []byte) (n int, err error) {
	for {
		k := copy(p[n:], d.rest)
		n, d.rest = n+k, d.rest[k:]
		if n == len(p) {
			return n, nil
		}
		c, err := d.next()
		if err != nil {
			return n, err
		}
		d.rest = utf8.AppendRune(d.rest[:0], c)
	}
}
