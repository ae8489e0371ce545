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

// TaskHolder stands for a task until it has ended, and for its user where it has one.
func TaskHolder(id berth.TaskID) string { return "task " + string(id) }

// IsTaskHolder says whether a holder is that of a task.
func IsTaskHolder(holder string) bool { return strings.HasPrefix(holder, "task ") }

// CheckHolder says whether a holder is good. It is asked often: answers about tokens and users are
// kept for a moment, and forgotten at a revocation. Tasks are read each time.
func (a *Authority) CheckHolder(ctx context.Context, holder string, now time.Time) error {
	kind, who, _ := strings.Cut(holder, " ")
	switch kind {
	case "":
		return nil
	case "token":
		name, mark, _ := strings.Cut(who, " ")
		if text, ok := strings.CutPrefix(name, instanceName); ok {
			_, err := a.instance(ctx, text, now, false)
			return err
		}
		_, err := a.named(ctx, name, mark, now)
		return err
	case "user":
		return a.hasToken(ctx, who, now)
	case "task":
		user, err := a.taskUser(ctx, berth.TaskID(who))
		if err != nil || user == "" {
			return err
		}
		return a.hasToken(ctx, user, now)
	}
	return berth.Errorf(berth.Unauthenticated, "unknown token holder")
}

// taskUser is the user of a task that has not ended.
func (a *Authority) taskUser(ctx context.Context, id berth.TaskID) (string, error) {
	var t *berth.Task
	err := a.db.View(ctx, func(tx *store.Tx) (err error) {
		t, err = tx.Task(id)
		return err
	})
	if berth.CodeOf(err) == berth.NotFound || err == nil && t.State == berth.TaskDone {
		return "", berth.Errorf(berth.Unauthenticated, "the task has ended")
	}
	if err != nil {
		return "", err
	}
	return t.User, nil
}

// hasToken says whether a user has any token, expired ones included.
func (a *Authority) hasToken(ctx context.Context, user string, now time.Time) error {
	return a.recently("\x00"+user, now, func() error { // no token's key
		return a.db.View(ctx, func(tx *store.Tx) error {
			_, ok, err := FindUser(tx, user)
			if err == nil && !ok {
				err = berth.Errorf(berth.Unauthenticated, "the tokens of %s were revoked", user)
			}
			return err
		})
	})
}

// recently is check, which is not asked again for a moment after it had no objection.
func (a *Authority) recently(key string, now time.Time, check func() error) error {
	a.mu.RLock()
	t, ok := a.cache[key]
	revoked := a.revoked
	a.mu.RUnlock()
	if ok && !now.Before(t.read) && now.Sub(t.read) < cacheLife {
		return nil
	}
	if err := check(); err != nil {
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
