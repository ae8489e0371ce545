package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// computeTable is a list of computes for people: what each is doing, its nodes, what it costs, and
// why it is so.
func (s *session) computeTable(ctx context.Context, c *client.Client, docs []client.Document) (table, error) {
	t := table{header: []string{"NAME", "TYPE", "SIZE", "STATE", "NODES", "PRICE/H", "REASON"}}
	var sizes map[string]berth.Size
	for _, d := range docs {
		p := d.Properties()
		inner, _ := p["properties"].(map[string]any)
		size, _ := inner["vmSize"].(string)
		price := ""
		if size != "" {
			if sizes == nil {
				all, err := c.Sizes(ctx, client.SizeQuery{})
				if err != nil {
					return t, err
				}
				sizes = make(map[string]berth.Size, len(all))
				for _, z := range all {
					sizes[strings.ToLower(z.Name)] = z
				}
			}
			low := strings.EqualFold(fmt.Sprint(inner["vmPriority"]), "LowPriority")
			price = priceOf(sizes[strings.ToLower(size)], low)
		}
		state, color := computeState(p)
		t.add(cell{d.Name(), ""}, cell{fmt.Sprint(p["computeType"]), ""}, cell{size, ""}, cell{state, color}, cell{computeNodes(p), ""}, cell{price, ""}, cell{oneLine(computeReason(p)), dim})
	}
	return t, nil
}

// priceOf is what a node of a size costs in an hour.
func priceOf(z berth.Size, low bool) string {
	price := z.Price
	if low {
		price = z.LowPrice
	}
	if price == nil {
		return ""
	}
	return fmt.Sprintf("%.3g %s", *price, z.Currency)
}

// computeState is what a compute is doing, in a word, with its colour.
func computeState(p map[string]any) (word, color string) {
	inner, _ := p["properties"].(map[string]any)
	own, _ := p["berth"].(map[string]any)
	for _, v := range []any{own["state"], inner["state"]} {
		if text, _ := v.(string); text != "" {
			word = text
			break
		}
	}
	provisioning, _ := p["provisioningState"].(string)
	if connected, ok := own["connected"].(bool); ok {
		word = map[bool]string{true: "Connected", false: "Disconnected"}[connected]
	}
	if word == "" || !strings.EqualFold(provisioning, "Succeeded") {
		word = provisioning
	}
	if allocation, _ := inner["allocationState"].(string); word == "Succeeded" && allocation != "" {
		word = allocation
	}
	switch strings.ToLower(word) {
	case "failed", "createfailed", "setupfailed", "unusable", "disconnected":
		color = red
	case "running", "jobrunning", "connected", "succeeded", "steady":
		color = green
	}
	return word, color
}

// computeNodes is how many nodes a compute has, and may have.
func computeNodes(p map[string]any) string {
	inner, _ := p["properties"].(map[string]any)
	if scale, ok := inner["scaleSettings"].(map[string]any); ok {
		return fmt.Sprintf("%v of %v", numberOr0(inner["currentNodeCount"]), numberOr0(scale["maxNodeCount"]))
	}
	own, _ := p["berth"].(map[string]any)
	if machines, ok := own["machines"].([]any); ok && len(machines) > 0 {
		return fmt.Sprint(len(machines))
	}
	return ""
}

func numberOr0(v any) any {
	if v == nil {
		return 0
	}
	return v
}

// computeReason is why a compute is in its state.
func computeReason(p map[string]any) string {
	own, _ := p["berth"].(map[string]any)
	if all, _ := p["provisioningErrors"].([]any); len(all) > 0 {
		if text, _ := at(map[string]any{"x": all[0]}, "x.error.message").(string); text != "" {
			return text
		}
	}
	for _, key := range []string{"short", "reason", "why"} {
		if text, _ := own[key].(string); text != "" {
			return text
		}
	}
	return ""
}
