package api

import (
	"strings"
	"unicode/utf8"

	"github.com/berthml/berth"
)

// What a document may carry along besides what it is. Azure allows 50 tags with values of 256 characters on resources such as computes,
// and more on jobs and assets, where it gives no number; MLflow writes tags of up to 8,000.
const (
	maxTags       = 100
	maxProperties = 500
	maxTagName    = 512
	maxTagValue   = 8_000
	// maxDocument is how large a document may be that has no steps.
	maxDocument = 1 << 20
)

// bounded are the maps of a document that have limits, and how many members each may have.
var bounded = map[string]int{"tags": maxTags, "properties.tags": maxTags, "properties.properties": maxProperties}

// checkLimits refuses a document with more tags or properties than anybody could mean. Every list of documents carries them.
func checkLimits(body map[string]any) error {
	for path, most := range bounded {
		m, ok := dig(body, path).(map[string]any)
		if !ok {
			continue
		}
		if len(m) > most {
			return berth.Errorf(berth.Limit, "%s has %d members; at most %d are possible", path, len(m), most)
		}
		for k, v := range m {
			if n := utf8.RuneCountInString(k); n > maxTagName {
				return berth.Errorf(berth.Limit, "a name in %s is %d characters long; at most %d are possible", path, n, maxTagName)
			}
			text, ok := v.(string)
			if n := utf8.RuneCountInString(text); ok && n > maxTagValue {
				return berth.Errorf(berth.Limit, "%s.%s is %d characters long; at most %d are possible", path, k, n, maxTagValue)
			}
		}
	}
	return nil
}

// checkSize refuses a document that is larger than its kind may be. Pipelines and components have steps inside.
func checkSize(kind string, raw []byte) error {
	kind, _, _ = strings.Cut(kind, "/")
	if len(raw) > maxDocument && kind != "jobs" && kind != "components" {
		return berth.Errorf(berth.Limit, "the document is larger than %s", sizeText(maxDocument))
	}
	return nil
}
