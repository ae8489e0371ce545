package config

import (
	"reflect"
	"regexp"
	"strings"
	"sync"

	"github.com/berthml/berth"
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
		if near := berth.Nearest(m[1], keys(of)); near != "" {
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
