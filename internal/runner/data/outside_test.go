package data_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/data"
)

// many is storage with a hundred thousand files, in pages of a thousand. Each holds its number.
type many struct {
	*httptest.Server
	signed, pages atomic.Int64
	tag           atomic.Value // that files have now
}

const manyFiles = 100_000

func newMany(t *testing.T) *many {
	m := new(many)
	m.tag.Store("first")
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("list") {
			m.page(w, r)
			return
		}
		tag := m.tag.Load().(string)
		if match := r.Header.Get("If-Match"); match != "" && match != tag {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		w.Header().Set("ETag", tag)
		fmt.Fprint(w, filepath.Base(r.URL.Path))
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *many) page(w http.ResponseWriter, r *http.Request) {
	m.pages.Add(1)
	from, _ := strconv.Atoi(r.URL.Query().Get("marker"))
	fmt.Fprint(w, "<ListBucketResult>")
	for i := from; i < from+1000; i++ {
		fmt.Fprintf(w, "<Contents><Key>in/%06d</Key><Size>6</Size><ETag>first</ETag></Contents>", i)
	}
	if from+1000 < manyFiles {
		fmt.Fprintf(w, "<IsTruncated>true</IsTruncated><NextContinuationToken>%d</NextContinuationToken>", from+1000)
	}
	fmt.Fprint(w, "</ListBucketResult>")
}

func (m *many) outside(t *testing.T) *data.Outside {
	t.Helper()
	c, err := data.New(data.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.Shrink(1<<20, 1<<20, 1)
	return c.Outside(&berth.Outside{Protocol: berth.StorageS3, Datastore: "lake", At: "s3://data/in"}, func(_ context.Context, _ string, rs []berth.StorageRequest) ([]string, error) {
		m.signed.Add(1)
		urls := make([]string, len(rs))
		for i, r := range rs {
			urls[i] = m.URL + "/in/" + r.Name
			if r.Do == berth.StorageList {
				urls[i] = m.URL + "/?list&prefix=in/&marker=" + url.QueryEscape(r.Marker)
			}
		}
		return urls, nil
	})
}

// TestManyFiles: a list of many files comes in pages, and requests for files are signed many at a time.
func TestManyFiles(t *testing.T) {
	m := newMany(t)
	o := m.outside(t)
	list, skipped, err := o.List(t.Context())
	if err != nil || len(list) != manyFiles || len(skipped) != 0 || m.pages.Load() != manyFiles/1000 {
		t.Fatalf("%d files, %d left out, in %d pages: %v", len(list), len(skipped), m.pages.Load(), err)
	}
	m.signed.Store(0)
	dir := t.TempDir()
	want := make([]int, 1000)
	for i := range want {
		want[i] = i * 100
	}
	to := func(i int) string { return filepath.Join(dir, strconv.Itoa(i)) }
	if err := o.Fetch(t.Context(), list, want, to); err != nil {
		t.Fatal(err)
	}
	if n := m.signed.Load(); n != 5 {
		t.Errorf("a thousand requests were signed in %d calls", n)
	}
	for _, i := range want {
		if b, err := os.ReadFile(to(i)); err != nil || string(b) != list[i].Path {
			t.Fatalf("file %d is %q, %v", i, b, err)
		}
	}
	m.tag.Store("second")
	if err := o.Fetch(t.Context(), list, want, to); berth.CodeOf(err) != berth.Conflict {
		t.Errorf("files that changed after they were listed: %v", err)
	}
}
