package track

import (
	"cmp"
	"slices"
	"strings"
)

// Searches of the model registry.

var registeredGrammar = &grammar{
	entities:   map[string]subject{"tag": tagOf, "tags": tagOf, "attribute": attribute},
	attributes: map[string]bool{"name": false},
	orders:     []string{"last_updated_timestamp", "name", "timestamp"},
	orderWords: "Invalid order by key '%s' specified. Valid keys are '%s'",
	lists: func(s subject, key string) (string, bool) {
		return "Only the 'name' attribute supports comparison with a list of quoted string values.", s == attribute && key == "name"
	},
}

func (m *registered) matches(c *clause) bool {
	if c.of != tagOf {
		return c.matches(m.Name, true)
	}
	v, has := m.Tags[c.key]
	if c.key == tagPrompt && !has { // what is not a prompt need not say so
		return c.op == "=" && c.text == "false" || c.op == "!=" && c.text == "true"
	}
	return c.matches(v, has)
}

func (m *registered) rank(o order) rank {
	switch o.key {
	case "last_updated_timestamp", "timestamp":
		return numberRank(float64(m.Updated), true)
	}
	return textRank(m.Name, true)
}

func searchRegistered(c *call) (any, error) {
	s, err := c.search(registeredGrammar, c.texts("order_by"), 100, 1000)
	if err != nil {
		return nil, err
	}
	var found []*registered
	c.view(func(x *index) {
		for _, m := range x.registered {
			if s.shows(m) {
				found = append(found, m)
			}
		}
	})
	if found, err = keep(c, s, found, func(m *registered) bool { return s.meets(m.matches) }); err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b *registered) int { return strings.Compare(a.Name, b.Name) })
	found = sortBy(found, s.orders, (*registered).rank)
	return sendPage(c, s, "registered_models", found, func(out *listWriter, m *registered) error {
		var view any
		c.view(func(x *index) { view = registeredView(m, x.versions[m.ID]) })
		return out.add(view)
	})
}

// shows says whether a search shows a model at all: prompts are hidden from those that do not ask
// for them.
func (s *search) shows(m *registered) bool {
	return m.Tags[tagPrompt] != "true" || slices.ContainsFunc(s.clauses, func(k clause) bool { return k.of == tagOf && k.key == tagPrompt })
}

var versionGrammar = &grammar{
	entities:   map[string]subject{"tag": tagOf, "tags": tagOf, "attribute": attribute},
	attributes: map[string]bool{"name": false, "version_number": true, "run_id": false, "source_path": false},
	orders:     []string{"creation_timestamp", "last_updated_timestamp", "name", "version_number"},
	lists: func(s subject, key string) (string, bool) {
		return "Only the 'run_id' attribute supports comparison with a list of quoted string values.",
			s == attribute && (key == "run_id" || key == "name")
	},
}

// modelVersion is a version with its model.
type modelVersion struct {
	m *registered
	v *version
}

func (x modelVersion) matches(c *clause) bool {
	if c.of == tagOf {
		v, has := x.v.Tags[c.key]
		if c.key == tagPrompt && !has {
			return c.op == "=" && c.text == "false" || c.op == "!=" && c.text == "true"
		}
		return c.matches(v, has)
	}
	switch c.key {
	case "version_number":
		return c.matchesNumber(float64(x.v.Number), true)
	case "run_id":
		return c.matches(x.v.RunID, true)
	case "source_path":
		return c.matches(x.v.Source, true)
	}
	return c.matches(x.m.Name, true)
}

func (x modelVersion) rank(o order) rank {
	switch o.key {
	case "creation_timestamp":
		return numberRank(float64(x.v.Created), true)
	case "last_updated_timestamp":
		return numberRank(float64(x.v.Updated), true)
	case "version_number":
		return numberRank(float64(x.v.Number), true)
	}
	return textRank(x.m.Name, true)
}

func searchVersions(c *call) (any, error) {
	s, err := c.search(versionGrammar, c.texts("order_by"), 10000, 200_000)
	if err != nil {
		return nil, err
	}
	var found []modelVersion
	c.view(func(x *index) {
		for id, versions := range x.versions {
			m := x.registered[id]
			if m == nil || !s.shows(m) {
				continue
			}
			for _, v := range versions {
				found = append(found, modelVersion{m, v})
			}
		}
	})
	if found, err = keep(c, s, found, func(x modelVersion) bool { return s.meets(x.matches) }); err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b modelVersion) int {
		return cmp.Or(strings.Compare(a.m.Name, b.m.Name), cmp.Compare(b.v.Number, a.v.Number))
	})
	if len(s.orders) == 0 {
		s.orders = []order{{key: "last_updated_timestamp", desc: true}}
	}
	found = sortBy(found, s.orders, modelVersion.rank)
	return sendPage(c, s, "model_versions", found, func(out *listWriter, x modelVersion) error { return out.add(versionView(x.m, x.v)) })
}
