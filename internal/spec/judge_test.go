package spec_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// judge compares what Load gives with what the reference client sends, by the rules of the corpus:
// names the client invents match anything, empty is absent, references to resources made on the way
// are followed.
type judge struct {
	root string // of the files the goldens belong to
}

type golden struct {
	Kind    string          `json:"kind"`
	Type    string          `json:"type"`
	Name    string          `json:"name"`
	Version *string         `json:"version"`
	Parent  string          `json:"parent"`
	Body    map[string]any  `json:"body"`
	Uses    []use           `json:"uses"`
	Error   string          `json:"error"`
	Stage   string          `json:"stage"`
	Crash   bool            `json:"crash"`
	Missing bool            `json:"missing"`
	Skipped string          `json:"skipped"`
	Set     json.RawMessage `json:"set"`
}

type use struct {
	Type string         `json:"type"`
	Ref  string         `json:"ref"`
	Name string         `json:"name"`
	Body map[string]any `json:"body"`
}

type printed struct {
	Type    string         `json:"type"`
	Name    string         `json:"name"`
	Version string         `json:"version"`
	Body    map[string]any `json:"body"`
}

// side is what a comparison needs beside the two values.
type side struct {
	folder string
	uses   []use
	docs   []*printed
	seen   map[string]bool
}

var (
	anyText   = map[string]bool{"<generated>": true, "<workspace>": true, "<merged code>": true}
	ignored   = map[string]bool{"_source": true, "client_component_hash": true}
	envelope  = map[string]bool{"id": true, "name": true, "type": true, "systemData": true}
	flagNames = map[string]bool{"isArchived": true, "isAnonymous": true}
	textMaps  = map[string]bool{"environmentVariables": true, "environment_variables": true, "tags": true, "properties": true, "logbase": true}
	armScope  = regexp.MustCompile(`(?i)/subscriptions/[^/]+/resourcegroups/[^/]+/providers/Microsoft\.MachineLearningServices/workspaces/[^/]+(/|$)`)
	madeRef   = regexp.MustCompile(`^<(\w[\w/]*) (\d+)>$`)
	armTail   = regexp.MustCompile(`^HOME/(\w+)/([^/]+)/versions/([^/]+)$`)
	shortTail = regexp.MustCompile(`^([^/:@]+):([^/:@]+)$`)
	labelTail = regexp.MustCompile(`^HOME/\w+/([^/]+)/(?:labels/|versions/@)(\w+)$`)
	labelForm = regexp.MustCompile(`^[^/:@]+@\w+$`)
)

func home(s string) string { return armScope.ReplaceAllString(s, "HOME$1") }

func blank(key string, v any, strict bool) bool {
	if s, ok := v.(string); ignored[key] || v == nil || ok && anyText[s] {
		return true
	}
	if strict {
		return false
	}
	switch x := v.(type) {
	case map[string]any:
		if key == "userAssignedIdentities" {
			return len(x) == 0
		}
		for k, val := range x {
			if !blank(k, val, strict) {
				return false
			}
		}
		return true
	case []any:
		return len(x) == 0
	case bool:
		return flagNames[key] && !x
	}
	return false
}

func label(s string) string {
	bare := strings.TrimPrefix(s, "azureml:")
	if m := labelTail.FindStringSubmatch(home(bare)); m != nil {
		return "azureml:" + m[1] + "@" + m[2]
	}
	if labelForm.MatchString(bare) {
		return "azureml:" + bare
	}
	return s
}

func (j *judge) local(want, got, folder string) bool {
	for _, prefix := range []string{"local:", "file://", "file:", "azureml:local:"} {
		if rest, ok := strings.CutPrefix(got, prefix); ok {
			got = rest
			break
		}
	}
	want = filepath.Clean(strings.TrimPrefix(want, "local:"))
	if filepath.IsAbs(got) {
		rel, err := filepath.Rel(j.root, got)
		return err == nil && rel == want
	}
	rel, err := filepath.Rel(j.root, filepath.Join(folder, got))
	return filepath.Clean(got) == want || err == nil && rel == want
}

func (j *judge) text(want, got, folder string) bool {
	if anyText[want] || want == got {
		return true
	}
	if strings.HasPrefix(want, "local:") {
		return j.local(want, got, folder)
	}
	want, got = home(label(want)), home(label(got))
	if strings.Contains(want, "<generated>") {
		parts := strings.Split(want, "<generated>")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		return regexp.MustCompile("^" + strings.Join(parts, "[^/]*") + "$").MatchString(got)
	}
	return want == got
}

func scalarText(v any) (string, bool) {
	switch x := v.(type) {
	case map[string]any, []any:
		return "", false
	case nil:
		return "none", true
	case json.Number:
		return strings.TrimSuffix(x.String(), ".0"), true
	default:
		return strings.TrimSuffix(strings.ToLower(fmt.Sprint(x)), ".0"), true
	}
}

func sameScalar(want, got any, path string) bool {
	parts := strings.Split(path, ".")
	in := false
	for _, p := range parts[max(0, len(parts)-2):] {
		in = in || textMaps[p]
	}
	a, ok1 := scalarText(want)
	b, ok2 := scalarText(got)
	return in && ok1 && ok2 && a == b
}

func (j *judge) differ(want, got any, path string, sd *side) []string {
	if sameScalar(want, got, path) {
		return nil
	}
	if s, ok := want.(string); ok && madeRef.MatchString(s) {
		return j.reference(s, got, path, sd)
	}
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return []string{path + " type"}
		}
		return j.objects(w, g, path, sd)
	case []any:
		g, ok := got.([]any)
		switch {
		case !ok:
			return []string{path + " type"}
		case len(w) != len(g):
			return []string{path + "[] length"}
		}
		var out []string
		for i := range w {
			out = append(out, j.differ(w[i], g[i], path+"[]", sd)...)
		}
		return out
	case string:
		g, ok := got.(string)
		if !ok && !anyText[w] {
			return []string{path + " type"}
		}
		if ok && !j.text(w, g, sd.folder) {
			return []string{fmt.Sprintf("%s value: %s, not %s", path, g, w)}
		}
		return nil
	case json.Number:
		g, ok := got.(json.Number)
		if !ok {
			return []string{path + " type"}
		}
		a, _ := w.Float64()
		b, _ := g.Float64()
		if a == b {
			return nil
		}
	}
	if !reflect.DeepEqual(want, got) {
		return []string{fmt.Sprintf("%s value: %v, not %v", path, got, want)}
	}
	return nil
}

func (j *judge) objects(want, got map[string]any, path string, sd *side) []string {
	keys := map[string]bool{}
	for k := range want {
		keys[k] = true
	}
	for k := range got {
		keys[k] = true
	}
	strict := strings.HasSuffix(path, "userAssignedIdentities")
	var out []string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		here := strings.TrimPrefix(path+"."+k, ".")
		left, right := want[k], got[k]
		if s, ok := left.(string); ok && anyText[s] || blank(k, left, strict) && blank(k, right, strict) {
			continue
		}
		switch {
		case blank(k, right, strict):
			out = append(out, here+" missing")
		case blank(k, left, strict):
			out = append(out, here+" extra")
		default:
			out = append(out, j.differ(left, right, here, sd)...)
		}
	}
	return out
}

func address(s string) (collection, name, version string, ok bool) {
	s = strings.TrimPrefix(s, "azureml:")
	if m := armTail.FindStringSubmatch(home(s)); m != nil {
		return m[1], m[2], m[3], true
	}
	if m := shortTail.FindStringSubmatch(s); m != nil {
		return "", m[1], m[2], true
	}
	return "", "", "", false
}

func (j *judge) reference(want string, got any, path string, sd *side) []string {
	ref, ok := got.(string)
	if !ok {
		return []string{path + " type"}
	}
	collection, name, version, ok := address(ref)
	kind := madeRef.FindStringSubmatch(want)[1]
	var found *printed
	for _, d := range sd.docs {
		if d.Type == kind && ok && d.Name == name && d.Version == version && (collection == "" || collection == d.Type) {
			found = d
		}
	}
	if found == nil {
		return []string{path + " no " + kind + " document for " + ref}
	}
	for _, u := range sd.uses {
		if u.Ref == want && !sd.seen[want+ref] {
			sd.seen[want+ref] = true
			return j.differ(u.Body, found.content(), path+"<"+kind+">", sd)
		}
	}
	return nil
}

func (p *printed) content() map[string]any {
	out := map[string]any{}
	for k, v := range p.Body {
		if !envelope[k] {
			out[k] = v
		}
	}
	return out
}

// documents lists all differences between a golden file and what was printed.
func (j *judge) documents(g *golden, docs []*printed, folder string) []string {
	var doc *printed
	for _, d := range docs {
		if strings.EqualFold(d.Type, g.Type) && (doc == nil || d.Name == g.Name || doc.Name != g.Name) {
			doc = d
		}
	}
	if doc == nil {
		return []string{"type"}
	}
	sd := &side{folder: folder, uses: g.Uses, seen: map[string]bool{}}
	for _, d := range docs {
		if d != doc {
			sd.docs = append(sd.docs, d)
		}
	}
	var out []string
	if !anyText[g.Name] && doc.Name != g.Name && doc.Name != g.Parent+"/"+g.Name {
		out = append(out, "name value: "+doc.Name+", not "+g.Name)
	}
	if g.Version != nil && !anyText[*g.Version] && doc.Version != *g.Version {
		out = append(out, "version value: "+doc.Version+", not "+*g.Version)
	}
	out = append(out, j.differ(g.Body, doc.content(), "", sd)...)
	for _, u := range g.Uses {
		if madeRef.MatchString(u.Ref) {
			continue
		}
		var twin *printed
		for _, d := range sd.docs {
			if d.Type == u.Type && d.Name == u.Name {
				twin = d
			}
		}
		if twin == nil {
			out = append(out, "<"+u.Type+"> document missing")
			continue
		}
		out = append(out, j.differ(u.Body, twin.content(), "<"+u.Type+">", sd)...)
	}
	return out
}
