package spec

// show turns the object a table wrote back into the mapping it was read from: every field that is there, under its
// YAML name.
func (t *table) show(j any) any {
	m, ok := asTree(j)
	if !ok {
		return j
	}
	out := tree{}
	for _, fd := range t.fields {
		path := fd.to
		if path == "" {
			path = camel(fd.name)
		}
		if fd.hidden || path[0] == '/' || path[0] == '@' {
			continue
		}
		val := m.at(path)
		if val == nil {
			continue
		}
		if fd.typ.show != nil {
			val = fd.typ.show(val)
		}
		if val != nil {
			out[fd.name] = val
		}
	}
	return out
}
