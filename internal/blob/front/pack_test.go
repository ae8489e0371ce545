package front_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
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

// TestSlowPacksTakeNoMemory: packs come at the pace of files, so what has come of one is not held
// in memory until the rest is there.
func TestSlowPacksTakeNoMemory(t *testing.T) {
	s := serve(t)
	before, held := heap(), uint64(0)
	var files []string
	for i := range 160 {
		files = append(files, fmt.Sprint(i), strings.Repeat(string(rune('a'+i%26)), 200<<10))
	}
	whole := pack(files...)
	before += uint64(2 * len(whole)) // files and whole
	body := io.MultiReader(strings.NewReader(whole[:len(whole)-100]), onRead(func() { held = heap() }), strings.NewReader(whole[len(whole)-100:]))
	r := httptest.NewRequest(http.MethodPut, "/st.blob.berth/box/dir?comp=pack&"+s.signer.Sign(all), body)
	w := httptest.NewRecorder()
	s.server.Config.Handler.ServeHTTP(w, r)
	if w.Code != http.StatusCreated {
		t.Fatal(w.Code, w.Body)
	}
	if held == 0 || held > before+8<<20 {
		t.Errorf("%d MiB are held of a pack of %d MiB before its end", int64(held-before)>>20, len(whole)>>20)
	}
	runtime.KeepAlive(files)
}

// onRead is called when a reader comes to it, and has no bytes.
type onRead func()

func (f onRead) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestListOfManyPaths: a list of paths is counted before it is taken apart.
func TestListOfManyPaths(t *testing.T) {
	s := serve(t)
	for what, text := range map[string]string{
		"zero bytes": strings.Repeat("\x00", 8<<20), "too many": strings.Repeat("a\x00", 4097), "long": strings.Repeat("a", 5<<20),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		res, body := s.do(http.MethodPost, "box/dir?comp=pack", text)
		runtime.ReadMemStats(&after)
		if res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "4096 files") {
			t.Errorf("%s: %s %s", what, res.Status, body)
		}
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 48 {
			t.Errorf("%s: %d MiB were allocated", what, took)
		}
	}
}
