package auth

import (
	"context"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// What was handed out on somebody's behalf, such as a signature for blobs, names its holder, and is
// good as long as the holder is.

// Holder is the token p came with. The socket of this machine's user has none, and cannot be
// revoked.
func (p Principal) Holder() string {
	if p.mark == "" {
		return ""
	}
	return "token " + p.Token + " " + p.mark
}

// UserHolder stands for a user with whichever token: a job outlives the token it was submitted
// with, also where that one expired or was replaced, and not its user's last.
func UserHolder(user string) string { return "user " + user }

// CheckHolder says whether a holder is good. It is asked often: answers are kept for a moment, and
// forgotten at a revocation.
func (a *Authority) CheckHolder(ctx context.Context, holder string, now time.Time) error {
	kind, who, _ := strings.Cut(holder, " ")
	switch kind {
	case "":
		return nil
	case "token":
		name, mark, _ := strings.Cut(who, " ")
		_, err := a.named(ctx, name, mark, now)
		return err
	case "user":
		return a.hasToken(ctx, who, now)
	}
	return berth.Errorf(berth.Unauthenticated, "unknown token holder")
}

// hasToken says whether a user has any token, expired ones included.
func (a *Authority) hasToken(ctx context.Context, user string, now time.Time) error {
	key := "\x00" + user // no token's
	a.mu.RLock()
	t, ok := a.cache[key]
	revoked := a.revoked
	a.mu.RUnlock()
	if ok && !now.Before(t.read) && now.Sub(t.read) < cacheLife {
		return nil
	}
	err := a.db.View(ctx, func(tx *store.Tx) error {
		_, ok, err := FindUser(tx, user)
		if err == nil && !ok {
			err = berth.Errorf(berth.Unauthenticated, "the tokens of %s were revoked", user)
		}
		return err
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	if revoked == a.revoked { // else what was read may be what was revoked
		a.cache[key] = cached{read: now}
	}
	a.mu.Unlock()
	return nil
}

// CheckWriter says whether a user has a token that has not expired and may change resources. What
// acts as its maker for whoever has it, such as a key of a batch endpoint, asks it.
func (a *Authority) CheckWriter(ctx context.Context, user string, now time.Time) error {
	tokens, err := a.List(ctx)
	if err != nil {
		return err
	}
	for _, t := range tokens {
		p, err := cached{Token: t}.principal(now)
		if err == nil && p.CanWrite() && strings.EqualFold(p.User, user) {
			return nil
		}
	}
	return berth.Errorf(berth.Unauthenticated, "%s has no token any more that may change something", user)
}
