package arm

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// hidden stands for the value of a secure parameter.
const hidden = "(secure)"

// veiled is an error without the values of secure parameters, which may be part of a name or of
// what a service says about one.
func (t *Template) veiled(err error) error {
	if err == nil {
		return nil
	}
	var all []string
	for name, p := range t.parameters {
		if p.secure {
			all = secrets(all, t.values[name])
		}
	}
	// Longer ones first: one may be part of another.
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	var pairs []string
	for _, s := range all {
		pairs = append(pairs, s, hidden)
	}
	text := strings.NewReplacer(pairs...).Replace(err.Error())
	if text == err.Error() {
		return err
	}
	out := &berth.Error{Code: berth.CodeOf(err), Msg: text}
	if e := (*berth.Error)(nil); errors.As(err, &e) {
		out.Wire = e.Wire
	}
	return out
}

// secrets adds the strings and integers in a value, in the ways messages write them.
func secrets(all []string, v any) []string {
	switch v := v.(type) {
	case string:
		for _, s := range []string{v, strings.ToLower(v), strings.ToUpper(v)} {
			q := strconv.Quote(s)
			all = append(all, s, q[1:len(q)-1], url.PathEscape(s))
			if b, err := json.Marshal(s); err == nil {
				all = append(all, string(b[1:len(b)-1]))
			}
		}
		return slices.DeleteFunc(all, func(s string) bool { return s == "" })
	case []any:
		for _, e := range v {
			all = secrets(all, e)
		}
	case map[string]any:
		for _, e := range v {
			all = secrets(all, e)
		}
	default:
		if n, ok := number(v); ok {
			return append(all, strconv.FormatInt(n, 10))
		}
	}
	return all
}
