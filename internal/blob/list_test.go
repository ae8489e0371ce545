package blob_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
)

// list follows the pages to the end.
func list(s *blob.Store, t interface {
	Fatal(...any)
	Context() context.Context
}, o blob.ListOptions,
) (names, prefixes []string) {
	for {
		blobs, ps, next, err := s.List(t.Context(), "box", o)
		if err != nil {
			t.Fatal(err)
		}
		if o.Limit > 0 && len(blobs)+len(ps) > o.Limit {
			t.Fatal("a page is over its limit")
		}
		for _, b := range blobs {
			names = append(names, b.Name)
		}
		prefixes = append(prefixes, ps...)
		if next == "" {
			return names, prefixes
		}
		if next <= o.After {
			t.Fatal("the pages do not advance")
		}
		o.After = next
	}
}

// listed is what a listing must say, said simply.
func listed(all []string, prefix, delimiter string) (names, prefixes []string) {
	for _, n := range all {
		rest, ok := strings.CutPrefix(n, prefix)
		if !ok {
			continue
		}
		if i := strings.Index(rest, delimiter); delimiter != "" && i >= 0 {
			p := prefix + rest[:i+len(delimiter)]
			if !slices.Contains(prefixes, p) {
				prefixes = append(prefixes, p)
			}
			continue
		}
		names = append(names, n)
	}
	return names, prefixes
}

func TestListLaws(t *testing.T) {
	s := open(t)
	rapid.Check(t, func(t *rapid.T) {
		segment := rapid.SampledFrom([]string{"a", "b", "ab", "a0", "é", "", "日", "~"})
		name := rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOfN(segment, 1, 4).Draw(t, "segments"), "/")
		})
		all := rapid.SliceOfDistinct(name, rapid.ID[string]).Filter(func(n []string) bool { return !slices.Contains(n, "") }).Draw(t, "names")
		slices.Sort(all)
		old, _ := list(s, t, blob.ListOptions{})
		for _, n := range old {
			if err := s.Delete(t.Context(), "box", n); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range all {
			if _, err := s.Put(t.Context(), "box", n, strings.NewReader("x"), blob.PutOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		prefix := rapid.OneOf(rapid.Just(""), name).Draw(t, "prefix")
		delimiter := rapid.SampledFrom([]string{"", "/", "a"}).Draw(t, "delimiter")
		limit := rapid.IntRange(1, 5).Draw(t, "limit")
		names, prefixes := list(s, t, blob.ListOptions{Prefix: prefix, Delimiter: delimiter, Limit: limit})
		wantNames, wantPrefixes := listed(all, prefix, delimiter)
		if diff := cmp.Diff(wantNames, names); diff != "" {
			t.Fatal("names", diff)
		}
		if diff := cmp.Diff(wantPrefixes, prefixes); diff != "" {
			t.Fatal("prefixes", diff)
		}
	})
}

func TestListBeyondAPage(t *testing.T) {
	s := open(t)
	for i := range 1100 {
		put(t, s, fmt.Sprintf("deep/%04d", i), "x")
	}
	put(t, s, "zoo", "x")
	names, prefixes := list(s, t, blob.ListOptions{Delimiter: "/"})
	if diff := cmp.Diff([]string{"zoo"}, names); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"deep/"}, prefixes); diff != "" {
		t.Error(diff)
	}
	if names, _ := list(s, t, blob.ListOptions{}); len(names) != 1101 {
		t.Error(len(names), "names")
	}
	_, _, _, err := s.List(t.Context(), "box", blob.ListOptions{Prefix: "\xff"})
	wantCode(t, err, berth.Invalid, "")
}
