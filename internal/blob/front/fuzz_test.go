package front

import (
	"encoding/xml"
	"net/url"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/blob"
)

func FuzzParsePath(f *testing.F) {
	for _, s := range []string{"", "/", "/box", "/box/", "//box//a//b", "/box/a%2fb", "/b%2Fox/a", "/box/%zz", "/box/..%2f..", "/box/%00", "/%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, escaped string) {
		container, name, err := parsePath(escaped)
		if err != nil {
			return
		}
		if strings.Contains(container, "/") {
			t.Errorf("container %q", container)
		}
		if container == "" && name != "" {
			t.Errorf("a blob %q without a container", name)
		}
		c, n, err := parsePath("/" + url.PathEscape(container) + "/" + url.PathEscape(name))
		if container != "" && (err != nil || c != container || n != name) {
			t.Errorf("%q %q came back as %q %q: %v", container, name, c, n, err)
		}
	})
}

func FuzzParseRange(f *testing.F) {
	for _, s := range []string{"bytes=0-1", "bytes=-1", "bytes=5-", "bytes=", "bytes=1-0", "bytes=99999999999999999999-", " bytes=0-0", "bytes=0-0,1-1"} {
		f.Add(s, int64(10))
		f.Add(s, int64(0))
	}
	f.Fuzz(func(t *testing.T, text string, size int64) {
		if size < 0 {
			return
		}
		off, n, ok, err := parseRange(text, size)
		if err != nil && ok || err == nil && ok && (off < 0 || n < 1 || off > size-n) {
			t.Errorf("%q of %d: %d+%d %v %v", text, size, off, n, ok, err)
		}
	})
}

func FuzzParseBlockList(f *testing.F) {
	for _, s := range []string{
		"", "<BlockList/>", "<BlockList><Latest>MDAw</Latest></BlockList>", "<BlockList><Committed>MDAw</Committed></BlockList>",
		"<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList><Uncommitted> MDAw </Uncommitted></BlockList>", "<BlockList><Latest>MDAw",
		"\ufeff<BlockList/>", "<!DOCTYPE x [<!ENTITY a \"b\">]><BlockList><Latest>&a;</Latest></BlockList>",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids, err := parseBlockList(strings.NewReader(text))
		if err != nil {
			return
		}
		if len(ids) > blob.MaxBlocks {
			t.Error(len(ids), "blocks")
		}
		var b strings.Builder
		b.WriteString("<BlockList>")
		for _, id := range ids {
			b.WriteString("<Latest>")
			xml.EscapeText(&b, []byte(id))
			b.WriteString("</Latest>")
		}
		again, err := parseBlockList(strings.NewReader(b.String() + "</BlockList>"))
		if err != nil || strings.Join(again, " ") != strings.Join(ids, " ") {
			t.Errorf("%q came back as %q: %v", ids, again, err)
		}
	})
}
