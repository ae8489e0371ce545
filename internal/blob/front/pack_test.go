package front_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob/front"
)

func pack(files ...string) string {
	var b []byte
	for i := 0; i < len(files); i += 2 {
		b = append(berth.AppendPackFile(b, files[i], int64(len(files[i+1]))), files[i+1]...)
	}
	return string(berth.AppendPackEnd(b, len(files)/2))
}

// TestPack puts and gets several files at once, below the folder that the signature is for and
// nowhere else.
func TestPack(t *testing.T) {
	s := serve(t)
	whole := pack("a", "one", "b/c d", "two", "empty", "")
	if res, body := s.do(http.MethodPut, "box/dir?comp=pack", whole); res.StatusCode != http.StatusCreated {
		t.Fatal(res.Status, body)
	}
	if res, body := s.do(http.MethodGet, "box/dir/b/c%20d", ""); res.StatusCode != http.StatusOK || body != "two" {
		t.Error(res.Status, body)
	}
	res, body := s.do(http.MethodPost, "box/dir?comp=pack", "b/c d\x00empty\x00a\x00")
	if want := pack("b/c d", "two", "empty", "", "a", "one"); res.StatusCode != http.StatusOK || body != want {
		t.Errorf("%s %q", res.Status, body)
	}
	for what, text := range map[string]string{
		"cut off": whole[:len(whole)-3], "cut in a file": whole[:6], "empty": "", "no size": "x a\x00", "a way out": pack("../x", "1"),
		"a wrong number": string(berth.AppendPackEnd(nil, 3)),
	} {
		if res, body := s.do(http.MethodPut, "box/other?comp=pack", text); res.StatusCode/100 == 2 {
			t.Errorf("%s: %s %s", what, res.Status, body)
		}
	}
	if res, _ := s.do(http.MethodGet, "box/other?comp=tree", ""); res.StatusCode != http.StatusNotFound {
		t.Error("something of a bad pack was kept:", res.Status)
	}
	if res, body := s.do(http.MethodPost, "box/dir?comp=pack", "a\x00nothing\x00"); res.StatusCode == http.StatusOK {
		if err := berth.ReadPack(strings.NewReader(body), func(string, int64, io.Reader) error { return nil }); err == nil {
			t.Error("a pack with a file that is not there is whole")
		}
	}
	for _, g := range []front.Grant{
		{Container: "box", Prefix: "dir/b", Perm: "rw", Expiry: all.Expiry},
		{Container: "box", Prefix: "dir", Perm: "l", Expiry: all.Expiry},
	} {
		for _, method := range []string{http.MethodPut, http.MethodPost} {
			if res, _ := s.raw(method, s.server.URL+"/st.blob.berth/box/dir?comp=pack&"+s.signer.Sign(g), whole); res.StatusCode != http.StatusForbidden {
				t.Errorf("%s %+v: %s", method, g, res.Status)
			}
		}
	}
}
