package blob

import (
	"strings"
	"unicode/utf8"

	"github.com/berthml/berth"
)

// MaxName is how many characters a blob's name may have.
const MaxName = 1024

// maxMeta bounds a blob's metadata, names and values together, as Azure does.
const maxMeta = 8 << 10

// lastRune sorts behind every character a name may hold: listings use it to step over a common
// prefix.
const lastRune = '\U0010FFFF'

// CheckContainer says whether a container may be called name: Azure's rules, without the
// $-containers.
func CheckContainer(name string) error {
	bad := func(why string) error {
		return &berth.Error{
			Code: berth.Invalid, Wire: "InvalidResourceName",
			Msg: "container name " + quote(name) + " is not allowed: " + why,
		}
	}
	if len(name) < 3 || len(name) > 63 {
		return bad("use 3 to 63 characters")
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case c == '-' && i > 0 && i < len(name)-1 && name[i-1] != '-':
		default:
			return bad("use lower-case letters, digits and single dashes between them")
		}
	}
	return nil
}

// CheckName says whether a blob may be called name. Names become file names on the nodes and text
// in XML, so "." and ".." segments and characters that XML cannot carry are refused.
func CheckName(name string) error {
	bad := func(why string) error {
		return &berth.Error{
			Code: berth.Invalid, Wire: "InvalidResourceName",
			Msg: "blob name " + quote(name) + " is not allowed: " + why,
		}
	}
	switch {
	case name == "":
		return bad("it is empty")
	case !utf8.ValidString(name):
		return bad("it is not UTF-8")
	case utf8.RuneCountInString(name) > MaxName:
		return bad("it is longer than 1024 characters")
	}
	for _, r := range name {
		if !xmlChar(r) || r == lastRune {
			return bad("it contains a control character")
		}
	}
	for seg := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '/' || r == '\\' }) {
		if seg == "." || seg == ".." {
			return bad("a path segment is " + quote(seg))
		}
	}
	return nil
}

func xmlChar(r rune) bool {
	switch {
	case r == '\t', r == '\n', r == '\r':
		return true
	case r < 0x20, r == 0x7F, r == 0xFFFE, r == 0xFFFF, r >= 0xD800 && r < 0xE000:
		return false
	}
	return true
}

// checkMeta takes names that are legal as XML elements and header fields.
func checkMeta(meta map[string]string) error {
	total := 0
	for k, v := range meta {
		total += len(k) + len(v)
		if !metaName(k) || !utf8.ValidString(v) || strings.ContainsFunc(v, func(r rune) bool { return r < 0x20 && r != '\t' }) {
			return &berth.Error{Code: berth.Invalid, Wire: "InvalidMetadata", Msg: "metadata " + quote(k) +
				" is not allowed: names are letters, digits, '_', '-' and '.', starting with a letter or '_', and values are strings"}
		}
	}
	if total > maxMeta {
		return &berth.Error{Code: berth.Invalid, Wire: "MetadataTooLarge", Msg: "metadata is larger than 8 KiB"}
	}
	return nil
}

func metaName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || !(c >= '0' && c <= '9' || c == '-' || c == '.')) {
			return false
		}
	}
	return s != ""
}

func checkNames(container, name string) error {
	if err := CheckContainer(container); err != nil {
		return err
	}
	return CheckName(name)
}
