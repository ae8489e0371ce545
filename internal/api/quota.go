package api

import (
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/sizes"
	"github.com/berthml/berth/internal/store"
)

// checkSize is the size of a name, if a compute of that type can have it at a location: it is known, the location has it, it
// supports the type and low priority where that is asked for, and the caller's quota has room for at least one node of it.
func (s *Server) checkSize(c *call, tx *store.Tx, name, location, computeType string, low bool) (berth.Size, error) {
	catalogue, err := sizes.LoadTx(tx)
	if err != nil {
		return berth.Size{}, err
	}
	size, ok := catalogue.Find(name)
	if !ok {
		return size, unknownSize(catalogue, name)
	}
	switch {
	case !sizes.Available(size, location):
		return size, berth.Errorf(berth.Invalid, "size %s is not available in location %s; `berth compute list-sizes --location %s` lists what is", size.Name, location, location)
	case !sizes.Supports(size, computeType):
		return size, berth.Errorf(berth.Invalid, "size %s cannot be used for computes of type %s, only for %s", size.Name, computeType, strings.Join(size.Computes, " and "))
	case low && !size.LowPriority:
		return size, berth.Errorf(berth.Invalid, "size %s cannot be had with low priority; use tier dedicated", size.Name)
	}
	limits, err := quota.LoadTx(tx, s.QuotaDefault)
	if err != nil {
		return size, err
	}
	return size, limits.Check(size, c.ws.Key(), c.who.User, low, tx.Now())
}

func unknownSize(c sizes.Catalogue, name string) error {
	if name == "" {
		return berth.Errorf(berth.Invalid, "the size is missing; `berth compute list-sizes` lists them")
	}
	hint := "`berth compute list-sizes` lists them"
	if near := c.Nearest(name); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return berth.Errorf(berth.Invalid, "there is no size %s; %s", name, hint)
}
