package data_test

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
		if match := r.Header.Get("If-Match"); match != `"`+tag+`"` { // lists have it without
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		w.Header().Set("ETag", `"`+tag+`"`)
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
	return c.Outside(&berth.Outside{Protocol: berth.OutsideS3, Datastore: "lake", At: "s3://data/in"}, func(_ context.Context, _ string, rs []berth.OutsideRequest) ([]string, error) {
		m.signed.Add(1)
		urls := make([]string, len(rs))
		for i, r := range rs {
			urls[i] = m.URL + "/in/" + r.Name
			if r.Do == berth.OutsideList {
				urls[i] = m.URL + "/?list&prefix=in/&marker=" + url.QueryEscape(r.Marker)
			}
		}
		return urls, nil
	})
}

// TestManyFiles: a list of many files comes in pages, and requests for files are signed many at a
// time.
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

// outsideOf is a place on a server that sees the verb of each request as its path, and what it is
// about in its query.
func outsideOf(t *testing.T, h http.HandlerFunc) *data.Outside {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := data.New(data.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.Shrink(1, 1, 1)
	return c.Outside(&berth.Outside{Protocol: berth.OutsideS3, Datastore: "lake", At: "s3://data/in"}, func(_ context.Context, _ string, rs []berth.OutsideRequest) ([]string, error) {
		urls := make([]string, len(rs))
		for i, r := range rs {
			urls[i] = s.URL + "/" + string(r.Do) + "?prefix=&marker=" + url.QueryEscape(r.Marker)
		}
		return urls, nil
	})
}

// TestListWithoutEnd: a list whose pages lead round in a circle is an error.
func TestListWithoutEnd(t *testing.T) {
	next := map[string]string{"": "A", "A": "B", "B": "A"}
	o := outsideOf(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>%s</NextContinuationToken></ListBucketResult>", next[r.URL.Query().Get("marker")])
	})
	if _, _, err := o.List(t.Context()); berth.CodeOf(err) != berth.Internal || !strings.Contains(err.Error(), "does not end") {
		t.Errorf("%v", err)
	}
}

// TestAnswerToFinishIsLost: an upload in parts whose last answer was lost is over when the file is
// there, and only then.
func TestAnswerToFinishIsLost(t *testing.T) {
	for name, size := range map[string]int64{"there": 4, "another file": 5} {
		t.Run(name, func(t *testing.T) {
			var finishes atomic.Int64
			o := outsideOf(t, func(w http.ResponseWriter, r *http.Request) {
				switch berth.OutsideVerb(strings.TrimPrefix(r.URL.Path, "/")) {
				case berth.OutsideBegin:
					fmt.Fprint(w, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
				case berth.OutsidePart:
					w.Header().Set("ETag", `"p"`)
				case berth.OutsideFinish:
					if finishes.Add(1) == 1 {
						panic(http.ErrAbortHandler) // it is done, and nobody hears of it
					}
					w.WriteHeader(http.StatusNotFound)
				case berth.OutsideHead:
					w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
				}
			})
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "f"), []byte("four"), 0o600); err != nil {
				t.Fatal(err)
			}
			d, err := data.OpenDir(dir, "")
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			err = o.PutFile(t.Context(), d, "f", new(data.Total))
			if (err == nil) != (size == 4) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestPutWhole: a file that goes to S3 in one request has its checksum, so that no server takes a
// part of it for the whole. One that the checksum does not fit is sent again later.
func TestPutWhole(t *testing.T) {
	var bad atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		sum := md5.Sum(body)
		if err != nil || bad.Load() || r.Header.Get("Content-MD5") != base64.StdEncoding.EncodeToString(sum[:]) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, "<Error><Code>BadDigest</Code></Error>")
		}
	}))
	defer s.Close()
	c, err := data.New(data.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	o := c.Outside(&berth.Outside{Protocol: berth.OutsideS3, Datastore: "lake"}, func(context.Context, string, []berth.OutsideRequest) ([]string, error) {
		return []string{s.URL}, nil
	})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("four"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := data.OpenDir(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := o.PutFile(t.Context(), d, "f", new(data.Total)); err != nil {
		t.Error(err)
	}
	bad.Store(true)
	if err := o.PutFile(t.Context(), d, "f", new(data.Total)); berth.CodeOf(err) != berth.Unavailable {
		t.Error(err)
	}
}
