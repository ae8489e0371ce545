//go:build linux

package runner_test

import (
	"strings"
	"testing"

	"github.com/berthml/berth/internal/runner/cache"
	"github.com/berthml/berth/internal/runner/data/blobtest"
)

// TestPrograms: storage keeps no permissions; scripts of the code that name their interpreter can
// be executed all the same, and nothing else can.
func TestPrograms(t *testing.T) {
	files := map[string]string{
		"code/run.sh": "#!/bin/sh\ntest ! -x plain.sh && test ! -x data.csv && tools/again \"$@\"", "code/tools/again": "#!/bin/sh\necho \"again $1\"",
		"code/plain.sh": "echo", "code/data.csv": "#!/bin/sh", "code/empty": "",
	}
	check := func(t *testing.T, b *bench) {
		t.Helper()
		if exit := b.run(); !exit.OK() || b.log() != "again x\n" {
			t.Fatalf("exit %+v, log %s", exit, b.log())
		}
	}
	eachWay(t, func(t *testing.T, c *cache.Cache) {
		s := blobtest.New(t)
		s.Set(files)
		for range 2 { // the second time it is on the node already
			b := newBench(t, "./run.sh x")
			b.options.Cache = c
			b.launch.Code, b.launch.CodeVersion = s.At("code"), "version-1"
			check(t, b)
			if strings.Contains(b.warnings(), "altered") {
				t.Error(b.warnings())
			}
		}
	})
	t.Run("without a cache", func(t *testing.T) {
		s := blobtest.New(t)
		s.Set(files)
		b := newBench(t, "./run.sh x")
		b.launch.Code = s.At("code")
		check(t, b)
	})
}
