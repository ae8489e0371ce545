package store

import (
	"context"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// A dialect is what differs between the two engines. All statements are written for SQLite; text
// translates them.
type dialect struct {
	dollar bool     // parameters are $1, $2, … instead of ?
	schema []string // pairs for strings.NewReplacer over schema files
	// remote says that statements travel: connections can be lost, and each statement costs a
	// journey.
	remote     bool
	limitArms  bool // see Query.statement
	beginRead  string
	beginWrite string
	hasTable   string // (table) one row when the table exists
	anyTable   string // one row when there is any table
	lockSchema string // keeps other servers from migrating at the same time; "" where beginWrite does
	// begin begins a transaction, reads the head row, and keeps other writers away until the
	// transaction ends.
	begin func(ctx context.Context, s *session) (head, error)
	// commit writes the head row, unless h is nil, and commits.
	commit func(ctx context.Context, s *session, h *head) error
	fault  func(where string, err error) error
}

// A head is the row that says where the revisions stand.
type head struct {
	rev    berth.Rev
	pruned berth.Rev
	server string // who writes it, for other servers
	number int64  // of the server's commits
	leader string // who the server of the database is, where there may be several
}

// unseen hides parameters from SQLite's planner. It looks at the values of those that bound sorted
// rows, and prepares such a statement again for each value, at several times the cost of running
// it; into an expression it does not look.
var unseen = strings.NewReplacer("= ?", "= +?", "> ?", "> +?", "< ?", "< +?", "LIMIT ?", "LIMIT +?")

// text is a statement in the dialect's own words.
func (d *dialect) text(q string) string {
	if !d.dollar {
		return unseen.Replace(q)
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
