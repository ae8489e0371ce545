package store

import "time"

// Lease acquires or renews the lease of that name for holder, and reports whether holder has it:
// nobody else does until ttl from now. A ttl of 0 releases it.
func (tx *Tx) Lease(name, holder string, ttl time.Duration) (bool, error) {
	now := tx.Now()
	n, err := tx.exec("INSERT INTO leases (name, holder, expires) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE"+
		" SET holder = excluded.holder, expires = excluded.expires WHERE leases.holder = excluded.holder OR leases.expires <= ?",
		name, holder, nanos(now.Add(ttl)), nanos(now))
	return n > 0, err
}

// Meta reads a small value by key, "" if there is none.
func (tx *Tx) Meta(key string) (string, error) {
	var value string
	_, err := tx.row([]any{&value}, "SELECT value FROM meta WHERE key = ?", key)
	return value, err
}

// SetMeta writes a small value; "" removes it.
func (tx *Tx) SetMeta(key, value string) error {
	if value == "" {
		_, err := tx.exec("DELETE FROM meta WHERE key = ?", key)
		return err
	}
	_, err := tx.exec("INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", key, value)
	return err
}
