package front

import (
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// parseRange reads bytes=A-B, bytes=A- and bytes=-N. ok is false when the text is not a single
// range of bytes: the whole blob is sent then, as HTTP has it. A range behind the end is an error.
func parseRange(text string, size int64) (off, n int64, ok bool, err error) {
	spec, found := strings.CutPrefix(strings.TrimSpace(text), "bytes=")
	first, last, dash := strings.Cut(spec, "-")
	if !found || !dash {
		return 0, 0, false, nil
	}
	beyond := coded(berth.Invalid, "InvalidRange", "the range is outside the blob")
	if first == "" {
		k, good := number(last)
		if !good {
			return 0, 0, false, nil
		}
		k = min(k, size)
		if k == 0 {
			return 0, 0, false, beyond
		}
		return size - k, k, true, nil
	}
	off, good := number(first)
	if !good {
		return 0, 0, false, nil
	}
	end := size - 1
	if last != "" {
		e, good := number(last)
		if !good || e < off {
			return 0, 0, false, nil
		}
		end = min(e, end)
	}
	if off >= size {
		return 0, 0, false, beyond
	}
	return off, end - off + 1, true, nil
}

// number reads digits only; one that is too large counts as the largest.
func number(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 1<<63 - 1, true
	}
	return n, true
}
