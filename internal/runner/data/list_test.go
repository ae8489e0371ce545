package data_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/data"
)

// TestEndlessList: a list that repeats its pages, or a page that does not end, is refused, and not
// collected until the memory is full.
func TestEndlessList(t *testing.T) {
	const blob = "<EnumerationResults><Blobs><Blob><Name>in/x%d</Name></Blob></Blobs><NextMarker>%s</NextMarker></EnumerationResults>"
	for want, page := range map[string]func(w http.ResponseWriter, n int){
		"repeats a page": func(w http.ResponseWriter, n int) { fmt.Fprintf(w, blob, n, []string{"a", "b"}[n%2]) },
		"more than 1 MB": func(w http.ResponseWriter, _ int) {
			fmt.Fprint(w, "<EnumerationResults><Blobs><Blob><Name>")
			for {
				if _, err := w.Write([]byte(strings.Repeat("x", 1<<20))); err != nil {
					return
				}
			}
		},
	} {
		var asked atomic.Int64
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("comp") != "list" {
				return
			}
			if n := asked.Add(1); n < 10 {
				page(w, int(n))
			}
		}))
		c := client(t)
		c.ShrinkPage(1 << 20)
		err := c.Folder(t.Context(), s.URL+"/container/in?sig=s", t.TempDir(), new(data.Total))
		if code := berth.CodeOf(err); code == berth.Unavailable || err == nil || !strings.Contains(err.Error(), want) || asked.Load() > 4 {
			t.Errorf("%s: asked %d times: %v", want, asked.Load(), err)
		}
		o := c.Outside(&berth.Outside{Protocol: berth.OutsideAzure, Datastore: "lake", At: "data/in"}, func(_ context.Context, _ string, rs []berth.OutsideRequest) ([]string, error) {
			return []string{s.URL + "/?comp=list&prefix=in/"}, nil
		})
		asked.Store(0)
		_, _, err = o.List(t.Context())
		if code := berth.CodeOf(err); code == berth.Unavailable || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("elsewhere, %s: asked %d times: %v", want, asked.Load(), err)
		}
		s.Close()
	}
}

// TestDeletedAfterList: a file that was deleted after it was listed is named, and the list may be
// asked for again.
func TestDeletedAfterList(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "gone") {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer s.Close()
	o := client(t).Outside(&berth.Outside{Protocol: berth.OutsideAzure, Datastore: "lake", At: "data/in"}, func(_ context.Context, _ string, rs []berth.OutsideRequest) ([]string, error) {
		var urls []string
		for _, r := range rs {
			urls = append(urls, s.URL+"/"+r.Name)
		}
		return urls, nil
	})
	dir := t.TempDir()
	err := o.Fetch(t.Context(), []data.Object{{Path: "here"}, {Path: "sub/gone"}}, []int{0, 1}, func(i int) string { return filepath.Join(dir, fmt.Sprint(i)) })
	if berth.CodeOf(err) != berth.Conflict || !strings.Contains(err.Error(), "sub/gone: it was deleted after it was listed") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "0")); err != nil {
		t.Error(err)
	}
}
