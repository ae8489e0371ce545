package arm

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// function is one of the template language.
type function struct {
	least, most int // arguments; most -1 is any number
	run         func(t *Template, args []any) (any, error)
	lazy        func(t *Template, args []*node) (any, error) // instead, where not all are evaluated
}

func (f function) takes() string {
	switch {
	case f.most < 0:
		return fmt.Sprintf("at least %d arguments", f.least)
	case f.least == f.most && f.least == 1:
		return "1 argument"
	case f.least == f.most:
		return fmt.Sprintf("%d arguments", f.least)
	}
	return fmt.Sprintf("%d to %d arguments", f.least, f.most)
}

// unknownFunction says that there is none of this name, and why where there is more to say.
func unknownFunction(name string) error {
	l := strings.ToLower(name)
	switch {
	case strings.HasPrefix(l, "list"):
		return berth.Errorf(berth.Unsupported, "function %s is not supported: this server has no accounts whose keys could be listed", name)
	case l == "pickzones" || l == "providers":
		return berth.Errorf(berth.Unsupported, "function %s is not supported: this server has no regions of Azure", name)
	case l == "lambda" || l == "map" || l == "filter" || l == "reduce" || l == "sort" || l == "lambdavariables":
		return berth.Errorf(berth.Unsupported, "function %s is not supported: lambda expressions are not evaluated here", name)
	}
	return berth.Errorf(berth.Unsupported, "there is no function %s; docs/clients.md lists those that templates can call here", name)
}

// builtins are the functions, by their names in lower case.
func builtins() map[string]function {
	all := map[string]function{
		"parameters": {1, 1, func(t *Template, a []any) (any, error) { return named(a, t.parameter) }, nil},
		"variables":  {1, 1, func(t *Template, a []any) (any, error) { return named(a, t.variable) }, nil},
		"copyindex":  {0, 2, copyIndex, nil},
		"reference":  {1, 3, reference, nil},

		"resourceid": {2, -1, func(t *Template, a []any) (any, error) {
			return t.resourceID("/subscriptions/"+t.place.Subscription, "/resourceGroups/"+t.place.Group, a)
		}, nil},
		"subscriptionresourceid": {2, -1, func(t *Template, a []any) (any, error) {
			return t.resourceID("/subscriptions/"+t.place.Subscription, "", a)
		}, nil},
		"tenantresourceid": {2, -1, func(t *Template, a []any) (any, error) { return t.resourceID("", "", a) }, nil},
		"resourcegroup": {0, 0, func(t *Template, _ []any) (any, error) {
			return map[string]any{
				"id": "/subscriptions/" + t.place.Subscription + "/resourceGroups/" + t.place.Group, "name": t.place.Group, "location": t.place.Location,
				"type": "Microsoft.Resources/resourceGroups", "tags": map[string]any{}, "properties": map[string]any{"provisioningState": "Succeeded"},
			}, nil
		}, nil},
		"subscription": {0, 0, func(t *Template, _ []any) (any, error) {
			s := t.place.Subscription
			return map[string]any{"id": "/subscriptions/" + s, "subscriptionId": s, "tenantId": t.place.Tenant, "displayName": "berth"}, nil
		}, nil},
		"tenant": {0, 0, func(t *Template, _ []any) (any, error) {
			return map[string]any{"tenantId": t.place.Tenant, "displayName": "berth"}, nil
		}, nil},
		"deployment": {0, 0, func(t *Template, _ []any) (any, error) {
			return map[string]any{"name": t.place.Deployment, "properties": map[string]any{"mode": "Incremental"}}, nil
		}, nil},

		"if":  {3, 3, nil, choose},
		"and": {2, -1, nil, func(t *Template, a []*node) (any, error) { return t.until(a, false) }},
		"or":  {2, -1, nil, func(t *Template, a []*node) (any, error) { return t.until(a, true) }},
		"not": {1, 1, func(_ *Template, a []any) (any, error) { b, err := boolean(a[0]); return !b, err }, nil},
		"coalesce": {1, -1, func(_ *Template, a []any) (any, error) {
			for _, v := range a {
				if v != nil {
					return v, nil
				}
			}
			return nil, nil
		}, nil},
		"null":  {0, 0, func(*Template, []any) (any, error) { return nil, nil }, nil},
		"true":  {0, 0, func(*Template, []any) (any, error) { return true, nil }, nil},
		"false": {0, 0, func(*Template, []any) (any, error) { return false, nil }, nil},
		"equals": {2, 2, func(_ *Template, a []any) (any, error) {
			x, ok1 := a[0].(string)
			y, ok2 := a[1].(string)
			if ok1 && ok2 {
				return x == y, nil
			}
			return equal(a[0], a[1]), nil
		}, nil},
		"newguid": {0, 0, func(*Template, []any) (any, error) { return berth.NewGUID(), nil }, nil},
		"utcnow": {0, 1, func(_ *Template, a []any) (any, error) {
			now := time.Now().UTC()
			if len(a) == 0 {
				return now.Format("20060102T150405Z"), nil
			}
			f, err := str(a[0])
			if err != nil {
				return nil, err
			}
			return formatTime(now, f)
		}, nil},
		"uniquestring": {1, -1, func(_ *Template, a []any) (any, error) {
			sum, err := digest(a)
			return strings.ToLower(base32.StdEncoding.EncodeToString(sum))[:13], err
		}, nil},
		"guid": {1, -1, func(_ *Template, a []any) (any, error) {
			sum, err := digest(a)
			h := hex.EncodeToString(sum)
			return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:32], err
		}, nil},
		"json": {1, 1, func(_ *Template, a []any) (any, error) {
			s, err := str(a[0])
			if err != nil {
				return nil, err
			}
			d := json.NewDecoder(strings.NewReader(s))
			d.UseNumber()
			var v any
			if err := d.Decode(&v); err != nil {
				return nil, berth.Errorf(berth.Invalid, "json: its argument is not JSON")
			}
			return v, nil
		}, nil},
		"base64":         {1, 1, text1(func(s string) (any, error) { return base64.StdEncoding.EncodeToString([]byte(s)), nil }), nil},
		"base64tostring": {1, 1, text1(fromBase64), nil},
		"uricomponent":   {1, 1, text1(func(s string) (any, error) { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20"), nil }), nil},
		"uri": {2, 2, func(_ *Template, a []any) (any, error) {
			base, err := str(a[0])
			rel, rerr := str(a[1])
			u, perr := url.Parse(base)
			r, qerr := url.Parse(rel)
			if err != nil || rerr != nil || perr != nil || qerr != nil {
				return nil, berth.Errorf(berth.Invalid, "uri: takes an address and a relative one")
			}
			return u.ResolveReference(r).String(), nil
		}, nil},
	}
	for _, more := range []map[string]function{textFunctions(), listFunctions(), numberFunctions()} {
		for name, f := range more {
			all[name] = f
		}
	}
	return all
}

func fromBase64(s string) (any, error) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "base64ToString: its argument is not base64")
	}
	return string(b), nil
}

// formatTime writes a time by one of the formats that templates use.
func formatTime(now time.Time, format string) (any, error) {
	switch format {
	case "d":
		return now.Format("01/02/2006"), nil
	case "u":
		return now.Format("2006-01-02 15:04:05Z"), nil
	}
	layout := strings.NewReplacer("yyyy", "2006", "MM", "01", "dd", "02", "HH", "15", "mm", "04", "ss", "05").Replace(format)
	if strings.ContainsAny(strings.NewReplacer("2006", "", "T", "", "Z", "").Replace(layout), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		return nil, berth.Errorf(berth.Unsupported, "utcNow: the format %q is not known here; use yyyy, MM, dd, HH, mm and ss", format)
	}
	return now.Format(layout), nil
}

// digest is a hash of strings: the same for the same strings.
func digest(a []any) ([]byte, error) {
	h := sha256.New()
	for _, v := range a {
		s, err := str(v)
		if err != nil {
			return h.Sum(nil), err
		}
		fmt.Fprintf(h, "%d %s", len(s), s)
	}
	return h.Sum(nil), nil
}

func named(a []any, get func(string) (any, error)) (any, error) {
	name, err := str(a[0])
	if err != nil {
		return nil, err
	}
	return get(name)
}

func str(v any) (string, error) {
	s, ok := v.(string)
	if !ok {
		return "", berth.Errorf(berth.Invalid, "takes a string, not %s", kindOf(v))
	}
	return s, nil
}

func boolean(v any) (bool, error) {
	b, ok := v.(bool)
	if !ok {
		return false, berth.Errorf(berth.Invalid, "takes true or false, not %s", kindOf(v))
	}
	return b, nil
}

func integer(v any) (int64, error) {
	n, ok := number(v)
	if !ok {
		return 0, berth.Errorf(berth.Invalid, "takes an integer, not %s", kindOf(v))
	}
	return n, nil
}

// text1 is a function of one string.
func text1(f func(string) (any, error)) func(*Template, []any) (any, error) {
	return func(_ *Template, a []any) (any, error) {
		s, err := str(a[0])
		if err != nil {
			return nil, err
		}
		return f(s)
	}
}

// choose evaluates one of two arguments.
func choose(t *Template, a []*node) (any, error) {
	v, err := t.eval(a[0])
	if err != nil {
		return nil, err
	}
	yes, err := boolean(v)
	if err != nil {
		return nil, err
	}
	if yes {
		return t.eval(a[1])
	}
	return t.eval(a[2])
}

// until evaluates arguments until one is what decides.
func (t *Template) until(a []*node, decides bool) (any, error) {
	for _, n := range a {
		v, err := t.eval(n)
		if err != nil {
			return nil, err
		}
		b, err := boolean(v)
		if err != nil {
			return nil, err
		}
		if b == decides {
			return decides, nil
		}
	}
	return !decides, nil
}

// copyIndex is the iteration of a loop: of one that is named, or of the innermost.
func copyIndex(t *Template, a []any) (any, error) {
	name, offset := "", int64(0)
	for _, v := range a {
		if s, ok := v.(string); ok {
			name = s
			continue
		}
		n, err := integer(v)
		if err != nil {
			return nil, err
		}
		offset = n
	}
	i, ok := t.loop[name]
	if !ok {
		return nil, berth.Errorf(berth.Invalid, "copyIndex: there is no copy %q around it", name)
	}
	return int64(i) + offset, nil
}

// resourceID is an id from a type and the names of its levels; before them may stand a subscription
// and a resource group.
func (t *Template) resourceID(sub, group string, a []any) (any, error) {
	words := make([]string, len(a))
	for i, v := range a {
		s, err := str(v)
		if err != nil {
			return nil, err
		}
		words[i] = s
	}
	i := 0
	for i < len(words) && !strings.Contains(words[i], "/") {
		i++
	}
	switch {
	case i == len(words):
		return nil, berth.Errorf(berth.Invalid, "resourceId: none of its arguments is a type, such as Microsoft.MachineLearningServices/workspaces")
	case i == 1 && group == "":
		sub = "/subscriptions/" + words[0]
	case i == 1:
		group = "/resourceGroups/" + words[0]
	case i == 2 && group != "":
		sub, group = "/subscriptions/"+words[0], "/resourceGroups/"+words[1]
	case i > 0:
		return nil, berth.Errorf(berth.Invalid, "resourceId: %d arguments stand before the type; at most a subscription and a resource group do", i)
	}
	id, err := idOf(words[i], words[i+1:])
	return sub + group + id, err
}

// idOf is the part of an id that says what a resource is.
func idOf(typ string, names []string) (string, error) {
	parts := strings.Split(strings.Trim(typ, "/"), "/")
	if len(parts)-1 != len(names) {
		return "", berth.Errorf(berth.Invalid, "resourceId: the type %s has %d levels, and %d names were given", typ, len(parts)-1, len(names))
	}
	id := "/providers/" + parts[0]
	for i, n := range names {
		if n == "" || n == "." || n == ".." || strings.ContainsAny(n, "/\\?#%\x00") {
			return "", berth.Errorf(berth.Invalid, "%s cannot be the name of a resource", strconv.Quote(n))
		}
		id += "/" + parts[i+1] + "/" + n
	}
	return id, nil
}
