package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// sizeFilter is what list-sizes was asked for.
type sizeFilter struct {
	client.SizeQuery
	gpu      bool
	maxPrice float64
}

// listSizesVerb is compute list-sizes.
func listSizesVerb(s *session, _ noun) *cobra.Command {
	var f sizeFilter
	cmd := &cobra.Command{
		Use: "list-sizes", Short: "List VM sizes with their hardware and price", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			if t := f.Type; t != "" && !strings.EqualFold(t, berth.TypeCluster) && !strings.EqualFold(t, berth.TypeInstance) {
				return usagef("--type %s: the types with sizes are %s and %s", t, berth.TypeCluster, berth.TypeInstance)
			}
			if f.maxPrice < 0 {
				return usagef("--max-price %g: give a price per hour", f.maxPrice)
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			if f.Location, err = workspaceLocation(cmd.Context(), c, f.Location); err != nil {
				return err
			}
			all, err := c.Sizes(cmd.Context(), f.SizeQuery)
			if err != nil {
				return err
			}
			found, unknown := f.choose(all)
			if s.format.chosen() {
				items := make([]any, len(found))
				for i, size := range found {
					items[i] = sizeEntity(size, s.format.az)
				}
				return s.printAs(items, sizeColumns)
			}
			if err := s.printRows(sizeTable(found)); err != nil {
				return err
			}
			if unknown > 0 {
				s.hint("%d %s without a known price left out", unknown, plural(unknown, "size"))
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.Type, "type", "t", "", "only sizes for this type of compute: AmlCompute or ComputeInstance")
	fl.StringVarP(&f.Location, "location", "l", "", "location (default: the workspace's)")
	fl.StringVar(&f.Family, "family", "", "only this family or series, for example standardDSv2Family or DSv2")
	fl.BoolVar(&f.gpu, "gpu", false, "only sizes with GPUs")
	fl.Float64Var(&f.maxPrice, "max-price", 0, "only sizes that cost at most this much per hour as dedicated nodes")
	s.format.flags(cmd)
	return cmd
}

// workspaceLocation is a location, the workspace's where none is named.
func workspaceLocation(ctx context.Context, c *client.Client, location string) (string, error) {
	if location != "" {
		return location, nil
	}
	return c.Location(ctx)
}

// choose applies the filters that are ours; unknown is how many sizes have no price to compare.
func (f sizeFilter) choose(all []berth.Size) (found []berth.Size, unknown int) {
	for _, size := range all {
		switch {
		case f.gpu && size.GPUs == 0:
		case f.maxPrice > 0 && size.Price == nil:
			unknown++
		case f.maxPrice > 0 && *size.Price > f.maxPrice:
		default:
			found = append(found, size)
		}
	}
	return found, unknown
}

// sizeColumns are az's.
var sizeColumns = []column{
	{"name", "name"},
	{"family", "family"},
	{"v_cp_us", "v_cp_us"},
	{"gpus", "gpus"},
	{"os_vhd_size_mb", "os_vhd_size_mb"},
	{"max_resource_volume_mb", "max_resource_volume_mb"},
	{"memory_gb", "memory_gb"},
	{"low_priority_capable", "low_priority_capable"},
	{"premium_io", "premium_io"},
	{"supported_compute_types", "supported_compute_types"},
}

// sizeEntity is a size in the form az prints it, and what is ours beside it.
func sizeEntity(size berth.Size, az bool) map[string]any {
	out := map[string]any{
		"name": size.Name, "family": size.Family, "v_cp_us": size.VCPUs, "gpus": size.GPUs, "os_vhd_size_mb": size.OSDiskMB,
		"max_resource_volume_mb": size.TempDiskMB, "memory_gb": size.MemoryGB, "low_priority_capable": size.LowPriority,
		"premium_io": size.PremiumIO, "supported_compute_types": strings.Join(size.Computes, ","),
		"series": size.Series, "category": size.Category, "gpu": size.GPU, "rdma": size.RDMA, "restricted": size.Restricted,
		"isolated": size.Isolated, "price": size.Price, "low_price": size.LowPrice, "currency": size.Currency, "own": size.Own,
	}
	if az { // which writes the list and the number as Python does
		types := make([]any, len(size.Computes))
		for i, t := range size.Computes {
			types[i] = t
		}
		out["supported_compute_types"] = pythonText(types)
		out["memory_gb"] = json.Number(strconv.FormatFloat(size.MemoryGB, 'f', -1, 64))
		if size.MemoryGB == math.Trunc(size.MemoryGB) {
			out["memory_gb"] = json.Number(strconv.FormatFloat(size.MemoryGB, 'f', 1, 64))
		}
	}
	return out
}

// sizeTable is sizes by category, each in the order of the catalogue.
func sizeTable(all []berth.Size) table {
	t := table{header: []string{"NAME", "VCPUS", "MEMORY", "GPUS", "PRICE/H", "LOW PRIORITY/H", "NOTE"}}
	var categories []string
	by := map[string][]berth.Size{}
	for _, size := range all {
		if by[size.Category] == nil {
			categories = append(categories, size.Category)
		}
		by[size.Category] = append(by[size.Category], size)
	}
	for _, category := range categories {
		t.add(cell{category, bold})
		for _, size := range by[category] {
			gpus := ""
			if size.GPUs > 0 {
				gpus = strings.TrimSpace(fmt.Sprintf("%d %s", size.GPUs, size.GPU))
			}
			low := "-"
			if size.LowPriority {
				low = priceText(size.LowPrice, size.Currency)
			}
			t.add(cell{size.Name, ""}, cell{strconv.Itoa(size.VCPUs), ""}, cell{fmt.Sprintf("%g GB", size.MemoryGB), ""}, cell{gpus, ""},
				cell{priceText(size.Price, size.Currency), ""}, cell{low, ""}, cell{sizeNote(size), dim})
		}
	}
	return t
}

// priceText is a price for people; one nobody knows is said to be so.
func priceText(price *float64, currency string) string {
	if price == nil {
		return "unknown"
	}
	return strings.TrimSpace(strconv.FormatFloat(*price, 'f', -1, 64) + " " + currency)
}

func sizeNote(size berth.Size) string {
	var notes []string
	for _, n := range []struct {
		on   bool
		text string
	}{
		{size.Restricted, "needs approval"},
		{size.Isolated, "alone on its host"},
		{size.RDMA, "RDMA"},
		{len(size.Computes) == 1, strings.Join(size.Computes, "") + " only"},
		{size.Own, "own"},
	} {
		if n.on {
			notes = append(notes, n.text)
		}
	}
	return strings.Join(notes, ", ")
}

// listUsageVerb is compute list-usage.
func listUsageVerb(s *session, _ noun) *cobra.Command {
	var location string
	cmd := &cobra.Command{
		Use: "list-usage", Short: "List vCPUs in use and their limits", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			if location, err = workspaceLocation(cmd.Context(), c, location); err != nil {
				return err
			}
			all, err := c.Usages(cmd.Context(), location)
			if err != nil {
				return err
			}
			if !s.format.chosen() {
				return s.printRows(usageTable(all))
			}
			items := make([]any, len(all))
			for i, u := range all {
				items[i] = map[string]any{
					"id": u.ID, "aml_workspace_location": u.Location, "type": u.Type, "unit": "Count", "current_value": u.Used, "limit": u.Limit,
					"name": map[string]any{"value": u.Name.Value, "localized_value": u.Name.Title},
				}
			}
			return s.printAs(items, []column{
				{"aml_workspace_location", "aml_workspace_location"},
				{"unit", "unit"},
				{"current_value", "current_value"},
				{"limit", "limit"},
				{"name", "name.value"},
			})
		},
	}
	cmd.Flags().StringVarP(&location, "location", "l", "", "location (default: the workspace's)")
	s.format.flags(cmd)
	return cmd
}

// usageTable is the location's vCPUs by family, dedicated and low priority side by side.
func usageTable(all []client.Usage) table {
	t := table{header: []string{"FAMILY", "DEDICATED", "LIMIT", "LOW PRIORITY", "LIMIT"}}
	rows := map[string]int{}
	for _, u := range all {
		total, low := strings.Contains(u.Type, "/total"), strings.Contains(strings.ToLower(u.Type), "lowpriority")
		if !total && !strings.Contains(u.Type, "/vmFamily/") {
			continue // of one workspace
		}
		name := u.Name.Value
		if total {
			name = "all"
		}
		i, ok := rows[name]
		if !ok {
			i = len(t.rows)
			rows[name] = i
			t.add(cell{name, ""}, cell{}, cell{}, cell{}, cell{})
		}
		at := 1
		if low {
			at = 3
		}
		t.rows[i][at].text, t.rows[i][at+1].text = strconv.Itoa(u.Used), limitText(u.Limit)
	}
	return t
}

func limitText(limit int) string {
	if limit < 0 {
		return "none"
	}
	return strconv.Itoa(limit)
}
