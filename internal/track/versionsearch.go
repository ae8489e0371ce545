package track

import (
	"cmp"
	"slices"
	"strings"
)

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
	filter, orderBy, token := c.text("filter"), c.texts("order_by"), c.text("page_token")
	limit := c.limit(10000, 200_000)
	if err := c.done(); err != nil {
		return nil, err
	}
	clauses, err := versionGrammar.parse(filter)
	if err != nil {
		return nil, err
	}
	orders, err := versionGrammar.parseOrders(orderBy)
	if err != nil {
		return nil, err
	}
	query := queryOf(filter, orderBy)
	from, err := offset(token, query)
	if err != nil {
		return nil, err
	}
	prompts := slices.ContainsFunc(clauses, func(k clause) bool { return k.of == tagOf && k.key == tagPrompt })
	var found []modelVersion
	c.view(func(x *index) {
		for id, versions := range x.versions {
			m := x.registered[id]
			if m == nil || !prompts && m.Tags[tagPrompt] == "true" {
				continue
			}
			for _, v := range versions {
				mv := modelVersion{m, v}
				if !slices.ContainsFunc(clauses, func(k clause) bool { return !mv.matches(&k) }) {
					found = append(found, mv)
				}
			}
		}
	})
	slices.SortFunc(found, func(a, b modelVersion) int {
		return cmp.Or(strings.Compare(a.m.Name, b.m.Name), cmp.Compare(b.v.Number, a.v.Number))
	})
	if len(orders) == 0 {
		orders = []order{{key: "last_updated_timestamp", desc: true}}
	}
	found = sortBy(found, orders, modelVersion.rank)
	found, next := page(found, from, limit, query)
	views := make([]any, len(found))
	for i, x := range found {
		views[i] = versionView(x.m, x.v)
	}
	return paged("model_versions", views, next), nil
}
