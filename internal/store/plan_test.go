package store

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlans checks that SQLite answers every kind of List from the index meant for it, in its
// order, without a sort.
func TestPlans(t *testing.T) {
	ctx := context.Background()
	db, err := Open(ctx, "sqlite:"+filepath.Join(t.TempDir(), "berth.db"), Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	no := false
	for name, c := range map[string]struct {
		q     Query
		index string
	}{
		"all":               {Query{}, "docs_list (scope=? AND archived=?"},
		"active":            {Query{Archived: &no}, "docs_list (scope=? AND archived=?"},
		"by a user":         {Query{CreatedBy: "u", Archived: &no}, "docs_list (scope=? AND archived=?"},
		"status":            {Query{Status: []string{"Running"}}, "docs_status (scope=? AND status=?"},
		"statuses":          {Query{Status: []string{"Running", "Queued", "Starting"}, Archived: &no}, "docs_status (scope=? AND status=?"},
		"parent":            {Query{Parent: "p"}, "docs_parent (scope=? AND parent=?"},
		"parent and others": {Query{Parent: "p", Status: []string{"Running", "Queued"}, Archived: &no}, "docs_parent (scope=? AND parent=?"},
		"hash":              {Query{Hash: "h"}, "docs_hash (scope=? AND hash=?"},
		"hash and others":   {Query{Hash: "h", Parent: "p", Status: []string{"Running"}, Archived: &no}, "docs_hash (scope=? AND hash=?"},
		"versions":          {Query{Kind: "data/versions", Name: "n"}, "docs_versions (scope=? AND key=?"},
		"versions and others": {
			Query{Kind: "data/versions", Name: "n", Hash: "h", Parent: "p", Status: []string{"a", "b"}, Archived: &no},
			"docs_versions (scope=? AND key=?",
		},
	} {
		for _, after := range []int64{0, 7} {
			for _, asc := range []bool{false, true} {
				q := c.q
				q.After, q.Asc, q.Limit = after, asc, 10
				text, args := q.statement(1, false)
				for _, step := range plan(t, db, text, args) {
					wrong := strings.Contains(step, "TEMP B-TREE") || strings.HasPrefix(step, "SCAN")
					if strings.HasPrefix(step, "SEARCH") && !strings.Contains(step, "USING INDEX "+c.index) {
						wrong = true
					}
					if strings.HasPrefix(step, "SEARCH") && after > 0 && !strings.Contains(step, "AND id") {
						wrong = true
					}
					if wrong {
						t.Errorf("%s, after %d, asc %v: %s", name, after, asc, step)
					}
				}
			}
		}
	}
	for _, step := range plan(t, db, "SELECT body FROM tasks WHERE active = 1 ORDER BY seq", nil) {
		if !strings.Contains(step, "tasks_active") {
			t.Errorf("active tasks: %s", step)
		}
	}
}

func plan(t *testing.T, db *DB, text string, args []any) (steps []string) {
	t.Helper()
	err := db.View(context.Background(), func(tx *Tx) error {
		return tx.query(func(r row) (bool, error) {
			var step string
			var skip any
			err := r.Scan(&skip, &skip, &skip, &step)
			steps = append(steps, step)
			return true, err
		}, "EXPLAIN QUERY PLAN "+text, args...)
	})
	if err != nil {
		t.Fatal(err)
	}
	return steps
}
