package config

import (
	"reflect"
	"regexp"
	"strings"
	"sync"
)

// unknownKey is what the decoder says of a key that there is none of.
var unknownKey = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`field (\S+) not found in type config\.(\w+)`) })

// heading is what the decoder says before it says what is wrong.
var heading = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^yaml: (construct|unmarshal) errors:\s*`) })

// syntax is what the decoder says before a mistake of YAML itself, and wrongType what it says of a
// value of another type.
var (
	syntax = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^go-yaml load error in \w+ (?:\([^)]*\) )?at L(\d+)\.C(\d+): `)
	})
	wrongType = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("cannot construct !!\\w+ `([^`]*)` into (\\w+)") })
)

// plainly is what is wrong with the file, without the names that things have in this program.
func plainly(err error) string {
	text := heading().ReplaceAllString(err.Error(), "")
	text = syntax().ReplaceAllString(text, "line $1, column $2: it is not valid YAML: ")
	text = wrongType().ReplaceAllStringFunc(text, func(text string) string {
		m := wrongType().FindStringSubmatch(text)
		want := map[string]string{"int": "a whole number", "int64": "a whole number", "float64": "a number", "bool": "true or false", "string": "a string"}[m[2]]
		if want == "" {
			want = "something else"
		}
		return "`" + m[1] + "` must be " + want
	})
	return unknownKey().ReplaceAllStringFunc(text, func(text string) string {
		m := unknownKey().FindStringSubmatch(text)
		of := reflect.TypeFor[Config]()
		if m[2] == "Allow" {
			of = reflect.TypeFor[Allow]()
		}
		out := "unknown key " + m[1]
		if near := nearest(m[1], keys(of)); near != "" {
			out += "; did you mean " + near + "?"
		}
		return out
	})
}

// keys are those of a part of the file.
func keys(of reflect.Type) (out []string) {
	for f := range of.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != "" && name != "-" {
			out = append(out, name)
		}
	}
	return out
}

// nearest is the word that one most likely stands for: at most a third of its letters are wrong,
// missing or too many.
func nearest(word string, words []string) (best string) {
	least := max(1, len(word)/3) + 1
	for _, w := range words {
		if d := distance(word, w); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance is how many letters have to be put in, taken out or changed to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		left, corner := i+1, row[0]
		row[0] = left
		for j := range b {
			d := corner
			if a[i] != b[j] {
				d = 1 + min(corner, left, row[j+1])
			}
			corner, row[j+1], left = row[j+1], d, d
		}
	}
	return row[len(b)]
}
