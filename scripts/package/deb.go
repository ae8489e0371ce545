package main

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"maps"
	"slices"
)

const about = "open compute plane for machine learning"

// makeDeb is a Debian package with the program and its manual pages. `berth setup team` makes a
// server of it.
func makeDeb(version string, t target, binary []byte, pages map[string][]byte) ([]byte, error) {
	copyright := []byte("Berth is licensed under the Apache License, Version 2.0.\nOn Debian systems the text of the licence is in /usr/share/common-licenses/Apache-2.0.\n")
	files := []entry{
		{name: "./", mode: 0o755},
		{name: "./usr/", mode: 0o755},
		{name: "./usr/bin/", mode: 0o755},
		{name: "./usr/bin/berth", mode: 0o755, data: binary},
		{name: "./usr/share/", mode: 0o755},
		{name: "./usr/share/doc/", mode: 0o755},
		{name: "./usr/share/doc/berth/", mode: 0o755},
		{name: "./usr/share/doc/berth/copyright", mode: 0o644, data: copyright},
		{name: "./usr/share/man/", mode: 0o755},
		{name: "./usr/share/man/man1/", mode: 0o755},
	}
	sums := fmt.Sprintf("%x  usr/bin/berth\n%x  usr/share/doc/berth/copyright\n", md5.Sum(binary), md5.Sum(copyright))
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		page, err := gz(pages[name])
		if err != nil {
			return nil, err
		}
		path := "usr/share/man/man1/" + name + ".gz"
		files = append(files, entry{name: "./" + path, mode: 0o644, data: page})
		sums += fmt.Sprintf("%x  %s\n", md5.Sum(page), path)
	}
	data, err := tarGz(files)
	if err != nil {
		return nil, err
	}
	fields := fmt.Sprintf("Package: berth\nVersion: %s\nArchitecture: %s\nMaintainer: The Berth authors <berth@berthml.org>\nInstalled-Size: %d\n"+
		"Section: science\nPriority: optional\nRecommends: python3, ca-certificates\nHomepage: https://github.com/berthml/berth\n"+
		"Description: %s\n Server and command line in one program, with the interface of Azure Machine Learning.\n", version, t.deb, len(binary)/1024+8, about)
	control, err := tarGz([]entry{
		{name: "./", mode: 0o755},
		{name: "./control", mode: 0o644, data: []byte(fields)},
		{name: "./md5sums", mode: 0o644, data: []byte(sums)},
	})
	if err != nil {
		return nil, err
	}
	return ar([]entry{{name: "debian-binary", data: []byte("2.0\n")}, {name: "control.tar.gz", data: control}, {name: "data.tar.gz", data: data}}), nil
}

// ar is entries as an archive of ar.
func ar(entries []entry) []byte {
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, e := range entries {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", e.name, epoch.Unix(), 0, 0, "100644", len(e.data))
		b.Write(e.data)
		if len(e.data)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}
