package spec

import (
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"
)

// dumpYAML writes v as YAML the way the reference client does: block style, keys sorted, lists not
// indented below their key. Equal definitions must give equal text, for the text is what
// environments are compared by.
func dumpYAML(v *value) string {
	var w yamlWriter
	w.block(v, 0, false)
	return w.b.String()
}

type yamlWriter struct{ b strings.Builder }

// block writes v at an indent; inline says that the cursor stands after "key:" or "- ".
func (w *yamlWriter) block(v *value, indent int, inList bool) {
	switch {
	case v.shape == mapping && len(v.pairs) > 0:
		w.mapping(v, indent, inList)
	case v.shape == list && len(v.items) > 0:
		for i, it := range v.items {
			if i > 0 || !inList {
				w.b.WriteString(strings.Repeat(" ", indent))
			}
			w.b.WriteString("- ")
			w.nested(it, indent+2)
		}
	default:
		w.b.WriteString(w.scalar(v, indent) + "\n")
	}
}

func (w *yamlWriter) mapping(v *value, indent int, inList bool) {
	pairs := append([]pair(nil), v.pairs...)
	sort.SliceStable(pairs, func(i, j int) bool { return pairs[i].key < pairs[j].key })
	for i, p := range pairs {
		if i > 0 || !inList {
			w.b.WriteString(strings.Repeat(" ", indent))
		}
		key := p.key
		if p.text {
			key = quoteYAML(key)
		}
		w.b.WriteString(key + ":")
		switch {
		case p.val.shape == mapping && len(p.val.pairs) > 0:
			w.b.WriteByte('\n')
			w.mapping(p.val, indent+2, false)
		case p.val.shape == list && len(p.val.items) > 0:
			w.b.WriteByte('\n')
			w.block(p.val, indent, false)
		default:
			w.b.WriteString(" " + w.scalar(p.val, indent+2) + "\n")
		}
	}
}

// nested writes an item after its dash.
func (w *yamlWriter) nested(v *value, indent int) { w.block(v, indent, true) }

func (w *yamlWriter) scalar(v *value, indent int) string {
	switch v.shape {
	case null:
		return "null"
	case boolean:
		return map[bool]string{true: "true", false: "false"}[v.yes]
	case integer:
		return v.num.String()
	case float:
		s := pythonFloat(v.real)
		switch s {
		case "inf", "-inf", "nan":
			return strings.Replace(strings.Replace(s, "inf", ".inf", 1), "nan", ".nan", 1)
		}
		if !strings.Contains(s, ".") {
			s = strings.Replace(s, "e", ".0e", 1)
		}
		return s
	case list:
		return "[]"
	case mapping:
		return "{}"
	case date:
		return v.text
	}
	if lines, ok := quoteLines(v.text, indent); ok {
		return lines
	}
	return w.fold(quoteYAML(v.text), indent)
}

// quoteLines is text of several lines in single quotes, its line breaks doubled; ok is false when
// that cannot hold it.
func quoteLines(s string, indent int) (string, bool) {
	if !strings.Contains(s, "\n") || strings.Contains(s, " \n") || strings.Contains(s, "\n ") {
		return "", false
	}
	for _, r := range s {
		if r != '\n' && (r < 0x20 || r >= 0x7f) {
			return "", false
		}
	}
	var b strings.Builder
	for i, line := range strings.Split(strings.ReplaceAll(s, "'", "''"), "\n") {
		if i > 0 {
			b.WriteByte('\n')
		}
		if i > 0 && line != "" {
			b.WriteString("\n" + strings.Repeat(" ", indent))
		}
		b.WriteString(line)
	}
	if strings.HasSuffix(s, "\n") {
		b.WriteString("\n" + strings.Repeat(" ", indent))
	}
	return "'" + b.String() + "'", true
}

// fold breaks long text at blanks, as the client's writer does past column 80.
func (w *yamlWriter) fold(s string, indent int) string {
	line := w.b.String()
	column := len(line) - 1 - strings.LastIndexByte(line, '\n') + 1
	if column+utf8.RuneCountInString(s) <= 80 || !strings.Contains(s, " ") || strings.HasPrefix(s, `"`) {
		return s
	}
	var b strings.Builder
	words := strings.Split(s, " ")
	for i, word := range words {
		if i > 0 {
			if column > 80 && words[i-1] != "" && word != "" {
				b.WriteString("\n" + strings.Repeat(" ", indent))
				column = indent
			} else {
				b.WriteByte(' ')
				column++
			}
		}
		b.WriteString(word)
		column += utf8.RuneCountInString(word)
	}
	return b.String()
}

// quoteYAML gives text the quotes it needs: none, single, or double when there are characters to
// escape.
func quoteYAML(s string) string {
	if s == "" {
		return "''"
	}
	for _, r := range s {
		if r != ' ' && (r < 0x20 || r == 0x7f || r >= 0x80) {
			return doubleQuote(s)
		}
	}
	probe := &value{}
	resolve(probe, s)
	plain := probe.shape == str && s != "=" && s != "<<" &&
		!strings.HasPrefix(s, " ") && !strings.HasSuffix(s, " ") &&
		!strings.ContainsAny(s[:1], "#,[]{}&*!|>'\"%@`") &&
		!strings.Contains(s, ": ") && !strings.HasSuffix(s, ":") && !strings.Contains(s, " #") &&
		!((s[0] == '-' || s[0] == '?' || s[0] == ':') && (len(s) == 1 || s[1] == ' ')) &&
		!strings.HasPrefix(s, "---") && !strings.HasPrefix(s, "...")
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

func doubleQuote(s string) string {
	short := map[rune]string{
		0: `\0`, 7: `\a`, 8: `\b`, 9: `\t`, 10: `\n`, 11: `\v`, 12: `\f`, 13: `\r`, 27: `\e`,
		'"': `\"`, '\\': `\\`, 0x85: `\N`, 0xa0: `\_`, 0x2028: `\L`, 0x2029: `\P`,
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch e, ok := short[r]; {
		case ok:
			b.WriteString(e)
		case r >= 0x20 && r < 0x7f:
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02X`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			fmt.Fprintf(&b, `\U%08X`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
