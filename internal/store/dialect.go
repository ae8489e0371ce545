package store

import (
	"strconv"
	"strings"
)

// A dialect is what differs between the two engines. All statements are written for SQLite; text translates them.
type dialect struct {
	name       string
	dollar     bool     // parameters are $1, $2, … instead of ?
	schema     []string // pairs for strings.NewReplacer over schema files
	beginRead  string
	beginMove  string // begins a transaction that writes
	lockHead   string // reads the head row and keeps other writers away until the transaction ends
	saveHead   string // (rev, pruned), and the note for other servers where there is one
	hasTable   string // (table) one row when the table exists
	anyTable   string // one row when there is any table
	lockSchema string // keeps other servers from migrating at the same time; "" where beginMove does
	fault      func(where string, err error) error
}

// text is a statement in the dialect's own words.
func (d *dialect) text(q string) string {
	if !d.dollar {
		return q
	}
	var b strings.Builder
	n := 0
	for {
		i := strings.IndexByte(q, '?')
		if i < 0 {
			b.WriteString(q)
			return b.String()
		}
		n++
		b.WriteString(q[:i])
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
		q = q[i+1:]
	}
}
