package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// stayed is an error when a field that was to change is as it was. Jobs and versions of assets are
// fixed but for what people say of them, and a PUT answers with what is kept; whoever asked for a
// change is told that there was none.
func stayed(n noun, was, want map[string]any, d client.Document) error {
	if !n.versioned && n.word != "job" {
		return nil
	}
	got, err := shown(n, d)
	if err != nil {
		return err
	}
	field, old := unmoved("", was, want, got)
	if field == "" {
		return nil
	}
	stays := "there is none"
	if old != nil {
		b, err := json.Marshal(old)
		if err != nil {
			return err
		}
		stays = "it stays " + string(b)
	}
	fresh := "a new version of the " + n.word
	if !n.versioned {
		fresh = "a new " + n.word
	}
	return berth.Errorf(berth.Conflict, "%s cannot be changed: %s; create %s", field, stays, fresh)
}

// unmoved finds the first field, by name, that differs between was and want and is in got as it
// was.
func unmoved(at string, was, want, got map[string]any) (string, any) {
	keys := map[string]any{}
	maps.Copy(keys, was)
	maps.Copy(keys, want)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		a, b, g := was[k], want[k], got[k]
		if alike(a, b) {
			continue
		}
		inner, deep := b.(map[string]any)
		if deep {
			before, _ := a.(map[string]any)
			after, _ := g.(map[string]any)
			if field, old := unmoved(at+k+".", before, inner, after); field != "" {
				return field, old
			}
			continue
		}
		if reflect.DeepEqual(a, g) {
			return at + k, a
		}
	}
	return "", nil
}

// alike says whether two values are the same to the service, which compares words without case and
// shows numbers as text.
func alike(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	switch a.(type) {
	case map[string]any, []any:
		return false
	}
	if (a == nil || a == "") && (b == nil || b == "") {
		return true
	}
	return a != nil && b != nil && strings.EqualFold(fmt.Sprint(a), fmt.Sprint(b))
}

// erase says null for the properties that were removed: a PUT on something that is there keeps what
// it does not mention.
func erase(d client.Document, before, after map[string]any) {
	props, _ := d.Members["properties"].(map[string]any)
	then, _ := before["properties"].(map[string]any)
	now, _ := after["properties"].(map[string]any)
	for k := range then {
		if _, still := now[k]; !still && props != nil {
			props[k] = nil
		}
	}
}
