package jmes_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/berthml/berth/internal/jmes"
)

// TestSuite runs JMESPath's own compliance tests where JMESPATH_TESTS names a folder with them:
// *.json, as in the repository jmespath/jmespath.test.
func TestSuite(t *testing.T) {
	dir := os.Getenv("JMESPATH_TESTS")
	if dir == "" {
		t.Skip("JMESPATH_TESTS is not set")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", dir, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var groups []struct {
			Given any
			Cases []struct {
				Expression string
				Result     any
				Error      string
				Bench      string
			}
		}
		if err := json.Unmarshal(b, &groups); err != nil {
			t.Fatal(err)
		}
		for _, g := range groups {
			for _, c := range g.Cases {
				if c.Bench != "" {
					continue
				}
				got, err := search(c.Expression, g.Given)
				if c.Error != "" {
					if err == nil {
						t.Errorf("%s: %s: gives %v, want the error %s", filepath.Base(file), c.Expression, got, c.Error)
					}
					continue
				}
				if err != nil || !reflect.DeepEqual(plain(t, got), plain(t, c.Result)) {
					t.Errorf("%s: %s: gives %v (%v), want %v", filepath.Base(file), c.Expression, plain(t, got), err, c.Result)
				}
			}
		}
	}
}

func search(query string, v any) (any, error) {
	e, err := jmes.Parse(query)
	if err != nil {
		return nil, err
	}
	return e.Search(v)
}

// plain is a value as JSON gives it back, whatever made it.
func plain(t *testing.T, v any) any {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}
