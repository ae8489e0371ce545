package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

func wheelName(version string, t target) string {
	return fmt.Sprintf("berth-%s-py3-none-%s.whl", version, t.wheel)
}

// makeWheel is a Python wheel whose only content is the program: pip puts it on the PATH.
func makeWheel(version string, t target, binary []byte) ([]byte, error) {
	info := "berth-" + version + ".dist-info/"
	program := "berth-" + version + ".data/scripts/berth"
	if t.os == "windows" {
		program += ".exe"
	}
	tags := ""
	for platform := range strings.SplitSeq(t.wheel, ".") {
		tags += "Tag: py3-none-" + platform + "\n"
	}
	files := []entry{
		{name: program, mode: 0o755, data: binary},
		{name: info + "METADATA", mode: 0o644, data: []byte("Metadata-Version: 2.1\nName: berth\nVersion: " + version + "\nSummary: " + about + "\nHome-page: https://github.com/berthml/berth\nLicense: Apache-2.0\nRequires-Python: >=3.8\n")},
		{name: info + "WHEEL", mode: 0o644, data: []byte("Wheel-Version: 1.0\nGenerator: berth dist\nRoot-Is-Purelib: false\n" + tags)},
	}
	record := ""
	for _, f := range files {
		sum := sha256.Sum256(f.data)
		record += fmt.Sprintf("%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.data))
	}
	record += info + "RECORD,,\n"
	files = append(files, entry{name: info + "RECORD", mode: 0o644, data: []byte(record)})
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: epoch}
		h.ExternalAttrs = uint32(0o100000|f.mode) << 16 // a regular file
		h.CreatorVersion = 3 << 8                       // Unix: the mode counts
		out, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := out.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}
