package cli

import (
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/jmes"
	"github.com/berthml/berth/internal/ordered"
)

// entity is what is printed of a document. Its fields are sorted by name; what is in them is in the
// order that the document has it in, as its author wrote it. az sorts everything.
func (s *session) entity(n noun, d client.Document) map[string]any {
	out := entity(n, d)
	if s.format.az {
		return out
	}
	top := ordered.Parse(d.Text())
	props := top.Member("properties")
	like := []*ordered.Shape{props.Member("componentSpec"), props, top}
	for k, v := range out {
		out[k] = arrange(v, within(like, k))
	}
	return out
}

// arrange gives objects the order of those they were made of.
func arrange(v any, like []*ordered.Shape) any {
	switch x := v.(type) {
	case map[string]any:
		o := &jmes.Object{Values: x}
		placed := make(map[string]bool, len(x))
		place := func(k string) {
			if _, ok := x[k]; ok && !placed[k] {
				placed[k] = true
				o.Keys = append(o.Keys, k)
			}
		}
		for _, l := range like {
			for _, k := range l.Keys() {
				place(k)
				place(snake(k))
			}
		}
		for _, k := range keys(x) {
			place(k)
		}
		for k, e := range x {
			switch e.(type) {
			case map[string]any, []any:
				x[k] = arrange(e, within(like, k))
			}
		}
		return o
	case []any:
		for i, e := range x {
			var items []*ordered.Shape
			for _, l := range like {
				items = append(items, l.Item(i))
			}
			x[i] = arrange(e, items)
		}
	}
	return v
}

// within is where the member k of an entity comes from: it may be spelled another way there.
func within(like []*ordered.Shape, k string) []*ordered.Shape {
	var out []*ordered.Shape
	for _, l := range like {
		inner := l.Member(k)
		if inner == nil {
			for _, from := range l.Keys() {
				if snake(from) == k {
					inner = l.Member(from)
				}
			}
		}
		if inner != nil {
			out = append(out, inner)
		}
	}
	return out
}
