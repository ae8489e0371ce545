// Package sharetest is a small server of Azure's file shares for tests: the operations that runners
// use, in memory, as Microsoft's reference of the File service's REST interface describes them. It
// checks service signatures (SAS) itself, from that description.
package sharetest

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The account, its key and the share.
const (
	Account = "shareaccount"
	Share   = "team"
	Key     = "c2hhcmV0ZXN0LWtleS1mb3ItdGVzdHMtb25seQ=="
)

// Server has one share. Its names are compared without case, as Azure does.
type Server struct {
	*httptest.Server
	// PageSize is how many entries a page of a list has at most; 0 is what the request says.
	PageSize int
	// Fault may answer a request itself, and returns true when it did.
	Fault func(w http.ResponseWriter, r *http.Request) bool

	mu       sync.Mutex
	entries  map[string]*entry // by path in lower case; "" is the root
	changes  int
	requests []string
}

// entry is a file or a folder.
type entry struct {
	name   string // as it was first written
	folder bool
	data   []byte
	etag   string
}

// New starts a server that ends with the test.
func New(t testing.TB) *Server {
	s := &Server{entries: map[string]*entry{"": {folder: true}}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// Put makes files and the folders they are in; a name that ends with a slash is a folder.
func (s *Server) Put(files map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, text := range files {
		for i := range name {
			if name[i] == '/' {
				s.set(name[:i], &entry{folder: true})
			}
		}
		if !strings.HasSuffix(name, "/") {
			s.set(name, &entry{data: []byte(text)})
		}
	}
}

// All is every file by its path.
func (s *Server) All() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for p, e := range s.entries {
		if !e.folder {
			out[p] = string(e.data)
		}
	}
	return out
}

// Requests lists what was asked and granted so far.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// set keeps an entry.
func (s *Server) set(p string, e *entry) {
	s.changes++
	e.name, e.etag = path.Base(p), fmt.Sprintf(`"0x8D%013X"`, s.changes)
	s.entries[strings.ToLower(p)] = e
}

// parent says whether the folder of a path is there.
func (s *Server) parent(p string) bool {
	dir := path.Dir(p)
	if dir == "." {
		dir = ""
	}
	e := s.entries[strings.ToLower(dir)]
	return e != nil && e.folder
}

func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("X-Ms-Error-Code", code)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="utf-8"?><Error><Code>%s</Code><Message>%s</Message></Error>`, code, code)
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.Fault != nil && s.Fault(w, r) {
		return
	}
	p, ok := strings.CutPrefix(r.URL.Path, "/"+Account+"/"+Share)
	if p = strings.TrimPrefix(p, "/"); !ok {
		fail(w, http.StatusNotFound, "ShareNotFound")
		return
	}
	// The File service has no conditional requests.
	for _, h := range []string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		if r.Header.Get(h) != "" {
			fail(w, http.StatusBadRequest, "UnsupportedHeader")
			return
		}
	}
	q := r.URL.Query()
	folder, comp := q.Get("restype") == "directory", q.Get("comp")
	var need string
	var handle func(http.ResponseWriter, *http.Request, string)
	switch {
	case r.Method == http.MethodGet && folder && comp == "list":
		need, handle = "l", s.list
	case (r.Method == http.MethodGet || r.Method == http.MethodHead) && !folder && comp == "":
		need, handle = "r", s.get
	case r.Method == http.MethodPut && folder && comp == "":
		need, handle = "cw", s.makeFolder
	case r.Method == http.MethodPut && !folder && comp == "range":
		need, handle = "w", s.putRange
	case r.Method == http.MethodPut && !folder && comp == "":
		need, handle = "cw", s.create
	default:
		fail(w, http.StatusBadRequest, "InvalidQueryParameterValue")
		return
	}
	if code := authorize(r, p, need, folder); code != "" {
		fail(w, http.StatusForbidden, code)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+p+" "+comp)
	handle(w, r, p)
}

// authorize checks a service signature, and that it permits one of the permissions in need. Folders
// are not resources that can be signed: they need a signature of the share.
func authorize(r *http.Request, p, need string, folder bool) (code string) {
	q := r.URL.Query()
	resource := "/file/" + Account + "/" + Share
	switch sr := q.Get("sr"); {
	case sr == "s":
	case sr == "f" && !folder:
		resource += "/" + p
	default:
		return "AuthorizationResourceTypeMismatch"
	}
	toSign := strings.Join([]string{
		q.Get("sp"), q.Get("st"), q.Get("se"), resource, q.Get("si"), q.Get("sip"), q.Get("spr"), q.Get("sv"),
		q.Get("rscc"), q.Get("rscd"), q.Get("rsce"), q.Get("rscl"), q.Get("rsct"),
	}, "\n")
	key, err := base64.StdEncoding.DecodeString(Key)
	if err != nil {
		return "InternalError"
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(toSign))
	if q.Get("sig") != base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
		return "AuthenticationFailed"
	}
	until, err := time.Parse("2006-01-02T15:04:05Z", q.Get("se"))
	switch {
	case err != nil || time.Now().After(until) || q.Get("sv") < "2015-04-05":
		return "AuthenticationFailed"
	case !strings.Contains(q.Get("spr"), "http"):
		return "AuthorizationProtocolMismatch"
	case !strings.ContainsAny(q.Get("sp"), need):
		return "AuthorizationPermissionMismatch"
	}
	return ""
}

type listEntry struct {
	XMLName xml.Name
	Name    string
	Size    *int   `xml:"Properties>Content-Length,omitempty"`
	Etag    string `xml:"Properties>Etag,omitempty"`
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, p string) {
	dir := s.entries[strings.ToLower(p)]
	if dir == nil || !dir.folder {
		fail(w, http.StatusNotFound, "ResourceNotFound")
		return
	}
	var names []string
	for at := range s.entries {
		if at != "" && (path.Dir(at) == strings.ToLower(p) || p == "" && path.Dir(at) == ".") {
			names = append(names, at)
		}
	}
	slices.Sort(names)
	q := r.URL.Query()
	from, _ := strconv.Atoi(q.Get("marker"))
	count, err := strconv.Atoi(q.Get("maxresults"))
	if err != nil || count < 1 || count > 5000 || from > len(names) {
		fail(w, http.StatusBadRequest, "OutOfRangeQueryParameterValue")
		return
	}
	if s.PageSize > 0 {
		count = min(count, s.PageSize)
	}
	until := min(from+count, len(names))
	var out struct {
		XMLName xml.Name                   `xml:"EnumerationResults"`
		Entries struct{ List []listEntry } `xml:"Entries"`
		Next    string                     `xml:"NextMarker"`
	}
	for _, at := range names[from:until] {
		e := s.entries[at]
		x := listEntry{XMLName: xml.Name{Local: "Directory"}, Name: e.name}
		if !e.folder {
			size := len(e.data)
			x.XMLName.Local, x.Size = "File", &size
		}
		if strings.Contains(q.Get("include"), "Etag") {
			x.Etag = e.etag
		}
		out.Entries.List = append(out.Entries.List, x)
	}
	if until < len(names) {
		out.Next = strconv.Itoa(until)
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(out)
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, p string) {
	e := s.entries[strings.ToLower(p)]
	if e == nil || e.folder {
		fail(w, http.StatusNotFound, "ResourceNotFound")
		return
	}
	w.Header().Set("ETag", e.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(e.data))
}

func (s *Server) makeFolder(w http.ResponseWriter, _ *http.Request, p string) {
	switch {
	case s.entries[strings.ToLower(p)] != nil:
		fail(w, http.StatusConflict, "ResourceAlreadyExists")
	case !s.parent(p):
		fail(w, http.StatusNotFound, "ParentNotFound")
	default:
		s.set(p, &entry{folder: true})
		w.WriteHeader(http.StatusCreated)
	}
}

func (s *Server) create(w http.ResponseWriter, r *http.Request, p string) {
	size, err := strconv.Atoi(r.Header.Get("X-Ms-Content-Length"))
	old := s.entries[strings.ToLower(p)]
	switch {
	case r.Header.Get("X-Ms-Type") != "file" || err != nil || size < 0 || r.ContentLength != 0:
		fail(w, http.StatusBadRequest, "InvalidHeaderValue")
	case r.Header.Get("X-Ms-File-Attributes") == "" || r.Header.Get("X-Ms-File-Creation-Time") == "" || r.Header.Get("X-Ms-File-Last-Write-Time") == "" ||
		r.Header.Get("X-Ms-File-Permission") == "":
		fail(w, http.StatusBadRequest, "MissingRequiredHeader")
	case strings.ContainsAny(path.Base(p), `"\:|<>*?`) || len(path.Base(p)) > 255:
		fail(w, http.StatusBadRequest, "InvalidResourceName")
	case !s.parent(p):
		fail(w, http.StatusNotFound, "ParentNotFound")
	case old != nil && old.folder:
		fail(w, http.StatusConflict, "ResourceTypeMismatch")
	default:
		s.set(p, &entry{data: make([]byte, size)})
		w.WriteHeader(http.StatusCreated)
	}
}

// maxRange is how much Put Range takes at once.
const maxRange = 4 << 20

func (s *Server) putRange(w http.ResponseWriter, r *http.Request, p string) {
	e := s.entries[strings.ToLower(p)]
	var from, to int
	_, err := fmt.Sscanf(r.Header.Get("X-Ms-Range"), "bytes=%d-%d", &from, &to)
	switch {
	case e == nil || e.folder:
		fail(w, http.StatusNotFound, "ResourceNotFound")
	case r.Header.Get("X-Ms-Write") != "update" || err != nil || from < 0 || to < from || r.ContentLength != int64(to-from+1):
		fail(w, http.StatusBadRequest, "InvalidHeaderValue")
	case r.ContentLength > maxRange:
		fail(w, http.StatusRequestEntityTooLarge, "RequestBodyTooLarge")
	case to >= len(e.data):
		fail(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
	default:
		if _, err := io.ReadFull(r.Body, e.data[from:to+1]); err != nil {
			return // the connection was cut
		}
		s.changes++
		e.etag = fmt.Sprintf(`"0x8D%013X"`, s.changes)
		w.WriteHeader(http.StatusCreated)
	}
}
