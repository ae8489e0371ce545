package track

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The limits of MLflow, in characters.
const (
	maxKey                = 250
	maxParamValue         = 6000
	maxTagValue           = 8000
	maxExperimentName     = 500
	maxExperimentTagValue = 5000
	maxRegistryTagValue   = 100_000
	maxAlias              = 255
)

// Limits of ours, where MLflow's are those of its database.
const (
	maxUser        = 500
	maxReference   = 500 // the id of something else, or a word that says what kind of thing it is
	maxSource      = 2048
	maxDescription = 100_000
)

// checkKey refuses the key of a metric, parameter or tag that MLflow does.
func checkKey(name, at string) error {
	for _, r := range name {
		if r == '_' || r == '/' || r == '.' || r == '-' || r == ' ' || r == ':' || unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r) {
			continue
		}
		return invalid("Invalid value %s for parameter '%s' supplied: Names may only contain alphanumerics, underscores (_), "+
			"dashes (-), periods (.), spaces ( ), colon(:) and slashes (/).", dump(name), at)
	}
	if norm := path.Clean(name); norm != name || norm == "." || strings.HasPrefix(norm, "..") || strings.HasPrefix(norm, "/") {
		return invalid("Invalid value %s for parameter '%s' supplied: Names may be treated as files in certain cases, and must not "+
			"resolve to other names when treated as such. This name would resolve to '%s'", dump(name), at, norm)
	}
	return nil
}

// checkLength refuses what is too long.
func checkLength(at string, limit int, text string) error {
	if len(text) > limit && utf8.RuneCountInString(text) > limit {
		return invalid("'%s' exceeds the maximum length of %d characters", at, limit)
	}
	return nil
}

// cut shortens a text to a number of characters. What is left does not keep the rest in memory.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	n := 0
	for i := range text {
		if n++; n > limit {
			return strings.Clone(text[:i])
		}
	}
	return text
}

func sortedKeys[M ~map[K]V, K cmp.Ordered, V any](m M) []K { return slices.Sorted(maps.Keys(m)) }

// pairsOf is a map as a list sorted by key.
func pairsOf(m map[string]string) []pair {
	out := make([]pair, 0, len(m))
	for _, k := range sortedKeys(m) {
		out = append(out, pair{k, m[k]})
	}
	return out
}

// checkRunTag refuses a run's tag; a value that is too long is cut.
func checkRunTag(t *pair, at string) error {
	if err := checkKey(t.Key, at+"key"); err != nil {
		return err
	}
	t.Value = cut(t.Value, maxTagValue)
	return checkLength(at+"key", maxKey, t.Key)
}

// checkParam refuses a parameter; a value that is too long is cut.
func checkParam(t *pair, at string) error {
	if err := checkKey(t.Key, at+"key"); err != nil {
		return err
	}
	t.Value = cut(t.Value, maxParamValue)
	return checkLength("Param key", maxKey, t.Key)
}

// checkTag refuses another thing's tag.
func checkTag(t pair, most int) error {
	if err := checkKey(t.Key, "key"); err != nil {
		return err
	}
	if err := checkLength("key", maxKey, t.Key); err != nil {
		return err
	}
	return checkLength("value", most, t.Value)
}
