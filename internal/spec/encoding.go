package spec

import (
	"bytes"
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"
)

// misfit is a place in a file that is not text.
type misfit struct {
	line, col int
	msg       string
}

// utf8Text is a file's text without a byte order mark: UTF-8, or UTF-16 where the mark says so.
func utf8Text(data []byte) ([]byte, *misfit) {
	switch {
	case bytes.HasPrefix(data, []byte{0xff, 0xfe}):
		return fromUTF16(data[2:], binary.LittleEndian)
	case bytes.HasPrefix(data, []byte{0xfe, 0xff}):
		return fromUTF16(data[2:], binary.BigEndian)
	case len(data) > 1 && (data[0] == 0) != (data[1] == 0):
		return nil, &misfit{line: 1, col: 1, msg: "is not UTF-8 but looks like UTF-16; save it as UTF-8"}
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			line, col := placeOf(data[:i])
			return nil, &misfit{line: line, col: col, msg: "is not valid UTF-8; save it as UTF-8"}
		}
		i += n
	}
	return data, nil
}

func fromUTF16(data []byte, order binary.ByteOrder) ([]byte, *misfit) {
	out := make([]byte, 0, len(data))
	for ; len(data) > 0; data = data[2:] {
		r := rune(utf8.RuneError)
		if len(data) > 1 {
			r = rune(order.Uint16(data))
		}
		if utf16.IsSurrogate(r) {
			low := rune(0)
			if len(data) > 3 {
				low = rune(order.Uint16(data[2:]))
			}
			r = utf16.DecodeRune(r, low)
			data = data[min(2, len(data)):]
		}
		if r == utf8.RuneError {
			line, col := placeOf(out)
			return nil, &misfit{line: line, col: col, msg: "is not valid UTF-16; save it as UTF-8"}
		}
		out = utf8.AppendRune(out, r)
	}
	return out, nil
}

// placeOf is the line and column of what follows text.
func placeOf(text []byte) (line, col int) {
	return 1 + bytes.Count(text, []byte("\n")), 1 + utf8.RuneCount(text[bytes.LastIndexByte(text, '\n')+1:])
}
