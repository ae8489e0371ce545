package jmes

import "errors"

// Limits on what a query makes, in values and bytes of text: `[@,@]` a few dozen times in a row has
// more than any machine holds.
const (
	maxText  = 16 << 20 // of a text that a function makes
	maxItems = 4 << 20  // of a list that others are flattened into
	minSize  = 4 << 20  // of the result, which may also be
	maxGrow  = 4        // times what was searched
)

var errSize = errors.New("the result is too large")

// bounded is errSize when v, written out, is larger than limit.
func bounded(v any, limit int) error {
	if weigh(v, limit) < 0 {
		return errSize
	}
	return nil
}

// weigh is what is left of a limit after v; it stops counting below 0.
func weigh(v any, left int) int {
	left--
	switch x := v.(type) {
	case string:
		left -= len(x)
	case []any:
		for _, e := range x {
			if left < 0 {
				break
			}
			left = weigh(e, left)
		}
	case map[string]any, *Object:
		keys, get, _ := members(x)
		for _, k := range keys {
			if left < 0 {
				break
			}
			left = weigh(get[k], left-len(k))
		}
	}
	return left
}
