package berth

import "context"

// Several servers may share a database. One of them leads: it decides what becomes of jobs and
// computes, and acts on it. Each time another begins to lead a term begins, and terms are numbered.
// What a leader does carries the number of its term in its context, and whoever carries it out
// refuses the number of an earlier term: a leader that was replaced without noticing changes
// nothing any more.

type termKey struct{}

// WithTerm returns a context for what is done in a term.
func WithTerm(ctx context.Context, term int64) context.Context {
	return context.WithValue(ctx, termKey{}, term)
}

// TermOf is the term in which something is done, 0 where it does not matter who leads.
func TermOf(ctx context.Context) int64 {
	term, _ := ctx.Value(termKey{}).(int64)
	return term
}
