package envs

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Channels of conda have releases that the package index does not: a version that was packaged
// again, or one whose author published it there only. Such a pin becomes the nearest release of the
// index, and the job's events say so.

// pinsReplaced is how many pins of one conda file may be replaced.
const pinsReplaced = 20

var missingVersion = pattern(`(?:there (?:is|are) no versions? of |only the following versions of |[Bb]ecause only )([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?(?:\s*[=<>~!]| are available)`)

// installNearest installs r's requirements, with the nearest release for pins of a conda file that
// the index does not have. notes say which.
func (b *builder) installNearest(ctx context.Context, uv string, r request) (notes []string, err error) {
	for range pinsReplaced {
		if err = b.install(ctx, uv, r); err == nil {
			return notes, nil
		}
		var run *runError
		if ctx.Err() != nil || !errors.As(err, &run) {
			return notes, err
		}
		m := missingVersion().FindStringSubmatch(strings.Join(strings.Fields(strings.Join(run.lines, " ")), " "))
		if m == nil {
			return notes, err
		}
		name := project(m[1])
		pin, ok := r.Pins[name]
		i := slices.Index(r.Requirements, pin)
		version, exact := strings.CutPrefix(pin, m[1]+"==")
		if !ok || i < 0 || !exact {
			return notes, err
		}
		near := nearestRelease(strings.TrimSuffix(version, ".*"), b.releases(ctx, name))
		if near == "" {
			return notes, err
		}
		r.Requirements[i] = m[1] + "==" + near
		delete(r.Pins, name)
		notes = append(notes, fmt.Sprintf("conda package %s %s is not on the package index: the nearest release there, %s, was installed", m[1], version, near))
	}
	return notes, err
}

// releases are the versions of a project on the index, newest first, as pip tells them.
func (b *builder) releases(ctx context.Context, name string) []string {
	for _, python := range b.cache.pipPythons() {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		cmd := exec.CommandContext(ctx, python, "-m", "pip", "index", "versions", "--disable-pip-version-check", "--python-version", pythonVersion(b.dir), name)
		cmd.Dir, cmd.WaitDelay = b.cache.dir, time.Second
		out, err := cmd.Output()
		cancel()
		if err != nil {
			continue // it may be too old to know
		}
		for line := range strings.SplitSeq(string(out), "\n") {
			if list, ok := strings.CutPrefix(line, "Available versions: "); ok {
				return strings.Split(strings.TrimSpace(list), ", ")
			}
		}
	}
	return nil
}

// nearestRelease is the one of all releases that is nearest to a version: what differs in a later
// part is nearer, then the smaller difference, then the newer one.
func nearestRelease(version string, all []string) string {
	want := numbers(version)
	if want == nil {
		return ""
	}
	distance := func(v string) []int {
		var d []int
		have := numbers(v)
		for i := range max(len(want), len(have)) {
			var a, b int
			if i < len(want) {
				a = want[i]
			}
			if i < len(have) {
				b = have[i]
			}
			switch {
			case b >= a:
				d = append(d, 2*(b-a))
			default:
				d = append(d, 2*(a-b)+1)
			}
		}
		return d
	}
	best := ""
	for _, v := range all {
		if numbers(v) == nil {
			continue // a preview
		}
		if best == "" || slices.Compare(distance(v), distance(best)) < 0 {
			best = v
		}
	}
	return best
}

// numbers are the parts of a version of numbers only, nil for others.
func numbers(version string) (all []int) {
	for p := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(p)
		if err != nil {
			return nil
		}
		all = append(all, n)
	}
	return all
}
