package arm

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// textFunctions are those of strings.
func textFunctions() map[string]function {
	return map[string]function{
		"tolower": {1, 1, text1(func(s string) (any, error) { return strings.ToLower(s), nil }), nil},
		"toupper": {1, 1, text1(func(s string) (any, error) { return strings.ToUpper(s), nil }), nil},
		"trim":    {1, 1, text1(func(s string) (any, error) { return strings.TrimSpace(s), nil }), nil},
		"string":  {1, 1, func(_ *Template, a []any) (any, error) { return asText(a[0]) }, nil},
		"format":  {1, -1, format, nil},
		"replace": {3, 3, texts(func(s []string) (any, error) { return replace(s[0], s[1], s[2]) }), nil},
		"startswith": {2, 2, texts(func(s []string) (any, error) {
			return strings.HasPrefix(strings.ToLower(s[0]), strings.ToLower(s[1])), nil
		}), nil},
		"endswith": {2, 2, texts(func(s []string) (any, error) {
			return strings.HasSuffix(strings.ToLower(s[0]), strings.ToLower(s[1])), nil
		}), nil},
		"indexof": {2, 2, texts(func(s []string) (any, error) {
			return int64(strings.Index(strings.ToLower(s[0]), strings.ToLower(s[1]))), nil
		}), nil},
		"lastindexof": {2, 2, texts(func(s []string) (any, error) {
			return int64(strings.LastIndex(strings.ToLower(s[0]), strings.ToLower(s[1]))), nil
		}), nil},
		"substring": {2, 3, substring, nil},
		"padleft":   {2, 3, padLeft, nil},
		"split":     {2, 2, split, nil},
	}
}

// texts is a function of strings.
func texts(f func([]string) (any, error)) func(*Template, []any) (any, error) {
	return func(_ *Template, a []any) (any, error) {
		words := make([]string, len(a))
		for i, v := range a {
			s, err := str(v)
			if err != nil {
				return nil, err
			}
			words[i] = s
		}
		return f(words)
	}
}

// replace is bounded before it is done: its result can be much larger than its arguments.
func replace(s, old, by string) (any, error) {
	if old == "" {
		return s, nil
	}
	if len(s)+strings.Count(s, old)*max(0, len(by)-len(old)) > maxValue {
		return nil, berth.Errorf(berth.Limit, "replace: its result is larger than %d KiB", maxValue>>10)
	}
	return strings.ReplaceAll(s, old, by), nil
}

// asText is how string and format write a value.
func asText(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case nil:
		return "", nil
	case bool:
		if v {
			return "True", nil
		}
		return "False", nil
	}
	if n, ok := number(v); ok {
		return strconv.FormatInt(n, 10), nil
	}
	b, err := json.Marshal(v)
	return string(b), err
}

// format puts values into {0}, {1} …; {{ and }} stand for braces.
func format(_ *Template, a []any) (any, error) {
	f, err := str(a[0])
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for i := 0; i < len(f); i++ {
		c := f[i]
		if c != '{' && c != '}' {
			b.WriteByte(c)
			continue
		}
		if i+1 < len(f) && f[i+1] == c {
			b.WriteByte(c)
			i++
			continue
		}
		end := strings.IndexByte(f[i:], '}')
		if c == '}' || end < 0 {
			return nil, berth.Errorf(berth.Invalid, "format: a brace stands alone; write {{ or }} for one")
		}
		spec := f[i+1 : i+end]
		i += end
		at, style, styled := strings.Cut(spec, ":")
		n, err := strconv.Atoi(at)
		if err != nil || n < 0 || n+1 >= len(a) {
			return nil, berth.Errorf(berth.Invalid, "format: {%s} names none of its %d values", spec, len(a)-1)
		}
		text, err := asText(a[n+1])
		if err != nil {
			return nil, err
		}
		if styled {
			digits, err := strconv.Atoi(strings.TrimPrefix(strings.ToUpper(style), "D"))
			if _, isNumber := number(a[n+1]); err != nil || !isNumber || !strings.HasPrefix(strings.ToUpper(style), "D") || digits > 64 {
				return nil, berth.Errorf(berth.Unsupported, "format: {%s} is not known here; D with a number of digits is", spec)
			}
			text = strings.Repeat("0", max(0, digits-len(text))) + text
		}
		if b.WriteString(text); b.Len() > maxValue {
			return nil, berth.Errorf(berth.Limit, "format: its result is larger than %d KiB", maxValue>>10)
		}
	}
	return b.String(), nil
}

func substring(_ *Template, a []any) (any, error) {
	s, err := str(a[0])
	if err != nil {
		return nil, err
	}
	runes := []rune(s)
	from, err := integer(a[1])
	if err != nil {
		return nil, err
	}
	n := int64(len(runes)) - from
	if len(a) > 2 {
		if n, err = integer(a[2]); err != nil {
			return nil, err
		}
	}
	if from < 0 || n < 0 || from > int64(len(runes)) || n > int64(len(runes))-from {
		return nil, berth.Errorf(berth.Invalid, "substring: %d characters from %d on are not within a string of %d", n, from, len(runes))
	}
	return string(runes[from : from+n]), nil
}

func padLeft(_ *Template, a []any) (any, error) {
	s, err := asText(a[0])
	if err != nil {
		return nil, err
	}
	n, err := integer(a[1])
	if err != nil {
		return nil, err
	}
	with := " "
	if len(a) > 2 {
		if with, err = str(a[2]); err != nil || len([]rune(with)) != 1 {
			return nil, berth.Errorf(berth.Invalid, "padLeft: pads with one character")
		}
	}
	if n > 10000 {
		return nil, berth.Errorf(berth.Limit, "padLeft: pads to at most 10000 characters")
	}
	return strings.Repeat(with, max(0, int(max(0, n))-len([]rune(s)))) + s, nil
}

func split(_ *Template, a []any) (any, error) {
	s, err := str(a[0])
	if err != nil {
		return nil, err
	}
	by, ok := a[1].(string)
	var all []string
	if ok {
		all = []string{by}
	} else if list, ok := a[1].([]any); ok {
		for _, v := range list {
			d, err := str(v)
			if err != nil {
				return nil, err
			}
			all = append(all, d)
		}
	}
	if len(all) == 0 || by == "" && ok {
		return nil, berth.Errorf(berth.Invalid, "split: takes a string and a delimiter, or an array of them")
	}
	for _, d := range all[1:] {
		v, err := replace(s, d, all[0])
		if err != nil {
			return nil, err
		}
		if s, err = str(v); err != nil {
			return nil, err
		}
	}
	out := []any{}
	for part := range strings.SplitSeq(s, all[0]) {
		out = append(out, part)
	}
	return out, nil
}
