package berth

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/json"
	"io"
)

// Launches of many tasks are much alike. Their text has a line for what they share, which is the
// first of them, and a line for each, packed on top of that, so that one can be read without the
// others.

// launchesMark is the line before the text of launches, which may follow something else, such as a
// script.
const launchesMark = "\n#BERTH-LAUNCHES\n"

// maxLaunch bounds a launch that is read.
const maxLaunch = 16 << 20

// AppendLaunches adds the text of launches to b.
func AppendLaunches(b []byte, all []Launch) ([]byte, error) {
	b = append(b, launchesMark...)
	var common []byte
	for i, l := range all {
		doc, err := json.Marshal(l)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			common = doc
			if b, err = appendPacked(b, doc, nil); err != nil {
				return nil, err
			}
		}
		if b, err = appendPacked(b, doc, common); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// appendPacked adds a line.
func appendPacked(b, doc, common []byte) ([]byte, error) {
	var packed bytes.Buffer
	z, err := flate.NewWriterDict(&packed, flate.DefaultCompression, common)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(doc); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return append(base64.StdEncoding.AppendEncode(b, packed.Bytes()), '\n'), nil
}

// ReadLaunch finds one of the launches in what AppendLaunches has made.
func ReadLaunch(text []byte, index int) (l Launch, err error) {
	_, text, ok := bytes.Cut(text, []byte(launchesMark))
	if !ok || index < 0 {
		return l, Errorf(Invalid, "there is no launch with the index %d", index)
	}
	first, text, _ := bytes.Cut(text, []byte("\n"))
	common, err := unpack(first, nil)
	if err != nil {
		return l, err
	}
	for range index {
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	line, _, ok := bytes.Cut(text, []byte("\n"))
	if !ok {
		return l, Errorf(Invalid, "there is no launch with the index %d", index)
	}
	doc, err := unpack(line, common)
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(doc, &l); err != nil {
		return l, Errorf(Invalid, "a launch cannot be read: %w", err)
	}
	return l, nil
}

// unpack is the opposite of appendPacked.
func unpack(line, common []byte) ([]byte, error) {
	z := flate.NewReaderDict(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(line)), common)
	doc, err := io.ReadAll(io.LimitReader(z, maxLaunch))
	if err != nil {
		return nil, Errorf(Invalid, "a launch cannot be unpacked: %w", err)
	}
	return doc, nil
}
