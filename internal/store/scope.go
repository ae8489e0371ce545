package store

import "sync"

// A scopeKey is a workspace and a collection in it; rows carry its number.
type scopeKey struct{ workspace, kind string }

// scopes remembers the committed scopes. They are never removed.
type scopes struct {
	ids  sync.Map // scopeKey → int64
	keys sync.Map // int64 → scopeKey
}

func (c *scopes) add(k scopeKey, id int64) {
	c.ids.Store(k, id)
	c.keys.Store(id, k)
}

// scope is the number of a scope, 0 when it has none yet.
func (tx *Tx) scope(workspace, kind string) (int64, error) {
	k := scopeKey{workspace, kind}
	if id, ok := tx.db.scopes.ids.Load(k); ok {
		return id.(int64), nil
	}
	if id, ok := tx.fresh[k]; ok {
		return id, nil
	}
	var id int64
	found, err := tx.row([]any{&id}, "SELECT id FROM scopes WHERE workspace = ? AND kind = ?", workspace, kind)
	if err != nil || !found {
		return 0, err
	}
	tx.learn(k, id)
	return id, nil
}

// learn remembers a scope: a View sees committed ones only, an Update has to commit first.
func (tx *Tx) learn(k scopeKey, id int64) {
	if !tx.write {
		tx.db.scopes.add(k, id)
		return
	}
	if tx.fresh == nil {
		tx.fresh = make(map[scopeKey]int64)
	}
	tx.fresh[k] = id
}

// makeScope is scope, and makes it where needed.
func (tx *Tx) makeScope(workspace, kind string) (int64, error) {
	id, err := tx.scope(workspace, kind)
	if err != nil || id != 0 {
		return id, err
	}
	id = int64(tx.next())
	if _, err := tx.exec("INSERT INTO scopes (id, workspace, kind) VALUES (?, ?, ?)", id, workspace, kind); err != nil {
		return 0, err
	}
	tx.learn(scopeKey{workspace, kind}, id)
	return id, nil
}

// scopeOf is the scope with a number.
func (tx *Tx) scopeOf(id int64) (scopeKey, error) {
	if k, ok := tx.db.scopes.keys.Load(id); ok {
		return k.(scopeKey), nil
	}
	var k scopeKey
	found, err := tx.row([]any{&k.workspace, &k.kind}, "SELECT workspace, kind FROM scopes WHERE id = ?", id)
	if err == nil && found {
		tx.learn(k, id)
	}
	return k, err
}
