package store

import (
	"database/sql"
	"slices"
	"strings"
)

// Query chooses documents of one collection. Conditions left at their zero value hold for all.
type Query struct {
	Workspace, Kind string
	Name            string // versions of one container
	Status          []string
	Archived        *bool
	Hash, Parent    string
	After           int64 // cursor: ID of the last item of the page before, 0 for the first page
	Asc             bool  // oldest first; the default is newest first
	Limit           int   // 0 is 1000
	NoBody          bool  // leave Body and Own out
}

// List reads a page of documents, in the order of their IDs. A page shorter than the limit is the last. Its cost is
// that of the page, however many documents there are: the most selective condition is answered by an index that is in
// the order of the list.
func (tx *Tx) List(q Query) ([]*Doc, error) {
	scope, err := tx.scope(q.Workspace, q.Kind)
	if err != nil || scope == 0 {
		return nil, err
	}
	if q.Limit <= 0 {
		q.Limit = 1000
	}
	text, args := q.statement(scope)
	var docs []*Doc
	err = tx.query(func(r *sql.Rows) (bool, error) {
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

// statement writes the query as one SELECT, or as several joined by UNION ALL: one for each value that a column of
// the index before id may have. Both engines merge these by id and stop at the limit, where OR or IN would make them
// read and sort all that match.
func (q *Query) statement(scope int64) (string, []any) {
	var where strings.Builder
	args := []any{scope}
	and := func(condition string, values ...any) {
		where.WriteString(" AND " + condition)
		args = append(args, values...)
	}
	statuses := slices.Compact(slices.Sorted(slices.Values(q.Status)))
	var arms []any // values of the column that splits
	var split string
	switch {
	case q.Name != "":
		and("key = ?", strings.ToLower(q.Name))
		if strings.HasSuffix(q.Kind, "/versions") {
			and("version <> ''") // lets the partial index serve
		}
	case q.Hash != "", q.Parent != "":
	case len(statuses) > 0 && statuses[0] != "":
		split = "status"
		for _, s := range statuses {
			arms = append(arms, s)
		}
	case q.Archived == nil:
		split, arms = "archived", []any{0, 1}
	}
	if q.Hash != "" {
		and("hash = ? AND hash <> ''", q.Hash)
	}
	if q.Parent != "" {
		and("parent = ? AND parent <> ''", q.Parent)
	}
	if len(statuses) > 0 && split != "status" {
		marks := strings.TrimSuffix(strings.Repeat("?, ", len(statuses)), ", ")
		values := make([]any, len(statuses))
		for i, s := range statuses {
			values[i] = s
		}
		and("status IN ("+marks+")", values...)
	}
	if q.Archived != nil {
		and("archived = ?", flag(*q.Archived))
	}
	order := " ORDER BY id DESC LIMIT ?"
	if q.Asc {
		order = " ORDER BY id LIMIT ?"
	}
	switch {
	case q.After != 0 && q.Asc:
		and("id > ?", q.After)
	case q.After != 0:
		and("id < ?", q.After)
	}
	columns := docColumns + docLong
	if q.NoBody {
		columns = docColumns
	}
	one := "SELECT " + columns + " FROM docs WHERE scope = ?" + where.String()
	if split == "" {
		return one + order, append(args, q.Limit)
	}
	one += " AND " + split + " = ?"
	if split == "status" {
		one += " AND status <> ''"
	}
	var all []any
	for _, v := range arms {
		all = append(append(all, args...), v)
	}
	return strings.TrimSuffix(strings.Repeat(one+" UNION ALL ", len(arms)), " UNION ALL ") + order, append(all, q.Limit)
}
