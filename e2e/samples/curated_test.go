//go:build engines

package samples_test

import "testing"

// TestCuratedSamples builds curated environments whole, from their lists, into the user's cache.
func TestCuratedSamples(t *testing.T) { run(t, true) }
