package berth

import "strings"

// Bindings calls f for each ${{inputs.NAME}}-like expression of text, with what stands before and
// after the first dot. An expression that is not closed or not a dotted path is an error.
func Bindings(text string, f func(where, name string) error) error {
	_, err := Expand(text, func(where, name string) (string, error) { return "", f(where, name) })
	return err
}

// Expand replaces each ${{WHERE.NAME}} of text by what value returns for it. Nothing inside a
// replacement is expanded again.
func Expand(text string, value func(where, name string) (string, error)) (string, error) {
	i := strings.Index(text, "${{")
	if i < 0 {
		return text, nil
	}
	var b strings.Builder
	for i >= 0 {
		b.WriteString(text[:i])
		end := strings.Index(text[i:], "}}")
		if end < 0 {
			return "", Errorf(Invalid, "%.40q: the expression is not closed with }}", text[i:])
		}
		path := strings.TrimSpace(text[i+3 : i+end])
		where, name, ok := strings.Cut(path, ".")
		if !ok || where == "" || name == "" || strings.ContainsAny(path, " \t\r\n{}$") {
			return "", Errorf(Invalid, "${{%s}} is not of the form ${{inputs.NAME}} or ${{outputs.NAME}}", path)
		}
		v, err := value(where, name)
		if err != nil {
			return "", err
		}
		b.WriteString(v)
		text = text[i+end+2:]
		i = strings.Index(text, "${{")
	}
	b.WriteString(text)
	return b.String(), nil
}
