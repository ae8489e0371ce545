package track_test

import (
	"maps"
	"net/http"
	"testing"

	"github.com/berthml/berth/internal/track"
)

// TestImportedVersionsKeepTheirNumbers: a version is brought over under its number, once, also into
// a gap that an earlier import left. Numbers that were given out here are not given out again.
func TestImportedVersionsKeepTheirNumbers(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	const call = "/api/2.0/berth/import/model-version"
	body := func(number string, more obj) obj {
		b := obj{"name": "m", "version": number, "source": "s3://b/" + number, "from": "http://old", "tags": []obj{{"key": "k", "value": number}}}
		maps.Copy(b, more)
		return b
	}
	bring := func(number string, created bool) {
		t.Helper()
		got := s.must("POST", call, body(number, obj{"stage": "production"}))
		if at(got, "created") != created || at(got, "model_version", "version") != number || at(got, "model_version", "current_stage") != "Production" {
			t.Errorf("version %s: %v", number, got)
		}
	}
	s.want(http.StatusNotFound, "POST", call, body("1", nil))
	s.must("POST", "registered-models/create", obj{"name": "m", "tags": []obj{{"key": "berth.imported_from", "value": "http://old"}}})
	bring("3", true)
	bring("3", false)
	s.must("POST", "model-versions/set-tag", obj{"name": "m", "version": "3", "key": "here", "value": "yes"})
	bring("3", false)
	bring("2", true) // it was left behind before
	bring("7", true)
	s.stop()
	s = start(t, dir)
	bring("5", true)
	bring("4", true)
	if v := at(s.must("POST", "model-versions/create", obj{"name": "m", "source": "s3://b/x"}), "model_version", "version"); v != "8" {
		t.Errorf("the next version is %v", v)
	}
	s.must("DELETE", "model-versions/delete", obj{"name": "m", "version": "5"})
	for name, b := range map[string]obj{
		"one that was deleted":      body("5", nil),
		"one that was made here":    body("8", nil),
		"of another source":         body("9", obj{"from": "http://other"}),
		"of another source, a gap":  body("6", obj{"from": "http://other"}),
		"without end":               body("2000000000", nil),
		"zero":                      body("0", nil),
		"of a stage that is none":   body("9", obj{"stage": "bogus"}),
		"of files of another host":  body("9", obj{"source": "http://evil/x"}),
		"of a logged model of none": body("9", obj{"source": "models:/m-0123456789abcdef0123456789abcdef"}),
	} {
		if code, m := s.do("POST", call, b); code != http.StatusBadRequest && code != http.StatusNotFound {
			t.Errorf("%s: %d %v", name, code, m)
		}
	}
	s.as(track.Caller{User: "eve", Write: true}).want(http.StatusBadRequest, "POST", call, body("6", nil))
	s.as(track.Caller{User: "u", Job: "train", Write: true}).want(http.StatusForbidden, "POST", call, body("6", nil))
	bring("6", true)
	versions := s.must("GET", "model-versions/search?filter=name%3D%27m%27", nil)["model_versions"].([]any)
	if len(versions) != 6 {
		t.Errorf("there are %d versions: %v", len(versions), versions)
	}
	if got := s.must("GET", "model-versions/get?name=m&version=3", nil); at(got, "model_version", "tags", 1, "key") != "here" {
		t.Errorf("what was changed here is gone: %v", got)
	}
}
