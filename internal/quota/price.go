package quota

import (
	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/sizes"
)

// HoursOfMonth is what a month is on a price list.
const HoursOfMonth = 730

// Cost is what a number of vCPUs costs while all of them are used. Without a price it says so by
// PerHour being nil.
type Cost struct {
	Size     string   `json:"size,omitempty"` // that it is reckoned with
	Nodes    int      `json:"nodes,omitempty"`
	PerHour  *float64 `json:"perHour"`
	PerMonth *float64 `json:"perMonth"`
	Currency string   `json:"currency,omitempty"`
}

// Price is what a request costs: in nodes of the size it names, or else of the family's cheapest
// size for each vCPU that fits into it. A family nobody knows, or whose prices nobody knows, has no
// price.
func Price(c sizes.Catalogue, family, size string, vcpus int, low bool) Cost {
	var best berth.Size
	var rate *float64
	for _, s := range c.Family(family) {
		p := s.Price
		if low {
			p = s.LowPrice
		}
		if size != "" {
			if n, ok := c.Find(size); ok && n.Name == s.Name {
				best, rate = s, p
			}
			continue
		}
		if p == nil || s.VCPUs > vcpus {
			continue
		}
		if rate == nil || *p/float64(s.VCPUs) < *rate/float64(best.VCPUs) {
			best, rate = s, p
		}
	}
	if best.VCPUs == 0 {
		return Cost{}
	}
	out := Cost{Size: best.Name, Nodes: vcpus / best.VCPUs}
	if rate != nil {
		hour := *rate * float64(out.Nodes)
		month := hour * HoursOfMonth
		out.PerHour, out.PerMonth, out.Currency = &hour, &month, best.Currency
	}
	return out
}
