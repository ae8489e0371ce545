package spec

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// The single values. Each accepts what the reference client accepts, no more: text is text only, a
// whole number may be written as text, a version may be a number.
var (
	text     = typ{name: "a string", readFunc: readText}
	whole    = typ{name: "an integer", readFunc: readWhole}
	decimal  = typ{name: "a number", readFunc: readDecimal}
	flag     = typ{name: "true or false", readFunc: readFlag}
	version  = typ{name: "a version", readFunc: readVersion}
	anything = typ{name: "anything", null: true, readFunc: func(_ *scope, v *value) any { return v.raw() }}
	// moment is a date and time, as text: YAML's own kind is refused.
	moment = typ{name: "a date and time", readFunc: readMoment}
	// seconds, minutes and milliseconds are whole numbers that travel as ISO 8601 durations.
	seconds      = duration("seconds", 1000)
	minutes      = duration("minutes", 60_000)
	milliseconds = duration("milliseconds", 1)
	// literal is a plain value that travels as Python's text of it: "5", "0.5", "True".
	literal = typ{name: "a string, a number or a boolean", readFunc: readLiteral}
)

// webAddress is a URL of the web, with a host that could be one.
var webAddress = typ{name: "a URL", readFunc: func(s *scope, v *value) any {
	url, ok := readText(s, v).(string)
	if ok && !webForm.MatchString(url) {
		s.fail(v, "%s is not a valid URL; write https://HOST/PATH", describe(v))
		return nil
	}
	return url
}}

var webForm = re(`(?i)^(https?|ftps?)://([^\s/@:]+(:[^\s/@]*)?@)?(localhost|([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z0-9-]{2,}\.?|[0-9]+(\.[0-9]+){3}|\[[0-9a-f:.]+\])(:[0-9]+)?([/?#]\S*)?$`)

func readText(s *scope, v *value) any {
	if v.shape != str {
		if v.scalar() && v.shape != null {
			s.fail(v, "must be a string, not %s; put it in quotes", v.shape)
		} else {
			s.fail(v, "must be a string, not %s", v.shape)
		}
		return nil
	}
	return v.text
}

var wholeForm = re(`^\s*[-+]?[0-9]+(_[0-9]+)*\s*$`)

func readWhole(s *scope, v *value) any {
	if n, ok := wholeOf(v); ok {
		return number(n.String())
	}
	s.fail(v, "must be an integer, not %s", describe(v))
	return nil
}

func wholeOf(v *value) (*big.Int, bool) {
	switch {
	case v.shape == integer:
		return v.num, true
	case v.shape == float && !math.IsInf(v.real, 0) && !math.IsNaN(v.real):
		n, _ := big.NewFloat(v.real).Int(nil)
		return n, true
	case v.shape == str && wholeForm.MatchString(v.text):
		return new(big.Int).SetString(strings.TrimLeft(strings.ReplaceAll(strings.TrimSpace(v.text), "_", ""), "+"), 10)
	}
	return nil, false
}

func readDecimal(s *scope, v *value) any {
	switch v.shape {
	case integer:
		f, _ := new(big.Float).SetInt(v.num).Float64()
		return number(jsonFloat(f))
	case float:
		if !math.IsInf(v.real, 0) && !math.IsNaN(v.real) {
			return number(jsonFloat(v.real))
		}
	case str:
		if f, err := strconv.ParseFloat(strings.TrimSpace(v.text), 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return number(jsonFloat(f))
		}
	}
	s.fail(v, "must be a number, not %s", describe(v))
	return nil
}

func readFlag(s *scope, v *value) any {
	switch v.shape {
	case boolean:
		return v.yes
	case integer:
		if n, ok := v.int64(); ok && (n == 0 || n == 1) {
			return n == 1
		}
	case float:
		if v.real == 0 || v.real == 1 {
			return v.real == 1
		}
	case str:
		t := v.text
		low := strings.ToLower(t)
		usual := t == low || t == strings.ToUpper(t) || t == strings.ToUpper(t[:1])+low[1:]
		if b, ok := truth.get()[low]; ok && usual {
			return b
		}
	}
	s.fail(v, "must be true or false, not %s", describe(v))
	return nil
}

func readVersion(s *scope, v *value) any {
	switch v.shape {
	case str, integer, float, boolean:
		return v.python()
	}
	s.fail(v, "must be a version (a string or a number), not %s", describe(v))
	return nil
}

func readMoment(s *scope, v *value) any {
	switch v.shape {
	case str:
		if t, ok := isoTime(v.text); ok {
			return t
		}
	case date:
		s.fail(v, "must be a string; put the date and time in quotes")
		return nil
	}
	s.fail(v, "must be a date and time such as \"2022-03-10T10:15:00\", not %s", describe(v))
	return nil
}

func readLiteral(s *scope, v *value) any {
	if readPrimitive(s, v) == nil {
		return nil
	}
	return v.python()
}

func readPrimitive(s *scope, v *value) any {
	switch v.shape {
	case float:
		if math.IsInf(v.real, 0) || math.IsNaN(v.real) {
			s.fail(v, "must be a finite number, not %s", v.python())
			return nil
		}
		return v.raw()
	case str, integer, boolean:
		return v.raw()
	case date:
		s.fail(v, "must be a string, a number or a boolean; put a date in quotes")
	default:
		s.fail(v, "must be a string, a number or a boolean, not %s", v.shape)
	}
	return nil
}

// describe names a wrong value for a message.
func describe(v *value) string {
	switch v.shape {
	case list, mapping, null:
		return v.shape.String()
	case str:
		return strconv.Quote(shorten(v.text))
	}
	return shorten(v.python())
}

func shorten(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:57]) + "…"
	}
	return s
}

// enum takes one of some words, whatever their case. A word may say what it becomes:
// "low_priority=LowPriority".
func enum(ws ...string) typ { return typ{choice: &choice{words: ws, fold: strings.ToLower}} }

// looseEnum is an enum that also takes the words in CamelCase.
func looseEnum(ws ...string) typ { return typ{choice: &choice{words: ws, fold: snakeWords}} }

// exactEnum takes the words as they are spelled only.
func exactEnum(ws ...string) typ { return typ{choice: &choice{words: ws, fold: asSpelled}} }

func asSpelled(s string) string { return s }

// snakeWords is snake for a list with commas: SystemAssigned,UserAssigned.
func snakeWords(s string) string {
	ws := strings.Split(s, ",")
	for i := range ws {
		ws[i] = snake(strings.TrimSpace(ws[i]))
	}
	return strings.Join(ws, ",")
}

// words are those of an enum, NAME or NAME=WHAT IT BECOMES.
type words []string

// each calls f for every word.
func (ws words) each(f func(name, becomes string) (more bool)) {
	for _, w := range ws {
		name, becomes, ok := strings.Cut(w, "=")
		if !ok {
			becomes = name
		}
		if !f(name, becomes) {
			return
		}
	}
}

func (ws words) names() (out []string) {
	ws.each(func(name, _ string) bool {
		out = append(out, name)
		return true
	})
	return out
}

// choice is one of some words, compared after fold.
type choice struct {
	words words
	fold  func(string) string
	// instead says what to use in place of a word that is none of them, "" where it does not know.
	instead func(word string) string
}

func (c *choice) String() string { return strings.Join(c.words.names(), ", ") }

// read gives what the word becomes, or the word itself in YAML. The last of two words that fold to
// the same counts.
func (c *choice) read(s *scope, v *value, yaml bool) any {
	if v.shape != str {
		instead := ""
		if slices.ContainsFunc(c.words.names(), func(word string) bool { return c.fold(word) == c.fold(v.python()) }) {
			instead = ": write it in quotes"
		}
		s.fail(v, "must be one of %s; got %s%s", c, describe(v), instead)
		return nil
	}
	var got any
	c.words.each(func(name, becomes string) bool {
		if c.fold(name) == c.fold(v.text) {
			if got = becomes; yaml {
				got = name
			}
		}
		return true
	})
	switch {
	case got != nil:
	case c.instead != nil && c.instead(c.fold(v.text)) != "":
		s.fail(v, "%s is not one of %s; %s", describe(v), c, c.instead(c.fold(v.text)))
	default:
		s.failWith(v, nearest(v.text, c.words.names()), "%s is not one of %s", describe(v), c)
	}
	return got
}

func (c *choice) show(j any) any {
	if w, ok := j.(string); ok {
		c.words.each(func(name, becomes string) bool {
			if strings.EqualFold(becomes, w) {
				j = name
				return false
			}
			return true
		})
	}
	return j
}
