package cli

import "bytes"

// colorJSON paints indented JSON: names, text, and the rest.
func colorJSON(text []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(text) {
		rest := bytes.TrimLeft(line, " ")
		b.Write(line[:len(line)-len(rest)])
		if len(rest) > 0 && rest[0] == '"' {
			if end := closing(rest); bytes.HasPrefix(rest[end:], []byte(": ")) {
				painted(&b, blue, rest[:end])
				b.WriteString(": ")
				rest = rest[end+2:]
			}
		}
		value := bytes.TrimRight(rest, ",\n")
		switch {
		case len(value) == 0:
		case value[0] == '"':
			painted(&b, green, value)
		case bytes.ContainsAny(value[:1], "[]{}"):
			b.Write(value)
		default:
			painted(&b, cyan, value)
		}
		b.Write(rest[len(value):])
	}
	return b.Bytes()
}

// closing is where the string that text begins with has ended.
func closing(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// colorYAML paints the names of block mappings.
func colorYAML(text []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(text) {
		start := len(line) - len(bytes.TrimLeft(line, " -"))
		name, _, ok := bytes.Cut(line[start:], []byte(":"))
		if !ok || bytes.ContainsAny(name, " \"'") {
			b.Write(line)
			continue
		}
		b.Write(line[:start])
		painted(&b, blue, name)
		b.Write(line[start+len(name):])
	}
	return b.Bytes()
}

func painted(b *bytes.Buffer, code string, text []byte) {
	b.WriteString("\x1b[" + code + "m")
	b.Write(text)
	b.WriteString("\x1b[0m")
}
