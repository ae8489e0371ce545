package sizes

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Kind is the kind of the documents that hold an administrator's sizes and prices. They belong to
// no workspace.
const Kind = "sizes"

// OwnFamily is the family of an administrator's sizes that name none: their limits are kept
// together.
const OwnFamily = "ownFamily"

// Load is the catalogue with documents of kind Kind laid over it. A document named like a size we
// have says what is different about it: a price, where it can be had; another name is a size of its
// own.
func Load(docs []*store.Doc) (Catalogue, error) {
	c := builtin()
	if len(docs) == 0 {
		return c, nil
	}
	all := slices.Clone(c.sizes)
	for _, d := range docs {
		i, known := c.index[strings.ToLower(d.Name)]
		var base berth.Size
		if known {
			base = all[i]
		}
		s, err := Overlay(base, d.Name, d.Body)
		if err != nil && known { // made before Azure had a size of that name: it is what it was
			if own, ownErr := Overlay(berth.Size{}, d.Name, d.Body); ownErr == nil {
				s, err = own, nil
			}
		}
		switch {
		case err != nil:
			return Catalogue{}, err
		case known:
			all[i] = s
		default:
			all = append(all, s)
		}
	}
	return newCatalogue(all), nil
}

// LoadTx is Load of what the store holds.
func LoadTx(tx *store.Tx) (Catalogue, error) {
	docs, err := tx.All(store.Query{Kind: Kind, Asc: true})
	if err != nil {
		return Catalogue{}, err
	}
	return Load(docs)
}

// Overlay is base with what a document says about it; a zero base is a size of the administrator's
// own. It says what is wrong with the result.
func Overlay(base berth.Size, name string, body []byte) (berth.Size, error) {
	own := base.Name == ""
	s := base
	// Decoding writes through pointers and into slices: base keeps its own.
	s.Price, s.LowPrice = clone(s.Price), clone(s.LowPrice)
	s.Computes, s.Absent, s.Locations = slices.Clone(s.Computes), slices.Clone(s.Absent), slices.Clone(s.Locations)
	if own {
		s = berth.Size{
			Family: OwnFamily, Series: "Own", Category: "Own machines", LowPriority: true,
			Computes: []string{berth.TypeCluster, berth.TypeInstance},
		}
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return s, berth.Errorf(berth.Invalid, "size %s: %w", name, err)
	}
	s.Name, s.Own = name, own
	if !own {
		s.Name = base.Name
		if s.Family != base.Family || s.VCPUs != base.VCPUs || s.MemoryGB != base.MemoryGB || s.GPUs != base.GPUs || s.GPU != base.GPU {
			return s, berth.Errorf(berth.Invalid, "size %s is one of Azure's: its price and locations can be changed, its hardware cannot; give a machine of your own another name", base.Name)
		}
	}
	return s, check(s)
}

func clone(f *float64) *float64 {
	if f == nil {
		return nil
	}
	v := *f
	return &v
}

// check says what is wrong with an administrator's size.
func check(s berth.Size) error {
	switch {
	case s.VCPUs < 1:
		return berth.Errorf(berth.Invalid, "size %s: vCPUs must be at least 1, not %d", s.Name, s.VCPUs)
	case s.MemoryGB <= 0:
		return berth.Errorf(berth.Invalid, "size %s: memoryGB must be positive, not %g", s.Name, s.MemoryGB)
	case s.GPUs < 0:
		return berth.Errorf(berth.Invalid, "size %s: gpus must not be negative (%d)", s.Name, s.GPUs)
	case len(s.Computes) == 0:
		return berth.Errorf(berth.Invalid, "size %s: supportedComputeTypes is empty; use AmlCompute, ComputeInstance or both", s.Name)
	}
	for _, t := range s.Computes {
		if !strings.EqualFold(t, berth.TypeCluster) && !strings.EqualFold(t, berth.TypeInstance) {
			return berth.Errorf(berth.Invalid, "size %s: supportedComputeTypes contains %q; use AmlCompute, ComputeInstance or both", s.Name, t)
		}
	}
	for what, p := range map[string]*float64{"price": s.Price, "lowPrice": s.LowPrice} {
		if p != nil && *p < 0 {
			return berth.Errorf(berth.Invalid, "size %s: %s must not be negative (%g)", s.Name, what, *p)
		}
	}
	if s.Price != nil && s.LowPrice != nil && *s.LowPrice > *s.Price {
		return berth.Errorf(berth.Invalid, "size %s: lowPrice %g is more than price %g", s.Name, *s.LowPrice, *s.Price)
	}
	if s.Currency == "" && (s.Price != nil || s.LowPrice != nil) {
		return berth.Errorf(berth.Invalid, "size %s has a price but no currency; add one, such as \"currency\": \"EUR\"", s.Name)
	}
	return nil
}
