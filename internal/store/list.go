package store

import (
	"slices"
	"strings"
)

// Query selects documents of one collection. Conditions with their zero value match all.
type Query struct {
	Workspace, Kind string
	Name            string // versions of one container
	Status          []string
	Archived        *bool
	Hash, Parent    string
	CreatedBy       string
	After           int64 // cursor: ID of the last item of the page before, 0 for the first page
	Asc             bool  // oldest first; the default is newest first
	Limit           int   // 0 is 1000
	NoBody          bool  // leave Body and Own out
}

// List reads a page of documents in the order of their IDs. A page shorter than the limit is the
// last. Its cost is that of the page, however many documents there are: the most selective
// condition uses an index in the order of the list.
func (tx *Tx) List(q Query) ([]*Doc, error) {
	scope, err := tx.scope(q.Workspace, q.Kind)
	if err != nil || scope == 0 {
		return nil, err
	}
	if q.Limit <= 0 {
		q.Limit = 1000
	}
	text, args := q.statement(scope, tx.db.d.limitArms)
	var docs []*Doc
	err = tx.query(func(r row) (bool, error) {
		d, err := scanDoc(r, !q.NoBody)
		if err != nil {
			return false, err
		}
		d.Workspace, d.Kind = q.Workspace, q.Kind
		docs = append(docs, d)
		return true, nil
	}, text, args...)
	if err != nil {
		return nil, err
	}
	return docs, nil
}

// StateBytes is how many documents a workspace has of some kinds, and the size of what Berth owns
// of them. It looks at every row.
func (tx *Tx) StateBytes(workspace string, kinds ...string) (docs int, bytes int64, err error) {
	for _, kind := range kinds {
		scope, err := tx.scope(workspace, kind)
		if err != nil {
			return 0, 0, err
		}
		var n, size int64
		if _, err := tx.row([]any{&n, &size}, "SELECT COUNT(*), CAST(COALESCE(SUM(LENGTH(own)), 0) AS BIGINT) FROM docs WHERE scope = ?", scope); err != nil {
			return 0, 0, err
		}
		docs, bytes = docs+int(n), bytes+size
	}
	return docs, bytes, nil
}

// All returns every document of a query, page by page; its Limit is ignored.
func (tx *Tx) All(q Query) ([]*Doc, error) {
	const page = 1000
	var all []*Doc
	for q.Limit = page; ; q.After = all[len(all)-1].ID {
		docs, err := tx.List(q)
		all = append(all, docs...)
		if err != nil || len(docs) < page {
			return all, err
		}
	}
}

// statement writes the query as one SELECT, or as several joined by UNION ALL: one for each value
// that a column of the index before id may have. These are merged by id up to the limit, where OR
// or IN would read and sort all that match; an engine that does not see this by itself needs the
// limit in each arm as well. Conditions beside the one that has the index are written as
// expressions, which no index serves, so that the engine does not choose another.
func (q *Query) statement(scope int64, limitArms bool) (string, []any) {
	w := where{text: " WHERE scope = ?", args: []any{scope}}
	statuses := slices.Compact(slices.Sorted(slices.Values(q.Status)))
	split, arms := "", []any(nil)
	switch {
	case q.Name != "":
		w.and("key = ?", strings.ToLower(q.Name))
		if strings.HasSuffix(q.Kind, "/versions") {
			w.and("version <> ''") // all are: it lets the partial index serve
		}
	case q.Hash != "":
		w.and("hash = ? AND hash <> ''", q.Hash)
	case q.Parent != "":
		w.and("parent = ? AND parent <> ''", q.Parent)
	case len(statuses) > 0 && statuses[0] != "":
		split, arms = "status = ? AND status <> ''", values(statuses)
	case q.Archived == nil:
		split, arms = "archived = ?", []any{0, 1}
	default:
		split, arms = "archived = ?", []any{flag(*q.Archived)}
	}
	if q.Hash != "" && q.Name != "" {
		w.and("hash || '' = ?", q.Hash)
	}
	if q.Parent != "" && (q.Name != "" || q.Hash != "") {
		w.and("parent || '' = ?", q.Parent)
	}
	if len(statuses) > 0 && !strings.HasPrefix(split, "status") {
		w.and("status || '' IN (?"+strings.Repeat(", ?", len(statuses)-1)+")", values(statuses)...)
	}
	if q.Archived != nil && !strings.HasPrefix(split, "archived") {
		w.and("+archived = ?", flag(*q.Archived))
	}
	if q.CreatedBy != "" {
		w.and("created_by = ?", q.CreatedBy)
	}
	order := " ORDER BY id DESC LIMIT ?"
	if q.Asc {
		order = " ORDER BY id LIMIT ?"
	}
	switch {
	case q.After != 0 && q.Asc:
		w.and("id > ?", q.After)
	case q.After != 0:
		w.and("id < ?", q.After)
	}
	columns := docColumns + docLong
	if q.NoBody {
		columns = docColumns
	}
	one := "SELECT " + columns + " FROM docs" + w.text
	if split == "" {
		return one + order, append(w.args, q.Limit)
	}
	one += " AND " + split
	limitArms = limitArms && len(arms) > 1
	if limitArms {
		one = "SELECT * FROM (" + one + order + ") AS arm"
	}
	var all []any
	for _, v := range arms {
		all = append(append(all, w.args...), v)
		if limitArms {
			all = append(all, q.Limit)
		}
	}
	return one + strings.Repeat(" UNION ALL "+one, len(arms)-1) + order, append(all, q.Limit)
}

// where is a condition under construction.
type where struct {
	text string
	args []any
}

func (w *where) and(condition string, args ...any) {
	w.text += " AND " + condition
	w.args = append(w.args, args...)
}

func values(texts []string) []any {
	v := make([]any, len(texts))
	for i, t := range texts {
		v[i] = t
	}
	return v
}
