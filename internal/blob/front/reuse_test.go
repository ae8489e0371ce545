package front_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob/front"
)

func manifest(files ...string) string {
	var t berth.Tree
	b := t.AppendHead(nil)
	for i := 0; i < len(files); i += 2 {
		f := berth.TreeFile{Path: files[i], Size: int64(len(files[i+1])), Mode: 0o600, Hash: fmt.Sprintf("%x", sha256.Sum256([]byte(files[i+1])))}
		b = f.AppendFile(b)
	}
	return string(t.AppendEnd(b, len(files)/2))
}

// TestReuse: files of an earlier upload of the same user are not sent again. The answer names those
// that have to be.
func TestReuse(t *testing.T) {
	s := serve(t)
	signed := func(user, prefix string) string {
		return s.signer.Sign(front.Grant{Container: "box", Prefix: prefix, Perm: "rwl", Expiry: all.Expiry, User: user})
	}
	ask := func(user, to, from, text string) (*http.Response, string) {
		return s.raw(http.MethodPut, s.server.URL+"/st.blob.berth/box/"+to+"?comp=reuse&"+signed(user, to), text, front.FromHeader, from)
	}
	if res, body := s.raw(http.MethodPut, s.server.URL+"/st.blob.berth/box/one?comp=pack&"+signed("ann", "one"), pack("a", "alpha", "b c/d", "beta", "e", "")); res.StatusCode != http.StatusCreated {
		t.Fatal(res.Status, body)
	}
	want := manifest("a", "alpha", "b c/d", "BETA", "e", "", "new", "x")
	for _, from := range []string{s.server.URL + "/st.blob.berth/box/one", "https://st.blob.berth.test:8443/box/one/"} {
		if res, body := ask("ann", "two", from, want); res.StatusCode != http.StatusOK || body != "b c/d\x00new\x00" {
			t.Errorf("%s %q", res.Status, body)
		}
	}
	if res, body := s.do(http.MethodGet, "box/two/a", ""); res.StatusCode != http.StatusOK || body != "alpha" {
		t.Error(res.Status, body)
	}
	if res, body := ask("bob", "three", s.server.URL+"/st.blob.berth/box/one", manifest("a", "alpha")); res.StatusCode != http.StatusOK || body != "a\x00" {
		t.Errorf("another user: %s %q", res.Status, body)
	}
	for what, x := range map[string][2]string{
		"another container": {s.server.URL + "/st.blob.berth/other/one", want}, "another server": {"https://example.org/box/one", want}, "no folder": {"", want},
		"a bad address": {"http://%", want}, "a bad manifest": {s.server.URL + "/st.blob.berth/box/one", want[:20]}, "a way out": {s.server.URL + "/st.blob.berth/box/one", manifest("../a", "alpha")},
	} {
		if res, body := ask("ann", "four", x[0], x[1]); res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s %s", what, res.Status, body)
		}
	}
	if res, _ := s.raw(http.MethodPut, s.server.URL+"/st.blob.berth/box/five?comp=reuse&"+signed("ann", "six"), want, front.FromHeader, s.server.URL+"/st.blob.berth/box/one"); res.StatusCode != http.StatusForbidden {
		t.Errorf("a folder that the signature is not for: %s", res.Status)
	}
}
