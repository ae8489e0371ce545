package api

import "encoding/json"

// texts makes strings of the values of m's members that are maps of strings. Clients send numbers
// and booleans in them, too, and the service hands out strings: whoever reads into a map of strings
// could not read the document, nor a list that it is in.
func texts(m map[string]any, members ...string) {
	for _, k := range members {
		for name, v := range asMap(m[k]) {
			asMap(m[k])[name] = wording(v)
		}
	}
}

// wording is a number or a truth value as the text it has in a map of strings; anything else as it
// is.
func wording(v any) any {
	switch x := v.(type) {
	case json.Number:
		return x.String()
	case bool:
		if x {
			return "True"
		}
		return "False"
	}
	return v
}
