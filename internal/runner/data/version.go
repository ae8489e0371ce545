package data

import (
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/berthml/berth"
)

// version is what tells one version of a file from another, as far as it is known. What is read in
// several requests is of one version.
type version struct {
	tag   string // a strong tag
	weak  string // a weak one, which If-Match does not take
	since string // when it was written to last
	total int64  // its size; 0 where it is not known
}

// errChanged is the error of a file that is not what it was, errLoose of one whose version is not
// known, errWhole of one that comes as a whole only.
var (
	errChanged = &berth.Error{Code: berth.Precondition, Msg: "it is another file now"}
	errLoose   = &berth.Error{Code: berth.Unsupported, Msg: "the server does not say which version of a file its parts are of"}
	errWhole   = &berth.Error{Code: berth.Unsupported, Msg: "the server does not send parts of files"}
)

// versionOf is the version that an answer is of.
func versionOf(res *http.Response) version {
	v := version{since: res.Header.Get("Last-Modified")}
	if tag := res.Header.Get("ETag"); strings.HasPrefix(tag, "W/") {
		v.weak = tag
	} else {
		v.tag = strong(tag)
	}
	if res.StatusCode == http.StatusPartialContent {
		_, total, _ := strings.Cut(res.Header.Get("Content-Range"), "/")
		v.total, _ = strconv.ParseInt(total, 10, 64) // "*" is not known either
	} else {
		v.total = max(res.ContentLength, 0)
	}
	return v
}

// known says whether an answer of another version can be told.
func (v version) known() bool { return v.firm() || v.weak != "" }

// firm says whether that is so of every answer with other content.
func (v version) firm() bool { return v.tag != "" || v.since != "" }

// same says whether an answer is of this version. Dates are compared here only: servers that know
// fractions of a second refuse their own date in If-Unmodified-Since.
func (v version) same(got version) bool {
	switch {
	case v.total != 0 && got.total != 0 && v.total != got.total:
		return false
	case v.tag != "": // many servers answer without a look at If-Match
		return got.tag == "" || got.tag == v.tag
	case v.weak != "":
		return v.weak == got.weak && (v.since == "" || got.since == "" || v.since == got.since)
	}
	return v.since == "" || v.since == got.since
}

// with is the version with what an answer says of it. A given tag is enough.
func (v version) with(got version) version {
	if v.total == 0 {
		v.total = got.total
	}
	if v.tag == "" && v.weak == "" && v.since == "" {
		v.tag, v.weak, v.since = got.tag, got.weak, got.since
	}
	return v
}

// pin holds what is read in several requests at once to the version of the first that is answered.
type pin struct {
	mu sync.Mutex
	v  version
}

// version is what is known so far.
func (p *pin) version() version {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.v
}

// hold refuses another version than that of the first answer.
func (p *pin) hold(got version) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.v.same(got) {
		return errChanged
	}
	p.v = p.v.with(got)
	return nil
}
