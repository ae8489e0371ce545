package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// kindTokens is the document kind of user tokens. The secret itself is never stored, only its hash.
const kindTokens = "tokens"

// Token describes a user token; the secret is shown once, when it is made.
type Token struct {
	Name    string    `json:"name"`
	User    string    `json:"user"`
	Role    Role      `json:"role"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"`
	Revoked bool      `json:"revoked,omitempty"`
}

// Authority issues and checks tokens.
type Authority struct {
	Keys *Keys
	db   *store.DB

	mu    sync.RWMutex
	cache map[string]Token // by secret hash
	names map[string]Token // by token name
}

// NewAuthority returns the authority over db.
func NewAuthority(keys *Keys, db *store.DB) *Authority {
	return &Authority{Keys: keys, db: db, cache: map[string]Token{}, names: map[string]Token{}}
}

// AdminToken is the administrator's token of a home, made on first start and kept in DIR/admin.token, 0600.
func (a *Authority) AdminToken(ctx context.Context, dir, user string) (string, error) {
	secret, err := readOrMake(filepath.Join(dir, "admin.token"), func() (string, error) { return newSecret(), nil })
	if err != nil {
		return "", err
	}
	err = a.put(ctx, Token{Name: "admin", User: user, Role: Admin}, secret, true)
	return secret, err
}

// Create makes a user token and returns its secret.
func (a *Authority) Create(ctx context.Context, t Token) (string, error) {
	if err := berth.CheckName("token", t.Name); err != nil {
		return "", err
	}
	if t.User == "" {
		t.User = t.Name
	}
	switch t.Role {
	case Admin, User, Reader:
	case "":
		t.Role = User
	default:
		return "", berth.Errorf(berth.Invalid, "role %q is not known: use admin, user or reader", t.Role)
	}
	secret := newSecret()
	return secret, a.put(ctx, t, secret, false)
}

func (a *Authority) put(ctx context.Context, t Token, secret string, again bool) error {
	return a.db.Update(ctx, func(tx *store.Tx) error {
		old, err := tx.Get("", kindTokens, t.Name, "")
		switch {
		case err == nil && again && old.Hash == hashOf(secret):
			return nil
		case err == nil && again:
			old.Hash = hashOf(secret)
			return tx.Save(old)
		case err == nil:
			return berth.Errorf(berth.Conflict, "a token named %q exists; revoke it first or choose another name", t.Name)
		case berth.CodeOf(err) != berth.NotFound:
			return err
		}
		body, err := json.Marshal(t)
		if err != nil {
			return err
		}
		return tx.Insert(&store.Doc{Kind: kindTokens, Name: t.Name, Hash: hashOf(secret), CreatedBy: t.User, Body: body})
	})
}

// List is every token, newest first.
func (a *Authority) List(ctx context.Context) ([]Token, error) {
	var out []Token
	err := a.db.View(ctx, func(tx *store.Tx) error {
		docs, err := tx.List(store.Query{Kind: kindTokens})
		for _, d := range docs {
			t, err := decode(d)
			if err != nil {
				return err
			}
			out = append(out, t)
		}
		return err
	})
	return out, err
}

// Revoke ends a token at once.
func (a *Authority) Revoke(ctx context.Context, name string) error {
	if name == "admin" {
		return berth.Errorf(berth.Conflict, "the administrator's token cannot be revoked; remove admin.token from the home and restart to replace it")
	}
	err := a.db.Update(ctx, func(tx *store.Tx) error { return tx.Delete("", kindTokens, name, "") })
	if berth.CodeOf(err) == berth.NotFound {
		return berth.Errorf(berth.NotFound, "there is no token named %q", name)
	}
	a.mu.Lock()
	clear(a.cache)
	clear(a.names)
	a.mu.Unlock()
	return err
}

// Check says who a bearer token belongs to: a user token, a JWT made from one, or a task token.
func (a *Authority) Check(ctx context.Context, bearer string, now time.Time) (Principal, error) {
	switch {
	case bearer == "":
		return Principal{}, berth.Errorf(berth.Unauthenticated, "no token was sent; run `berth azure-env` to see how to reach this server")
	case len(bearer) > 3 && bearer[:3] == taskPrefix:
		id, err := a.Keys.CheckTask(bearer, now)
		return Principal{Task: id, User: "task " + string(id)}, err
	case len(bearer) > len(jwtHeader) && bearer[:len(jwtHeader)] == jwtHeader:
		c, err := a.Keys.parseJWT(bearer, now)
		if err != nil {
			return Principal{}, err
		}
		return a.named(ctx, c.Token, now)
	}
	return a.secret(ctx, bearer, now)
}

func (a *Authority) secret(ctx context.Context, secret string, now time.Time) (Principal, error) {
	h := hashOf(secret)
	a.mu.RLock()
	t, ok := a.cache[h]
	a.mu.RUnlock()
	if !ok {
		err := a.db.View(ctx, func(tx *store.Tx) error {
			docs, err := tx.List(store.Query{Kind: kindTokens, Hash: h, Limit: 1})
			if err != nil {
				return err
			}
			if len(docs) == 0 {
				return berth.Errorf(berth.Unauthenticated, "the token is not known to this server")
			}
			t, err = decode(docs[0])
			return err
		})
		if err != nil {
			return Principal{}, err
		}
		a.mu.Lock()
		a.cache[h] = t
		a.mu.Unlock()
	}
	return t.principal(now)
}

func (a *Authority) named(ctx context.Context, name string, now time.Time) (Principal, error) {
	a.mu.RLock()
	t, ok := a.names[name]
	a.mu.RUnlock()
	if !ok {
		err := a.db.View(ctx, func(tx *store.Tx) error {
			d, err := tx.Get("", kindTokens, name, "")
			if berth.CodeOf(err) == berth.NotFound {
				return berth.Errorf(berth.Unauthenticated, "the token was revoked")
			}
			if err != nil {
				return err
			}
			t, err = decode(d)
			return err
		})
		if err != nil {
			return Principal{}, err
		}
		a.mu.Lock()
		a.names[name] = t
		a.mu.Unlock()
	}
	return t.principal(now)
}

func (t Token) principal(now time.Time) (Principal, error) {
	if !t.Expires.IsZero() && now.After(t.Expires) {
		return Principal{}, berth.Errorf(berth.Unauthenticated, "the token %q expired on %s", t.Name, t.Expires.Format(time.DateTime))
	}
	return Principal{User: t.User, Role: t.Role, Token: t.Name}, nil
}

// AccessToken makes the JWT an Azure client asks for, good for life at most.
func (a *Authority) AccessToken(p Principal, audience string, life time.Duration, now time.Time) (string, time.Time) {
	exp := now.Add(life)
	return a.Keys.jwt(claims{
		Audience: audience, Issuer: "berth", Tenant: TenantID, Object: objectID(p.User), Subject: p.User, Name: p.User,
		Token: p.Token, IssuedAt: now.Unix(), Expires: exp.Unix(),
	}), exp
}

// objectID is a stable GUID-shaped id of a user.
func objectID(user string) string {
	h := hashOf("oid " + user)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:32]
}

func decode(d *store.Doc) (Token, error) {
	var t Token
	if err := json.Unmarshal(d.Body, &t); err != nil {
		return t, err
	}
	t.Created = d.Created
	return t, nil
}

func newSecret() string {
	var b [24]byte
	rand.Read(b[:]) //nolint:errcheck // crypto/rand.Read never fails
	return "berth_" + base64.RawURLEncoding.EncodeToString(b[:])
}

func hashOf(secret string) string {
	h := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(h[:])
}
