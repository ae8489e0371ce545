package api

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/sched"
	"github.com/berthml/berth/internal/sizes"
	"github.com/berthml/berth/internal/store"
)

// sizeService serves the catalogue of machine sizes, and says which of them can be used.
type sizeService struct {
	db           *store.DB
	machine      sched.Machine
	quotaDefault int
	quotas       *quotaService
}

// location answers for the sizes and limits of a place.
func (s *sizeService) location(c *call, sub, loc, what string) error {
	post := strings.EqualFold(what, "updateQuotas")
	if want := map[bool]string{true: http.MethodPost, false: http.MethodGet}[post]; c.r.Method != want {
		return methodError(c)
	}
	switch strings.ToLower(what) {
	case "vmsizes":
		return s.vmSizes(c, loc)
	case "usages":
		return s.quotas.usages(c, sub, loc)
	case "quotas":
		return s.quotas.quotas(c, sub, loc)
	case "updatequotas":
		return s.quotas.updateQuotas(c, sub, loc)
	}
	return notFound(c)
}

func (s *sizeService) catalogue(c *call) (sizes.Catalogue, error) {
	var all sizes.Catalogue
	err := s.db.View(c.ctx(), func(tx *store.Tx) (err error) {
		all, err = sizes.LoadTx(tx)
		return err
	})
	return all, err
}

// vmSizes is the sizes of a location in Azure's form: one object, no pages.
func (s *sizeService) vmSizes(c *call, loc string) error {
	all, err := s.catalogue(c)
	if err != nil {
		return err
	}
	value := []any{}
	for _, size := range all.In(loc) {
		if t := c.q.Get("computeType"); t == "" || sizes.Supports(size, t) {
			value = append(value, vmSize(size))
		}
	}
	return c.send(http.StatusOK, map[string]any{"value": value})
}

func vmSize(size berth.Size) map[string]any {
	m := map[string]any{
		"name": size.Name, "family": size.Family, "vCPUs": size.VCPUs, "gpus": size.GPUs, "memoryGB": size.MemoryGB,
		"osVhdSizeMB": size.OSDiskMB, "maxResourceVolumeMB": size.TempDiskMB, "lowPriorityCapable": size.LowPriority,
		"premiumIO": size.PremiumIO, "supportedComputeTypes": size.Computes,
	}
	prices := []any{}
	for _, p := range []struct {
		tier  string
		price *float64
	}{{"Standard", size.Price}, {"LowPriority", size.LowPrice}} {
		if p.price != nil {
			prices = append(prices, map[string]any{"retailPrice": *p.price, "osType": "Linux", "vmTier": p.tier})
		}
	}
	if len(prices) > 0 {
		m["estimatedVMPrices"] = map[string]any{"billingCurrency": size.Currency, "unitOfMeasure": "OneHour", "values": prices}
	}
	return m
}

// listSizes serves our own form of the catalogue, with everything we know of a size.
func (s *sizeService) listSizes(c *call) error {
	all, err := s.catalogue(c)
	if err != nil {
		return err
	}
	loc, typ, family := c.q.Get("location"), c.q.Get("computeType"), c.q.Get("family")
	value := slices.DeleteFunc(all.All(), func(size berth.Size) bool {
		return loc != "" && !sizes.Available(size, loc) || typ != "" && !sizes.Supports(size, typ) ||
			family != "" && !sizes.SameFamily(size.Family, family) && !strings.EqualFold(size.Series, family)
	})
	return c.send(http.StatusOK, map[string]any{"value": value})
}

func (s *sizeService) oneSize(c *call) error {
	name := c.r.PathValue("name")
	switch c.r.Method {
	case http.MethodGet, http.MethodHead:
		all, err := s.catalogue(c)
		if err != nil {
			return err
		}
		size, ok := all.Find(name)
		if !ok {
			return &berth.Error{Code: berth.NotFound, Msg: unknownSize(all, name).Error()}
		}
		return c.send(http.StatusOK, size)
	case http.MethodPut:
		return s.putSize(c, name)
	case http.MethodDelete:
		return s.deleteSize(c, name)
	}
	return methodError(c)
}

// putSize writes a size of the administrator's own, or what is different here about one of Azure's:
// its price, where it can be had.
func (s *sizeService) putSize(c *call, name string) error {
	if c.who.Role != auth.Admin {
		return berth.Errorf(berth.Denied, "only an administrator may create sizes or change their prices")
	}
	if err := berth.CheckName("size", name); err != nil {
		return err
	}
	body, err := c.body()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	base, _ := sizes.Find(name)
	size, err := sizes.Overlay(base, name, raw)
	if err != nil {
		return err
	}
	status := http.StatusOK
	err = s.db.Update(c.ctx(), func(tx *store.Tx) error {
		d, err := tx.Get("", sizes.Kind, name, "")
		switch {
		case berth.CodeOf(err) == berth.NotFound:
			status = http.StatusCreated
			err = tx.Insert(&store.Doc{Kind: sizes.Kind, Name: size.Name, CreatedBy: c.who.User, Body: raw})
		case err == nil:
			d.Body = raw
			err = tx.Save(d)
		}
		if err != nil {
			return err
		}
		tx.Emit(berth.Event{Subject: "sizes/" + size.Name, Type: berth.EventResourcePut, Reason: "size written by " + c.who.User, Data: raw})
		return nil
	})
	if err != nil {
		return err
	}
	return c.send(status, size)
}

// deleteSize takes the administrator's hand back: a size of Azure's is as it came, another is gone.
// What runs on it goes on.
func (s *sizeService) deleteSize(c *call, name string) error {
	if c.who.Role != auth.Admin {
		return berth.Errorf(berth.Denied, "only an administrator may delete sizes")
	}
	err := s.db.Update(c.ctx(), func(tx *store.Tx) error {
		if err := tx.Delete("", sizes.Kind, name, ""); err != nil {
			return err
		}
		tx.Emit(berth.Event{Subject: "sizes/" + name, Type: berth.EventResourceDel, Reason: "size deleted by " + c.who.User})
		return nil
	})
	if berth.CodeOf(err) == berth.NotFound {
		return berth.Errorf(berth.NotFound, "size %s was not created or changed here", name)
	}
	if err != nil {
		return err
	}
	return c.empty(http.StatusOK)
}
