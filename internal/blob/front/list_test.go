package front_test

import (
	"encoding/xml"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth/internal/blob/front"
)

type listing struct {
	ServiceEndpoint string `xml:",attr"`
	ContainerName   string `xml:",attr"`
	Prefix          string
	Names           []string `xml:"Blobs>Blob>Name"`
	Sizes           []int    `xml:"Blobs>Blob>Properties>Content-Length"`
	Types           []string `xml:"Blobs>Blob>Properties>BlobType"`
	Status          []string `xml:"Blobs>Blob>Metadata>upload_status"`
	Prefixes        []string `xml:"Blobs>BlobPrefix>Name"`
	NextMarker      string
}

func (s *site) list(query string) listing {
	s.t.Helper()
	resp, body := s.do("GET", "box?restype=container&comp=list"+query, "")
	s.want(200, "", resp, body)
	var l listing
	if err := xml.Unmarshal([]byte(body), &l); err != nil {
		s.t.Fatalf("%v in %s", err, body)
	}
	return l
}

func TestList(t *testing.T) {
	s := serve(t)
	s.put("box/p/m.txt", "12345", "x-ms-meta-upload_status", "completed")
	s.put("box/p/q/n.txt", "1")
	s.put("box/p/q/o.txt", "")
	s.put("box/z%26%3C%0D", "z")
	l := s.list("&prefix=p/&include=metadata")
	want := listing{
		ServiceEndpoint: s.server.URL + "/st.blob.berth/", ContainerName: "box", Prefix: "p/",
		Names: []string{"p/m.txt", "p/q/n.txt", "p/q/o.txt"}, Sizes: []int{5, 1, 0},
		Types: []string{"BlockBlob", "BlockBlob", "BlockBlob"}, Status: []string{"completed"},
	}
	if diff := cmp.Diff(want, l); diff != "" {
		t.Error(diff)
	}
	l = s.list("&prefix=p/&delimiter=/")
	if diff := cmp.Diff([][]string{{"p/m.txt"}, {"p/q/"}, nil}, [][]string{l.Names, l.Prefixes, l.Status}); diff != "" {
		t.Error(diff)
	}
	var names []string
	for marker, pages := "", 0; pages == 0 || marker != ""; pages++ {
		l = s.list("&maxresults=1&marker=" + url.QueryEscape(marker))
		names, marker = append(names, l.Names...), l.NextMarker
	}
	if diff := cmp.Diff([]string{"p/m.txt", "p/q/n.txt", "p/q/o.txt", "z&<\r"}, names); diff != "" {
		t.Error(diff)
	}
	if l := s.list("&prefix=none"); len(l.Names) > 0 {
		t.Error(l)
	}
	for _, q := range []string{"&maxresults=0", "&maxresults=x", "&marker=***", "&prefix=%ff"} {
		if resp, _ := s.do("GET", "box?restype=container&comp=list"+q, ""); resp.StatusCode != 400 {
			t.Error(q, resp.StatusCode)
		}
	}
}

// A grant for a folder lists that folder and nothing that only begins like it.
func TestListWithinAGrant(t *testing.T) {
	s := serve(t)
	for _, n := range []string{"a/b", "a/b/c", "a/b/d/e", "a/bc", "a/bc/d", "x"} {
		s.put("box/"+n, "x")
	}
	s.sas = s.signer.Sign(front.Grant{Container: "box", Prefix: "a/b", Perm: "l", Expiry: all.Expiry})
	if diff := cmp.Diff([]string{"a/b", "a/b/c", "a/b/d/e"}, s.list("&prefix=a/b").Names); diff != "" {
		t.Error(diff)
	}
	if l := s.list("&prefix=a/b&delimiter=/"); cmp.Diff([]string{"a/b/"}, l.Prefixes) != "" || len(l.Names) != 1 {
		t.Error(l)
	}
	if diff := cmp.Diff([]string{"a/b/d/e"}, s.list("&prefix=a/b/d").Names); diff != "" {
		t.Error(diff)
	}
	for _, prefix := range []string{"", "a", "a/", "a/bc", "x"} {
		resp, body := s.do("GET", "box?restype=container&comp=list&prefix="+prefix, "")
		s.want(403, "AuthorizationFailure", resp, body)
	}
	resp, body := s.do("HEAD", "box?restype=container", "")
	s.want(200, "", resp, body)
}

// A folder can be listed by its own address, as if it were a container: the SDK does so when it
// downloads code.
func TestListFolder(t *testing.T) {
	s := serve(t)
	s.put("box/codes-1/src/a.py", "x")
	s.put("box/codes-1/src/b/c.py", "x")
	s.put("box/codes-2/src/d.py", "x")
	at := s.server.URL + "/st.blob.berth/box"
	sas := "restype=container&comp=list&" + s.signer.Sign(front.Grant{Container: "box", Prefix: "codes-1", Perm: "rl", Expiry: all.Expiry})
	resp, body := s.raw("GET", at+"/codes-1?prefix=src&"+sas, "")
	s.want(200, "", resp, body)
	var l listing
	if err := xml.Unmarshal([]byte(body), &l); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"src/a.py", "src/b/c.py"}, l.Names); diff != "" || l.ContainerName != "box/codes-1" {
		t.Error(diff, l.ContainerName)
	}
	resp, body = s.raw("GET", at+"/codes-2?"+sas, "")
	s.want(403, "AuthorizationFailure", resp, body)
	resp, body = s.raw("GET", at+"?"+sas, "")
	s.want(403, "AuthorizationFailure", resp, body)
}
