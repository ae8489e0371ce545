// Package blobtest is a small blob server for tests: the operations runners use, in memory.
package blobtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthml/berth"
)

// Query is the signature every request has to carry.
const Query = "sv=2024&sig=s%2Fx%3D"

// Server is a blob server with one container, called c, of the account st.blob.berth.
type Server struct {
	URL string
	// Fault may answer a request itself, and returns true when it did.
	Fault func(w http.ResponseWriter, r *http.Request) bool
	// NoPacks makes it a server that knows none.
	NoPacks bool
	// PageSize is how many blobs a list has; 0 means all.
	PageSize int

	mu       sync.Mutex
	blobs    map[string][]byte
	blocks   map[string][]byte
	requests []string
}

// New starts a server that ends with the test.
func New(t testing.TB) *Server {
	s := &Server{blobs: map[string][]byte{}, blocks: map[string][]byte{}}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	s.URL = srv.URL
	return s
}

// At is the signed URL of a path in the container.
func (s *Server) At(path string) string { return s.URL + "/st.blob.berth/c/" + path + "?" + Query }

// Set makes blobs.
func (s *Server) Set(blobs map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, v := range blobs {
		s.blobs[k] = []byte(v)
	}
}

// All is every blob below a prefix, by its name after the prefix.
func (s *Server) All(prefix string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for k, v := range s.blobs {
		if rel, ok := strings.CutPrefix(k, prefix); ok {
			out[rel] = string(v)
		}
	}
	return out
}

// Requests lists what was asked so far: method, path, and what of the query is not the signature.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("sig") != "s/x=" {
		http.Error(w, "bad signature", http.StatusForbidden)
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path+" "+q.Get("comp"))
	s.mu.Unlock()
	if s.Fault != nil && s.Fault(w, r) {
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/st.blob.berth/c")
	if !ok {
		http.NotFound(w, r)
		return
	}
	name = strings.TrimPrefix(name, "/")
	switch {
	case r.Method == http.MethodGet && q.Get("comp") == "list":
		s.list(w, q.Get("prefix"), q.Get("marker"))
	case r.Method == http.MethodPost && q.Get("comp") == "pack" && !s.NoPacks:
		s.pack(w, r, name)
	case r.Method == http.MethodGet && q.Get("comp") == "tree":
		s.tree(w, name, q.Get("type") == "file")
	case r.Method == http.MethodGet:
		s.mu.Lock()
		b, ok := s.blobs[name]
		s.mu.Unlock()
		if !ok {
			w.Header().Set("X-Ms-Error-Code", "BlobNotFound")
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, len(b)))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	case r.Method == http.MethodPut:
		s.put(w, r, name)
	case r.Method == http.MethodDelete:
		s.mu.Lock()
		_, ok := s.blobs[name]
		delete(s.blobs, name)
		s.mu.Unlock()
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	case r.Method == http.MethodPost:
		w.Header().Set("X-Ms-Error-Code", "UnsupportedOperation")
		w.WriteHeader(http.StatusBadRequest)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func (s *Server) put(w http.ResponseWriter, r *http.Request, name string) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	q := r.URL.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch q.Get("comp") {
	case "block":
		s.blocks[name+" "+q.Get("blockid")] = b
	case "blocklist":
		var list struct {
			Latest []string
		}
		if err := xml.Unmarshal(b, &list); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var all []byte
		for _, id := range list.Latest {
			all = append(all, s.blocks[name+" "+id]...)
		}
		s.blobs[name] = all
	default:
		if r.Header.Get("X-Ms-Blob-Type") != "BlockBlob" {
			http.Error(w, "no blob type", http.StatusBadRequest)
			return
		}
		s.blobs[name] = b
	}
	w.WriteHeader(http.StatusCreated)
}

// pack sends several files.
func (s *Server) pack(w http.ResponseWriter, r *http.Request, name string) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []byte
	paths := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	for _, p := range paths {
		b := s.blobs[strings.TrimSuffix(name, "/")+"/"+p]
		out = append(berth.AppendPackFile(out, p, int64(len(b))), b...)
	}
	_, _ = w.Write(berth.AppendPackEnd(out, len(paths)))
}

// tree sends the manifest of a folder or file.
func (s *Server) tree(w http.ResponseWriter, name string, single bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := berth.Tree{Single: single}
	var records []byte
	n := 0
	add := func(path string, b []byte) {
		n++
		f := berth.TreeFile{Path: path, Size: int64(len(b)), Mode: 0o600, Hash: fmt.Sprintf("%x", sha256.Sum256(b))}
		records = f.AppendFile(records)
	}
	for _, k := range slices.Sorted(maps.Keys(s.blobs)) {
		if rel, ok := strings.CutPrefix(k, strings.TrimSuffix(name, "/")+"/"); ok && !single {
			add(rel, s.blobs[k])
		}
	}
	if b, ok := s.blobs[name]; ok && n == 0 {
		t.Single = true
		add(path.Base(name), b)
	}
	if n == 0 {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = w.Write(t.AppendEnd(append(t.AppendHead(nil), records...), n))
}

func (s *Server) list(w http.ResponseWriter, prefix, marker string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out strings.Builder
	out.WriteString(`<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>`)
	n, next := 0, ""
	for _, k := range slices.Sorted(maps.Keys(s.blobs)) {
		if !strings.HasPrefix(k, prefix) || k < marker {
			continue
		}
		if s.PageSize > 0 && n == s.PageSize {
			next = k
			break
		}
		n++
		out.WriteString("<Blob><Name>")
		_ = xml.EscapeText(&out, []byte(k))
		fmt.Fprintf(&out, "</Name><Properties><Content-Length>%d</Content-Length></Properties></Blob>", len(s.blobs[k]))
	}
	out.WriteString("</Blobs><NextMarker>" + next + "</NextMarker></EnumerationResults>")
	w.Header().Set("Content-Type", "application/xml")
	_, _ = io.WriteString(w, out.String())
}
