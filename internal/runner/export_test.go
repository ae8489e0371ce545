package runner

// For tests of the pure parts.
var (
	Plain    = plain
	ParseGPU = parseGPUs
	GPUVars  = gpuVars
)

// Expand expands with a table of values; a name with a nil value is an optional input that was not
// given.
func Expand(text string, values map[string]*string, lenient bool) (string, error) {
	return expand(text, func(expr string) (string, bool, bool) {
		v, known := values[expr]
		if v == nil {
			return "", false, known
		}
		return *v, true, true
	}, lenient)
}
