package front_test

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/blob/front"
	"github.com/berthml/berth/internal/store"
)

// A site is a running endpoint with its store.
type site struct {
	t      testing.TB
	store  *blob.Store
	server *httptest.Server
	signer *front.Signer
	sas    string
}

func serve(t testing.TB) *site {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(dir, "berth.db"), store.Options{NoSync: true, Rehearse: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s, err := blob.Open(filepath.Join(dir, "blobs"), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	signer := front.NewSigner([]byte("key"))
	h := front.New(s, signer, front.Options{Account: "st", Suffix: "berth/", Zone: "berth.test:8443", Bearer: func(r *http.Request) (string, bool, error) {
		if r.Header.Get("Authorization") != "Bearer good" {
			return "", false, berth.Errorf(berth.Unauthenticated, "bad token")
		}
		return "good", false, nil
	}, Near: func(r *http.Request) bool { return r.Header.Get("Near") != "" }})
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return &site{t, s, server, signer, signer.Sign(all)}
}

var all = front.Grant{Container: "*", Perm: "rwld", Expiry: time.Now().Add(time.Hour)}

// do sends a request with the signature for everything; target is CONTAINER/NAME?QUERY.
func (s *site) do(method, target, body string, headers ...string) (*http.Response, string) {
	s.t.Helper()
	sep := "?"
	if strings.Contains(target, "?") {
		sep = "&"
	}
	return s.raw(method, s.server.URL+"/st.blob.berth/"+target+sep+s.sas, body, headers...)
}

func (s *site) raw(method, url, body string, headers ...string) (*http.Response, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if h := req.Header.Get("Host"); h != "" {
		req.Host = h
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp, string(text)
}

func (s *site) want(status int, code string, resp *http.Response, body string) {
	s.t.Helper()
	if resp.StatusCode != status || resp.Header.Get("x-ms-error-code") != code {
		s.t.Errorf("%s %s: %d %s, want %d %s\n%s", resp.Request.Method, resp.Request.URL, resp.StatusCode,
			resp.Header.Get("x-ms-error-code"), status, code, body)
	}
	if resp.Header.Get("x-ms-request-id") == "" || resp.Header.Get("x-ms-version") == "" || resp.Header.Get("Date") == "" {
		s.t.Error("an answer lacks the common headers")
	}
	if code != "" && body != "" && !strings.Contains(body, "<Code>"+code+"</Code>") {
		s.t.Errorf("the body does not say %s: %s", code, body)
	}
}

func (s *site) put(target, body string, headers ...string) *http.Response {
	s.t.Helper()
	resp, text := s.do("PUT", target, body, append(headers, "x-ms-blob-type", "BlockBlob")...)
	s.want(201, "", resp, text)
	return resp
}

func TestPutGetHead(t *testing.T) {
	s := serve(t)
	made := s.put("box/a//b%20c.txt", "hello", "Content-Type", "text/plain", "x-ms-meta-Color", "blue", "x-ms-version", "2099-01-01")
	if made.Header.Get("x-ms-version") != "2099-01-01" {
		t.Error("the client's version is not echoed")
	}
	resp, body := s.do("GET", "box/a//b%20c.txt", "")
	s.want(200, "", resp, body)
	if body != "hello" {
		t.Errorf("got %q", body)
	}
	head, body := s.do("HEAD", "box/a//b%20c.txt", "")
	s.want(200, "", head, body)
	sum := md5.Sum([]byte("hello"))
	for _, r := range []*http.Response{resp, head} {
		for k, want := range map[string]string{
			"ETag": made.Header.Get("ETag"), "Last-Modified": made.Header.Get("Last-Modified"), "Content-Type": "text/plain",
			"Content-Length": "5", "Accept-Ranges": "bytes", "x-ms-blob-type": "BlockBlob", "x-ms-meta-color": "blue",
			"x-ms-creation-time": made.Header.Get("Last-Modified"), "Content-MD5": base64.StdEncoding.EncodeToString(sum[:]),
			"Content-Security-Policy": "sandbox",
		} {
			if got := r.Header.Get(k); got != want || want == "" {
				t.Errorf("%s: %s is %q, want %q", r.Request.Method, k, got, want)
			}
		}
	}
	if _, err := s.store.Stat(t.Context(), "box", "a//b c.txt"); err != nil {
		t.Error(err)
	}
	resp, body = s.do("HEAD", "box/none", "")
	s.want(404, "BlobNotFound", resp, body)
	resp, body = s.do("GET", "box/none", "")
	s.want(404, "BlobNotFound", resp, body)
	if body == "" {
		t.Error("the error has no body")
	}
}

func TestPutConditionsAndChecks(t *testing.T) {
	s := serve(t)
	first := s.put("box/a", "one", "If-None-Match", "*")
	resp, body := s.do("PUT", "box/a", "two", "If-None-Match", "*", "x-ms-blob-type", "BlockBlob")
	s.want(409, "BlobAlreadyExists", resp, body)
	resp, body = s.do("PUT", "box/a", "two", "If-Match", `"0x1"`)
	s.want(412, "ConditionNotMet", resp, body)
	s.put("box/a", "two", "If-Match", first.Header.Get("ETag"))
	wrong := base64.StdEncoding.EncodeToString(make([]byte, 16))
	for _, h := range []string{"Content-MD5", "x-ms-blob-content-md5"} {
		resp, body = s.do("PUT", "box/b", "x", h, wrong)
		s.want(400, "Md5Mismatch", resp, body)
		resp, body = s.do("PUT", "box/b", "x", h, "rubbish")
		s.want(400, "InvalidMd5", resp, body)
	}
	for _, h := range [][2]string{
		{"x-ms-blob-type", "PageBlob"},
		{"x-ms-blob-type", "AppendBlob"},
		{"x-ms-copy-source", "https://x/y"},
		{"x-ms-structured-body", "XSM/1.0; properties=crc64"},
		{"If-Unmodified-Since", "Thu, 01 Jan 2026 00:00:00 GMT"},
		{"If-None-Match", `"0x1"`},
	} {
		if resp, _ := s.do("PUT", "box/b", "x", h[0], h[1]); resp.StatusCode != 400 {
			t.Errorf("%v: %d", h, resp.StatusCode)
		}
	}
	resp, body = s.do("HEAD", "box/b", "")
	s.want(404, "BlobNotFound", resp, body)
}

// A refusal of a large upload reaches the client as an answer, not as a broken connection.
func TestRefusalOfALargeUpload(t *testing.T) {
	s := serve(t)
	s.put("box/a", "one")
	large := strings.Repeat("x", 30<<20)
	for range 3 {
		resp, body := s.do("PUT", "box/a", large, "If-None-Match", "*")
		s.want(409, "BlobAlreadyExists", resp, body)
	}
}

func TestContentHash(t *testing.T) {
	s := serve(t)
	sum := sha256.Sum256([]byte("hello"))
	hash := hex.EncodeToString(sum[:])
	s.put("box/a", "hello", "x-berth-content-sha256", hash)
	if resp, _ := s.do("HEAD", "box/a", ""); resp.Header.Get("x-berth-content-sha256") != hash {
		t.Error("the hash is not shown")
	}
	if resp, _ := s.do("PUT", "box/b", "other", "x-berth-content-sha256", hash); resp.StatusCode != 400 {
		t.Error("other content passes:", resp.StatusCode)
	}
}

func TestAccess(t *testing.T) {
	h := front.New(nil, nil, front.Options{Account: "st", Suffix: "berth"})
	for what, want := range map[string]string{
		"GET /st.blob.berth/box/a//b": "box a//b r", "PUT /st.blob.berth/box/a?comp=block": "box a b", "DELETE /st.blob.berth/box/a": "box a d",
		"GET /st.blob.berth/box?restype=container&comp=list&prefix=p/": "box p/ l", "HEAD /st.blob.berth/box?restype=container": "box  ",
		"GET /other": "", "PATCH /st.blob.berth/box/a": "",
	} {
		method, target, _ := strings.Cut(what, " ")
		path, query, _ := strings.Cut(target, "?")
		r := &http.Request{Method: method, URL: &url.URL{Path: path, RawPath: path, RawQuery: query}}
		got := ""
		if c, n, p, ok := h.Access(r); ok {
			got = c + " " + n + " " + p
		}
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
		if h.Match(r) != strings.HasPrefix(path, "/st.") {
			t.Errorf("%s: Match is wrong", what)
		}
	}
}

func TestReadConditions(t *testing.T) {
	s := serve(t)
	made := s.put("box/a", "hello")
	tag, at := made.Header.Get("ETag"), made.Header.Get("Last-Modified")
	for _, tt := range []struct {
		header, value string
		status        int
	}{
		{"If-Match", tag, 200},
		{"If-Match", `"0x1"`, 412},
		{"If-Match", "*", 200},
		{"If-Match", `"0x1", ` + tag, 200},
		{"If-Match", strings.Trim(tag, `"`), 200},
		{"If-None-Match", tag, 304},
		{"If-None-Match", `"0x1"`, 200},
		{"If-None-Match", "*", 304},
		{"If-None-Match", "W/" + tag, 304},
		{"If-Modified-Since", at, 304},
		{"If-Modified-Since", "Thu, 01 Jan 2015 00:00:00 GMT", 200},
		{"If-Modified-Since", "rubbish", 200},
		{"If-Unmodified-Since", at, 200},
		{"If-Unmodified-Since", "Thu, 01 Jan 2015 00:00:00 GMT", 412},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			if resp, _ := s.do(method, "box/a", "", tt.header, tt.value); resp.StatusCode != tt.status {
				t.Errorf("%s with %s: %s gives %d, want %d", method, tt.header, tt.value, resp.StatusCode, tt.status)
			}
		}
	}
}

func TestRanges(t *testing.T) {
	s := serve(t)
	s.put("box/ten", "0123456789")
	s.put("box/empty", "")
	for _, tt := range []struct {
		blob, value string
		status      int
		body, part  string
	}{
		{"ten", "bytes=0-3", 206, "0123", "bytes 0-3/10"},
		{"ten", "bytes=0-33554431", 206, "0123456789", "bytes 0-9/10"},
		{"ten", "bytes=9-9", 206, "9", "bytes 9-9/10"},
		{"ten", "bytes=4-", 206, "456789", "bytes 4-9/10"},
		{"ten", "bytes=-3", 206, "789", "bytes 7-9/10"},
		{"ten", "bytes=-30", 206, "0123456789", "bytes 0-9/10"},
		{"ten", "bytes=0-99999999999999999999", 206, "0123456789", "bytes 0-9/10"},
		{"ten", "bytes=10-", 416, "", "bytes */10"},
		{"ten", "bytes=10-20", 416, "", "bytes */10"},
		{"ten", "bytes=99999999999999999999-", 416, "", "bytes */10"},
		{"ten", "bytes=-0", 416, "", "bytes */10"},
		{"ten", "bytes=5-4", 200, "0123456789", ""},
		{"ten", "bytes=a-b", 200, "0123456789", ""},
		{"ten", "bytes=--1", 200, "0123456789", ""},
		{"ten", "bytes=+1-2", 200, "0123456789", ""},
		{"ten", "bytes=0-1,3-4", 200, "0123456789", ""},
		{"ten", "lines=0-1", 200, "0123456789", ""},
		{"ten", "bytes=", 200, "0123456789", ""},
		{"empty", "bytes=0-33554431", 416, "", "bytes */0"},
		{"empty", "bytes=-1", 416, "", "bytes */0"},
	} {
		for _, header := range []string{"Range", "x-ms-range"} {
			resp, body := s.do("GET", "box/"+tt.blob, "", header, tt.value)
			code := ""
			if tt.status == 416 {
				code, tt.body = "InvalidRange", body
			}
			s.want(tt.status, code, resp, body)
			if body != tt.body || resp.Header.Get("Content-Range") != tt.part {
				t.Errorf("%s %s of %s: %q, %q", header, tt.value, tt.blob, body, resp.Header.Get("Content-Range"))
			}
		}
	}
	resp, body := s.do("GET", "box/ten", "", "Range", "bytes=0-0", "x-ms-range", "bytes=5-6")
	if body != "56" {
		t.Errorf("x-ms-range does not come first: %q", body)
	}
	if resp.Header.Get("Content-MD5") != "" || resp.Header.Get("x-ms-blob-content-md5") == "" {
		t.Error("a part has the MD5 of the whole")
	}
	resp, _ = s.do("GET", "box/ten", "", "x-ms-range", "bytes=0-3", "x-ms-range-get-content-md5", "true")
	sum := md5.Sum([]byte("0123"))
	if resp.Header.Get("Content-MD5") != base64.StdEncoding.EncodeToString(sum[:]) {
		t.Error("the MD5 of a part is missing")
	}
	if _, body = s.do("GET", "box/ten", "", "Range", "bytes=0-3", "If-Range", `"0x1"`); body != "0123456789" {
		t.Errorf("a part of another version: %q", body)
	}
	if _, body = s.do("GET", "box/empty", ""); body != "" {
		t.Errorf("an empty blob has %q", body)
	}
}

func TestMetadata(t *testing.T) {
	s := serve(t)
	first := s.put("box/a", "x", "x-ms-meta-old", "1")
	resp, body := s.do("PUT", "box/a?comp=metadata", "", "x-ms-meta-upload_status", "completed", "x-ms-meta-version", "None")
	s.want(200, "", resp, body)
	if tag := resp.Header.Get("ETag"); tag == "" || tag == first.Header.Get("ETag") {
		t.Error("ETag", tag)
	}
	for _, method := range []string{"HEAD", "GET"} {
		resp, body = s.do(method, "box/a?comp=metadata", "")
		s.want(200, "", resp, body)
		got := map[string]string{}
		for k := range resp.Header {
			if name, ok := strings.CutPrefix(strings.ToLower(k), "x-ms-meta-"); ok {
				got[name] = resp.Header.Get(k)
			}
		}
		if diff := cmp.Diff(map[string]string{"upload_status": "completed", "version": "None"}, got); diff != "" {
			t.Error(diff)
		}
	}
	resp, body = s.do("PUT", "box/none?comp=metadata", "")
	s.want(404, "BlobNotFound", resp, body)
	resp, body = s.do("PUT", "box/a?comp=metadata", "", "x-ms-meta-1a", "x")
	s.want(400, "InvalidMetadata", resp, body)
}

func TestDelete(t *testing.T) {
	s := serve(t)
	s.put("box/a", "x")
	resp, body := s.do("DELETE", "box/a", "", "If-Match", `"0x1"`)
	s.want(412, "ConditionNotMet", resp, body)
	resp, body = s.do("DELETE", "box/a", "")
	s.want(202, "", resp, body)
	resp, body = s.do("DELETE", "box/a", "")
	s.want(404, "BlobNotFound", resp, body)
}

func TestContainers(t *testing.T) {
	s := serve(t)
	resp, body := s.do("PUT", "box?restype=container", "")
	s.want(201, "", resp, body)
	for _, method := range []string{"GET", "HEAD"} {
		resp, body = s.do(method, "other?restype=container", "")
		s.want(200, "", resp, body)
	}
	resp, body = s.do("PUT", "Bad_Name?restype=container", "")
	s.want(400, "InvalidResourceName", resp, body)
	for _, what := range []string{"DELETE box?restype=container", "GET box", "GET ?comp=list", "PUT box/a?comp=lease", "PUT box/a?comp=appendblock", "POST box/a", "OPTIONS box/a"} {
		method, target, _ := strings.Cut(what, " ")
		resp, body = s.do(method, target, "")
		s.want(400, "UnsupportedOperation", resp, body)
	}
}

func TestAddresses(t *testing.T) {
	s := serve(t)
	s.put("box/a", "x")
	for _, ok := range []string{"/st.blob.berth/box/a", "/st.blob.berth//box/a", "/ST.blob.Berth/box/a"} {
		resp, body := s.raw("GET", s.server.URL+ok+"?"+s.sas, "")
		s.want(200, "", resp, body)
	}
	resp, body := s.raw("GET", s.server.URL+"/box/a?"+s.sas, "", "Host", "st.blob.berth.test:1234")
	s.want(200, "", resp, body)
	for _, other := range []string{"/", "/box/a", "/st.blob.berthx/box/a", "/st2.blob.berth/box/a"} {
		resp, body := s.raw("GET", s.server.URL+other+"?"+s.sas, "")
		s.want(404, "ResourceNotFound", resp, body)
	}
	for _, bad := range []string{"box/..%2f..%2fetc", "box/a/../../b", "box/%00", "box/a%ff", "b%2Fx/a", "box/a%5C..%5Cb"} {
		if resp, _ := s.do("GET", bad, ""); resp.StatusCode != 400 {
			t.Errorf("%s: %d", bad, resp.StatusCode)
		}
	}
	for _, name := range []string{"a+b", "a%2Bb", "%E2%82%AC", "a/", "/a", "a%25b", "a%3Fb%23", "a;b=c", "Icon%0D"} {
		s.put("box/"+name, name)
		if _, body := s.do("GET", "box/"+name, ""); body != name {
			t.Errorf("%s holds %q", name, body)
		}
	}
}

func TestAuthentication(t *testing.T) {
	s := serve(t)
	s.put("box/a", "x")
	at := s.server.URL + "/st.blob.berth/box/a"
	resp, body := s.raw("GET", at, "")
	s.want(401, "NoAuthenticationInformation", resp, body)
	resp, body = s.raw("GET", at, "", "Authorization", "Bearer good")
	s.want(200, "", resp, body)
	resp, body = s.raw("GET", at, "", "Authorization", "Bearer bad")
	s.want(401, "Unauthorized", resp, body)
	resp, body = s.raw("GET", at+"?sig=x", "", "Authorization", "Bearer good")
	s.want(403, "AuthenticationFailed", resp, body)
	resp, body = s.raw("GET", at+"?"+front.NewSigner([]byte("other")).Sign(all), "")
	s.want(403, "AuthenticationFailed", resp, body)
	old := all
	old.Expiry = time.Now().Add(-time.Second)
	resp, body = s.raw("GET", at+"?"+s.signer.Sign(old), "")
	s.want(403, "AuthenticationFailed", resp, body)
	writer := front.Grant{Container: "box", Perm: "w", Expiry: all.Expiry}
	resp, body = s.raw("GET", at+"?"+s.signer.Sign(writer), "")
	s.want(403, "AuthorizationPermissionMismatch", resp, body)
	writer = front.Grant{Container: "cup", Perm: "r", Expiry: all.Expiry}
	resp, body = s.raw("GET", at+"?"+s.signer.Sign(writer), "")
	s.want(403, "AuthorizationFailure", resp, body)
}

// A fault of the server tells a stranger nothing but the request.
func TestInternalErrors(t *testing.T) {
	s := serve(t)
	s.put("box/a", "x")
	b, err := s.store.Stat(t.Context(), "box", "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(s.store.Dir(), "objects", b.Hash[:2], b.Hash[2:])); err != nil {
		t.Fatal(err)
	}
	resp, body := s.do("GET", "box/a", "")
	s.want(500, "InternalError", resp, body)
	if strings.Contains(body, s.store.Dir()) {
		t.Error("it shows a path of the server:", body)
	}
}
