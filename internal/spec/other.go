package spec

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Jobs, computes and nodes of types that the server knows and that have no table here. What all of
// their sort have in common is read as ever; each other key becomes the member of the same name, in
// camelCase, and its value travels as it is written.

// otherJob is a job of such a type.
func otherJob(word string) (t typ) {
	t = later(func() []part {
		return []part{
			drop,
			is("jobType", upperFirst(word)),
			f("type", text, unsent),
			f("environment", environment, to("environmentId")),
			f("code", code, to("codeId")),
			f("environment_variables", environmentVariables),
			f("inputs", inputs),
			f("outputs", outputs),
			f("resources", resources),
			f("distribution", distribution),
			f("queue_settings", queueSettings),
			jobCommon,
			then(func(s *scope, v *value) {
				t.table.others(v, func(key string, val any) { s.out[camel(key)] = val })
			}),
		}
	})
	return t
}

// otherCompute is a compute of such a type.
func otherCompute(word string) (t typ) {
	t = computeOf(word, upperFirst(word), func() []part {
		return []part{drop, then(func(s *scope, v *value) {
			t.table.others(v, func(key string, val any) { s.out.put("properties."+camel(key), val) })
		})}
	})
	return t
}

// computeBody is the forms of computes by their type.
func computeBody(types func() map[string]typ) typ {
	t := byKey("type", types)
	known := t.read
	t.readFunc = func(s *scope, v *value) any {
		word := strings.ToLower(v.textOf("type"))
		if _, ok := types()[word]; ok || !slices.Contains(s.options.ComputeTypes, word) {
			return known(s, v)
		}
		return otherCompute(word).read(s, v)
	}
	return t
}

// others gives the keys of a mapping that a table does not know.
func (t *table) others(v *value, add func(key string, val any)) {
	names := t.ready().allNames()
	for _, p := range v.entries() {
		if p.key != "$schema" && !names[p.key] {
			add(p.key, p.val.raw())
		}
	}
}

// allNames are the keys of a table, the service's too.
func (t *table) allNames() map[string]bool {
	names := map[string]bool{}
	for _, fd := range t.fields {
		names[fd.name] = true
	}
	return names
}

func upperFirst(word string) string { return strings.ToUpper(word[:1]) + word[1:] }

// otherNodeType reports whether a type of node is one that the server knows and that has no table
// here.
func (s *scope) otherNodeType(word string) bool {
	return !slices.Contains(nodeTypes, word) && slices.Contains(s.options.JobTypes, word)
}

// otherNode is a node of such a type. It defines what it runs itself, or names a component.
func (s *scope) otherNode(g *graph, name, word string, v *value) any {
	m := s.mark()
	n := &node{graph: g, name: name, word: word, run: v, inline: v.get("component") == nil}
	out, _ := asTree(obj(keep, more(nodeOf(func() []part { return nil }))).read(s, v))
	if out == nil {
		return nil
	}
	out["name"], out["type"] = name, word
	n.io(s, out)
	if !n.inline {
		n.attach(s, v, out)
	}
	if s.failed(m) {
		return nil
	}
	return out
}

// other shows a job or compute of such a type.
func (e *entity) other(member string, of func(word string) typ) (tree, bool) {
	word := strings.ToLower(e.base.text(member))
	if word == "" {
		return nil, false
	}
	t := of(word).table
	out := e.table(t)
	out["type"] = word
	rest := e.base
	if member == "computeType" {
		rest, _ = asTree(e.base["properties"])
	} else if s := e.base["status"]; s != nil {
		out["status"] = s
	}
	sent := map[string]bool{member: true}
	for _, fd := range t.fields {
		sent[cmp.Or(fd.to, camel(fd.name))] = true
	}
	for _, c := range t.fixed {
		sent[c.path] = true
	}
	for _, k := range slices.Sorted(maps.Keys(rest)) {
		if key := snake(k); !sent[k] && out[key] == nil {
			out[key] = rest[k]
		}
	}
	return out, true
}
