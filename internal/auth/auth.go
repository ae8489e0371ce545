// Package auth answers who calls and what they may do: the server's CA, user tokens, task tokens,
// and the JWTs that Azure clients demand.
package auth

import (
	"context"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// Role is what a token allows.
type Role string

// The roles. Each includes the ones after it.
const (
	Admin  Role = "admin"  // everything, tokens of others included
	User   Role = "user"   // everything inside workspaces
	Reader Role = "reader" // reading only
)

// Principal is who makes a request.
type Principal struct {
	User string
	Role Role
	// Token is the id of the token used; empty for the local socket.
	Token string
	// Task is set for a runner: it may speak of this task only.
	Task berth.TaskID
	// Endpoint is set for who has no more than a key of this batch endpoint: User is its maker.
	Endpoint string
	// Expires is when the credentials end by themselves; zero is never.
	Expires time.Time
	// Derived says that they are an access token, which cannot be exchanged for another.
	Derived bool

	mark string // of the token's secret: what was derived from one secret is not good for another of the same name
}

// CanWrite reports whether p may change resources.
func (p Principal) CanWrite() bool { return p.Task == "" && (p.Role == Admin || p.Role == User) }

type ctxKey struct{}

// With returns ctx carrying p.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, ctxKey{}, p)
}

// From is the principal of ctx; ok is false when nobody was authenticated.
func From(ctx context.Context) (Principal, bool) {
	p, ok := ctx.Value(ctxKey{}).(Principal)
	return p, ok
}

// Bearer is the token of an Authorization header value, "" when there is none.
func Bearer(header string) string {
	if len(header) > 7 && strings.EqualFold(header[:7], "bearer ") {
		return strings.TrimSpace(header[7:])
	}
	return ""
}
