package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/sizes"
	"github.com/berthml/berth/internal/store"
)

// noLimit is how Azure shows that there is none.
const noLimit = -1

// ledger is everything that says who has how many vCPUs and may have how many, as of one moment.
type ledger struct {
	catalogue  sizes.Catalogue
	limits     quota.Limits
	use        []quota.Use
	workspaces []berth.Workspace // of one subscription and location
}

func (s *quotaService) ledger(c *call, tx *store.Tx, sub, loc string) (l ledger, err error) {
	if l.catalogue, err = sizes.LoadTx(tx); err != nil {
		return l, err
	}
	if l.limits, err = quota.LoadTx(tx, s.quotaDefault); err != nil {
		return l, err
	}
	if l.use, err = quota.Used(tx); err != nil {
		return l, err
	}
	docs, err := tx.All(store.Query{Kind: kindWorkspace, Asc: true})
	if err != nil {
		return l, err
	}
	for _, d := range docs {
		ws, err := locate.WorkspaceOf(d)
		if err != nil {
			return l, err
		}
		body := map[string]any{}
		if err := decodeJSON(d.Body, &body); err != nil {
			return l, err
		}
		if strings.EqualFold(ws.Subscription, sub) && strings.EqualFold(locationOf(c, body), loc) {
			l.workspaces = append(l.workspaces, ws)
		}
	}
	return l, nil
}

// used is what the workspaces of the ledger have of a family; of every family when it is "".
func (l ledger) used(key, family string, low bool) int {
	n := 0
	for _, u := range l.use {
		if u.Low == low && (family == "" || sizes.SameFamily(u.Family, family)) && (key == "" && l.has(u.Workspace) || key == u.Workspace) {
			n += u.VCPUs
		}
	}
	return n
}

func (l ledger) has(key string) bool {
	return slices.ContainsFunc(l.workspaces, func(w berth.Workspace) bool { return w.Key() == key })
}

// limit is the most the workspaces of the ledger can have of a family together.
func (l ledger) limit(c *call, family string, low bool) int {
	sum := 0
	for _, w := range l.workspaces {
		n, unlimited := l.limits.Ceiling(w.Key(), family, low, c.now)
		if unlimited {
			sum = noLimit
			break
		}
		sum += n
	}
	whole, _ := l.limits.Of(quota.Scope{Family: family, Low: low})
	if g, ok := whole.At(c.now); ok && (sum == noLimit || g.VCPUs < sum) {
		return g.VCPUs
	}
	return sum
}

// tierNames is how Azure spells the two tiers in types and names.
func tierNames(low bool) (typ, title string) {
	if low {
		return "lowPriorityCores", "LowPriority"
	}
	return "dedicatedCores", "Dedicated"
}

// familyTitle is a family's name for people: standardDSv2Family is Standard DSv2 Family.
func familyTitle(family string) string {
	name := strings.ReplaceAll(family, " ", "")
	if len(name) > 14 && strings.EqualFold(name[:8], "standard") && strings.EqualFold(name[len(name)-6:], "family") {
		return "Standard " + name[8:len(name)-6] + " Family"
	}
	return family
}

func usageItem(id, typ, loc, value, title string, used, limit int) map[string]any {
	return map[string]any{
		"id": id, "type": berth.Provider + "/" + typ + "/usages", "unit": "Count", "currentValue": used, "limit": limit,
		"amlWorkspaceLocation": loc, "name": map[string]any{"value": value, "localizedValue": title},
	}
}

// usages is what nodes have and may have at a location: in all, by family, and by workspace where
// there is something.
func (s *quotaService) usages(c *call, sub, loc string) error {
	var l ledger
	err := s.db.View(c.ctx(), func(tx *store.Tx) (err error) {
		l, err = s.ledger(c, tx, sub, loc)
		return err
	})
	if err != nil {
		return err
	}
	top := "/subscriptions/" + sub
	value := []any{}
	for _, low := range []bool{false, true} {
		typ, tier := tierNames(low)
		whole, _ := l.limits.Of(quota.Scope{Low: low})
		total := noLimit
		if g, ok := whole.At(c.now); ok {
			total = g.VCPUs
		}
		value = append(value, usageItem(top, "total"+tier+"Cores", loc, "Total"+tier+"Cores", "Total Cluster "+tier+" Regional vCPUs", l.used("", "", low), total))
		for _, f := range l.catalogue.Families() {
			title := familyTitle(f) + " Cluster " + tier + " vCPUs"
			value = append(value, usageItem(top+"/usages/"+f, "vmFamily/"+typ, loc, f, title, l.used("", f, low), l.limit(c, f, low)))
			for _, w := range l.workspaces {
				used := l.used(w.Key(), f, low)
				limit, unlimited := l.limits.Ceiling(w.Key(), f, low, c.now)
				if unlimited {
					limit = noLimit
				}
				if _, said := l.limits.Of(quota.Scope{Workspace: w.Key(), Family: f, Low: low}); used > 0 || said {
					value = append(value, usageItem(w.ResourceID("usages", f), "workspaces/"+typ, loc, f, title, used, limit))
				}
			}
		}
	}
	return c.send(http.StatusOK, map[string]any{"value": value})
}

// quotas is the limits of workspaces by family, as they were set.
func (s *quotaService) quotas(c *call, sub, loc string) error {
	var l ledger
	err := s.db.View(c.ctx(), func(tx *store.Tx) (err error) {
		l, err = s.ledger(c, tx, sub, loc)
		return err
	})
	if err != nil {
		return err
	}
	value := []any{}
	for _, w := range l.workspaces {
		for _, low := range []bool{false, true} {
			typ, tier := tierNames(low)
			for _, f := range l.catalogue.Families() {
				lim, _ := l.limits.Of(quota.Scope{Workspace: w.Key(), Family: f, Low: low})
				if g, ok := lim.At(c.now); ok {
					value = append(value, map[string]any{
						"id": w.ResourceID("quotas", f), "type": berth.Provider + "/workspaces/" + typ + "/quotas", "unit": "Count", "limit": g.VCPUs,
						"amlWorkspaceLocation": loc, "name": map[string]any{"value": f, "localizedValue": familyTitle(f) + " Cluster " + tier + " vCPUs"},
					})
				}
			}
		}
	}
	return c.send(http.StatusOK, map[string]any{"value": value})
}

// What Azure says about one quota of an update.
const (
	quotaDone         = "Success"
	quotaFailed       = "Failure"
	quotaBelowMinimum = "InvalidQuotaBelowClusterMinimum"
	quotaAboveTotal   = "InvalidQuotaExceedsSubscriptionLimit"
	quotaNoFamily     = "InvalidVMFamilyName"
	quotaOtherRegion  = "OperationNotEnabledForRegion"
)

// quotaUpdate is one item of an update.
type quotaUpdate struct {
	ID    string `json:"id"`
	Type  string `json:"type"`
	Limit int    `json:"limit"`
	Unit  string `json:"unit"`
}

// updateQuotas sets limits of workspaces by family. Each item has its own outcome; those that
// cannot be do not stop the others.
func (s *quotaService) updateQuotas(c *call, sub, loc string) error {
	if c.who.Role != auth.Admin {
		return berth.Errorf(berth.Denied, "only an administrator may set quotas; ask for one with `berth quota request`")
	}
	var in struct {
		Location string        `json:"location"`
		Value    []quotaUpdate `json:"value"`
	}
	if err := c.into(&in); err != nil {
		return err
	}
	if in.Location != "" {
		loc = in.Location
	}
	var value []any
	err := s.db.Update(c.ctx(), func(tx *store.Tx) error {
		l, err := s.ledger(c, tx, sub, loc)
		if err != nil {
			return err
		}
		value = []any{}
		for _, u := range in.Value {
			status, err := s.updateQuota(c, tx, l, sub, u)
			if err != nil {
				return err
			}
			value = append(value, map[string]any{"id": u.ID, "type": u.Type, "limit": u.Limit, "unit": "Count", "status": status})
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, map[string]any{"value": value})
}

func (s *quotaService) updateQuota(c *call, tx *store.Tx, l ledger, sub string, u quotaUpdate) (string, error) {
	ref, err := berth.ParseRef(u.ID, "quotas")
	if err != nil || ref.Workspace == (berth.Workspace{}) || !strings.EqualFold(ref.Collection, "quotas") || u.Limit < noLimit {
		return quotaFailed, nil //nolint:nilerr // the outcome of this item, not of the call
	}
	low := strings.Contains(strings.ToLower(u.Type+ref.Name), "lowpriority")
	name, _, _ := strings.Cut(ref.Name, "_Cluster_") // Standard_DSv2_Family_Cluster_Dedicated_vCPUs is a name Azure knows too
	family, ok := l.catalogue.FindFamily(name)
	if !ok {
		return quotaNoFamily, nil
	}
	i := slices.IndexFunc(l.workspaces, func(w berth.Workspace) bool { return w.Key() == ref.Workspace.Key() })
	if i < 0 {
		if _, err := tx.Get("", kindWorkspace, ref.Workspace.Key(), ""); err == nil && strings.EqualFold(ref.Workspace.Subscription, sub) {
			return quotaOtherRegion, nil
		}
		return quotaFailed, nil
	}
	scope := quota.Scope{Workspace: ref.Workspace.Key(), Family: family, Low: low}
	if u.Limit == noLimit {
		return quotaDone, s.unsetQuota(c, tx, scope)
	}
	whole, _ := l.limits.Of(quota.Scope{Family: family, Low: low})
	if g, ok := whole.At(c.now); ok && u.Limit > g.VCPUs {
		return quotaAboveTotal, nil
	}
	least, err := minimum(tx, l.catalogue, scope)
	if err != nil {
		return "", err
	}
	if u.Limit < least {
		return quotaBelowMinimum, nil
	}
	return quotaDone, s.setQuota(c, tx, scope, quota.Grant{VCPUs: u.Limit, Since: c.now, By: c.who.User})
}

// minimum is how many vCPUs the clusters of a scope have even when nothing runs.
func minimum(tx *store.Tx, catalogue sizes.Catalogue, scope quota.Scope) (int, error) {
	docs, err := tx.All(store.Query{Workspace: scope.Workspace, Kind: "computes"})
	if err != nil {
		return 0, err
	}
	n := 0
	for _, d := range docs {
		var v struct {
			Properties berth.ComputeProps `json:"properties"`
		}
		if err := decodeJSON(d.Body, &v); err != nil {
			return 0, err
		}
		p := v.Properties
		size, ok := catalogue.Find(p.Properties.VMSize)
		if ok && strings.EqualFold(p.ComputeType, berth.TypeCluster) && p.Low() == scope.Low && sizes.SameFamily(size.Family, scope.Family) && p.Properties.ScaleSettings != nil {
			n += p.Properties.ScaleSettings.MinNodeCount * size.VCPUs
		}
	}
	return n, nil
}

// setQuota gives a scope a limit and records who did it.
func (s *quotaService) setQuota(c *call, tx *store.Tx, scope quota.Scope, g quota.Grant) error {
	if _, err := quota.SetLimit(tx, scope, g); err != nil {
		return err
	}
	c.emitLimit(tx, scope, c.who.User+" set "+scope.Title()+" to "+quota.Cores(g.VCPUs)+because(g.Reason), g)
	return nil
}

// unsetQuota takes a scope's limit away.
func (s *quotaService) unsetQuota(c *call, tx *store.Tx, scope quota.Scope) error {
	err := tx.Delete("", quota.Kind, scope.Key(), "")
	if berth.CodeOf(err) == berth.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	c.emitLimit(tx, scope, c.who.User+" removed "+scope.Title())
	return nil
}

// emitLimit records that a limit changed. It is what the loops wait for that had too little of it.
func (c *call) emitLimit(tx *store.Tx, scope quota.Scope, reason string, grants ...quota.Grant) {
	tx.Emit(berth.Event{
		Workspace: scope.Workspace, Subject: "quotas/limit", Type: berth.EventQuota, Reason: reason, Data: eventData(quota.Limit{Scope: scope, Grants: grants}),
	})
}
