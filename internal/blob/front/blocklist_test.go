package front_test

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/blob/front"
)

func TestBlockUpload(t *testing.T) {
	s := serve(t)
	ids := []string{"MDAw", "MDAx", "MD+y"}
	for _, i := range []int{2, 0, 1} {
		resp, body := s.do("PUT", "box/big?comp=block&blockid="+url.QueryEscape(ids[i]), fmt.Sprintf("part%d;", i))
		s.want(201, "", resp, body)
	}
	resp, body := s.do("GET", "box/big?comp=blocklist&blocklisttype=all", "")
	s.want(200, "", resp, body)
	var staged struct {
		Committed   []string `xml:"CommittedBlocks>Block>Name"`
		Uncommitted []string `xml:"UncommittedBlocks>Block>Name"`
		Sizes       []int    `xml:"UncommittedBlocks>Block>Size"`
	}
	if err := xml.Unmarshal([]byte(body), &staged); err != nil || len(staged.Uncommitted) != 3 || staged.Sizes[0] != 6 {
		t.Error(staged, err)
	}
	resp, body = s.do("HEAD", "box/big", "")
	s.want(404, "BlobNotFound", resp, body)
	doc := "<?xml version='1.0' encoding='utf-8'?>\n<BlockList><Latest>MDAw</Latest><Uncommitted>MDAx</Uncommitted><Latest>MD+y</Latest></BlockList>"
	resp, body = s.do("PUT", "box/big?comp=blocklist", doc, "If-None-Match", "*", "x-ms-blob-content-type", "text/plain", "x-ms-meta-k", "v", "Content-Type", "application/xml")
	s.want(201, "", resp, body)
	resp, body = s.do("GET", "box/big", "")
	if body != "part0;part1;part2;" || resp.Header.Get("Content-Type") != "text/plain" || resp.Header.Get("x-ms-meta-k") != "v" {
		t.Errorf("%q %v", body, resp.Header)
	}
	for doc, code := range map[string]string{
		"": "InvalidXmlDocument", "<BlockList>": "InvalidXmlDocument", "<Other/>": "InvalidXmlDocument",
		"<BlockList/><BlockList/>": "InvalidXmlDocument", "<BlockList><x/></BlockList>": "InvalidXmlDocument",
		"<BlockList><Latest>***</Latest></BlockList>": "InvalidBlockList", "<BlockList><Latest>MDAw</Latest></BlockList>": "InvalidBlockList",
		"<BlockList><Committed>MDAw</Committed></BlockList>":                             "InvalidBlockList",
		"<BlockList>" + strings.Repeat("<Latest>MDAw</Latest>", 50_001) + "</BlockList>": "BlockListTooLong",
	} {
		resp, body := s.do("PUT", "box/big?comp=blocklist", doc)
		if resp.StatusCode != 400 || resp.Header.Get("x-ms-error-code") != code {
			t.Errorf("%.60s: %d %s", doc, resp.StatusCode, body)
		}
	}
	resp, body = s.do("PUT", "box/empty?comp=blocklist", "<BlockList/>")
	s.want(201, "", resp, body)
	for _, id := range []string{"", "***", strings.Repeat("AAAA", 30)} {
		resp, body := s.do("PUT", "box/big?comp=block&blockid="+id, "x")
		s.want(400, "InvalidQueryParameterValue", resp, body)
	}
	resp, body = s.do("PUT", "box/big?comp=block&blockid=MDAw", "x", "Content-MD5", "AAAAAAAAAAAAAAAAAAAAAA==")
	s.want(400, "Md5Mismatch", resp, body)
	resp, body = s.do("GET", "box/none?comp=blocklist", "")
	s.want(404, "BlobNotFound", resp, body)
}

// TestBlockOfAnUploadThatDoesNotFit: the first block of a file that is larger than the disk is
// refused, and nothing is kept of it.
func TestBlockOfAnUploadThatDoesNotFit(t *testing.T) {
	s := serve(t)
	res, body := s.do(http.MethodPut, "box/huge?comp=block&blockid=YQ==", "text", front.RestHeader, "4611686018427387904")
	if res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "has no room for this upload of 4611686018427387904 bytes") {
		t.Errorf("%s %s", res.Status, body)
	}
	if res, body := s.do(http.MethodPut, "box/small?comp=block&blockid=YQ==", "text", front.RestHeader, "4"); res.StatusCode != http.StatusCreated {
		t.Errorf("%s %s", res.Status, body)
	}
}
