package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// kindTokens is the document kind of user tokens. The secret itself is never stored, only its hash.
const kindTokens = "tokens"

// maxUser bounds a user's name, which goes into signatures and into logs.
const maxUser = 200

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
	// Instances is how tokens of compute instances are checked; without it there are none.
	Instances InstanceCheck
	db        *store.DB

	audiences map[string]bool // of access tokens that are for this server

	mu      sync.RWMutex
	cache   map[string]cached // by secret hash, or by name and mark
	revoked chan struct{}     // closed at the next revocation
}

// cached is a token as it was read a moment ago. Another server of the same database may have
// revoked it since, so it is read again soon.
type cached struct {
	Token
	mark string
	read time.Time
}

const cacheLife = 5 * time.Second

// sessionAudience is that of access tokens the server makes for itself.
const sessionAudience = "berth"

// usualAudiences are those that Azure's clients ask tokens of this server for whatever its address
// is. A client is given a token for any audience it names, and may give it to whom that is: then it
// opens nothing here.
var usualAudiences = []string{
	sessionAudience, "https://management.azure.com", "https://management.core.windows.net", "https://ml.azure.com", "https://ml.azure.test",
}

// storageAudience is that of access tokens for all storage: clients show them to the host of
// whatever address of files they are given, so they open this server's blobs and nothing else.
const storageAudience = "https://storage.azure.com"

// NewAuthority returns the authority over db. Access tokens for the audiences given are for this
// server, besides those for the usual ones.
func NewAuthority(keys *Keys, db *store.DB, audiences ...string) *Authority {
	a := &Authority{Keys: keys, db: db, audiences: map[string]bool{}, cache: map[string]cached{}, revoked: make(chan struct{})}
	for _, list := range [][]string{usualAudiences, audiences} {
		for _, aud := range list {
			a.audiences[bareAudience(aud)] = true
		}
	}
	return a
}

func bareAudience(aud string) string { return strings.ToLower(strings.TrimRight(aud, "/")) }

// AdminToken is the administrator's token of a home, made on first start and kept in
// DIR/admin.token, 0600.
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
	if len(t.User) > maxUser || strings.ContainsFunc(t.User, func(r rune) bool { return r < ' ' || r == 0x7f || r == utf8.RuneError }) {
		return "", berth.Errorf(berth.Invalid, "user %.50q is not allowed; use at most %d bytes on one line", t.User, maxUser)
	}
	switch t.Role {
	case Admin, User, Reader:
	case "":
		t.Role = User
	default:
		return "", berth.Errorf(berth.Invalid, "%q is not a role; use admin, user or reader", t.Role)
	}
	secret := newSecret()
	return secret, a.put(ctx, t, secret, false)
}

func (a *Authority) put(ctx context.Context, t Token, secret string, again bool) error {
	return a.db.Update(ctx, func(tx *store.Tx) error {
		old, err := tx.Get("", kindTokens, t.Name, "")
		switch {
		case err == nil && again:
			was, err := decode(old)
			if err != nil || old.Hash == hashOf(secret) && was.User == t.User {
				return err
			}
			old.Hash, old.CreatedBy = hashOf(secret), t.User
			if old.Body, err = json.Marshal(t); err != nil {
				return err
			}
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
		docs, err := tx.All(store.Query{Kind: kindTokens})
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
	if strings.EqualFold(name, "admin") { // the name of a document
		return berth.Errorf(berth.Conflict, "the administrator's token cannot be revoked; remove admin.token from the home and restart to replace it")
	}
	err := a.db.Update(ctx, func(tx *store.Tx) error { return tx.Delete("", kindTokens, name, "") })
	if berth.CodeOf(err) == berth.NotFound {
		return berth.Errorf(berth.NotFound, "there is no token named %q", name)
	}
	a.mu.Lock()
	clear(a.cache)
	close(a.revoked)
	a.revoked = make(chan struct{})
	a.mu.Unlock()
	return err
}

// Hold returns a context that ends, with the reason as its cause, when the credentials in bearer
// are no longer good: at once when they expire or are revoked here, within half a minute when they
// are revoked by another server. It is for answers that go on. The caller calls cancel.
func (a *Authority) Hold(ctx context.Context, bearer string, p Principal) (_ context.Context, cancel func()) {
	ctx, end := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			a.mu.RLock()
			revoked := a.revoked
			a.mu.RUnlock()
			if _, err := a.Check(ctx, bearer, time.Now()); err != nil && berth.CodeOf(err) == berth.Unauthenticated {
				end(err)
				return
			}
			wait := 30 * time.Second
			if !p.Expires.IsZero() {
				wait = min(wait, max(0, time.Until(p.Expires))+time.Millisecond)
			}
			t := time.NewTimer(wait)
			select {
			case <-ctx.Done():
			case <-revoked:
			case <-t.C:
			}
			t.Stop()
			if ctx.Err() != nil {
				return
			}
		}
	})
	return ctx, func() { end(nil); wg.Wait() }
}

// Check says who a bearer token belongs to: a user token, a JWT made from one, or a task token.
func (a *Authority) Check(ctx context.Context, bearer string, now time.Time) (Principal, error) {
	return a.checkFor(ctx, bearer, now, "")
}

// CheckStorage is Check at the blob endpoint, which access tokens for Azure's storage open too.
func (a *Authority) CheckStorage(ctx context.Context, bearer string, now time.Time) (Principal, error) {
	return a.checkFor(ctx, bearer, now, storageAudience)
}

func (a *Authority) checkFor(ctx context.Context, bearer string, now time.Time, audience string) (Principal, error) {
	p, err := a.check(ctx, bearer, now, audience)
	if err == nil {
		Known(ctx, p.User)
	}
	return p, err
}

// check is Check, of access tokens for one more audience.
func (a *Authority) check(ctx context.Context, bearer string, now time.Time, audience string) (Principal, error) {
	switch {
	case bearer == "":
		return Principal{}, berth.Errorf(berth.Unauthenticated, "no token was sent; run `berth azure-env` to see how to reach this server")
	case len(bearer) > 3 && bearer[:3] == taskPrefix:
		id, exp, err := a.Keys.task(bearer, now)
		return Principal{Task: id, User: "task " + string(id), Expires: exp}, err
	case OfInstance(bearer):
		return a.instanceToken(ctx, bearer, now)
	case len(bearer) > len(jwtHeader) && bearer[:len(jwtHeader)] == jwtHeader:
		c, err := a.Keys.parseJWT(bearer, now)
		if err != nil {
			return Principal{}, err
		}
		if aud := bareAudience(c.Audience); !a.audiences[aud] && (audience == "" || aud != audience) {
			return Principal{}, berth.Errorf(berth.Unauthenticated, "the token is for %.200q and not for this server; ask for one whose resource is the server's address", c.Audience)
		}
		p, err := a.derived(ctx, c, now)
		p.Derived = true
		if exp := time.Unix(c.Expires, 0); p.Expires.IsZero() || exp.Before(p.Expires) {
			p.Expires = exp
		}
		return p, err
	}
	return a.secret(ctx, bearer, now)
}

func (a *Authority) secret(ctx context.Context, secret string, now time.Time) (Principal, error) {
	h := hashOf(secret)
	return a.lookUp(ctx, h, now, func(tx *store.Tx) (*store.Doc, error) {
		docs, err := tx.List(store.Query{Kind: kindTokens, Hash: h, Limit: 1})
		if err == nil && len(docs) == 0 {
			err = berth.Errorf(berth.Unauthenticated, "the server does not know this token; ask for one created with `berth token create NAME`")
		}
		if err != nil {
			return nil, err
		}
		return docs[0], nil
	})
}

// derived is the principal of an access token.
func (a *Authority) derived(ctx context.Context, c claims, now time.Time) (Principal, error) {
	if text, ok := strings.CutPrefix(c.Token, instanceName); ok {
		return a.instance(ctx, text, now, true)
	}
	return a.named(ctx, c.Token, c.Mark, now)
}

// named is the principal of the token with this name, if it is still the one with this mark.
func (a *Authority) named(ctx context.Context, name, mark string, now time.Time) (Principal, error) {
	return a.lookUp(ctx, name+" "+mark, now, func(tx *store.Tx) (*store.Doc, error) {
		d, err := tx.Get("", kindTokens, name, "")
		if berth.CodeOf(err) == berth.NotFound || err == nil && markOf(d.Hash) != mark {
			return nil, berth.Errorf(berth.Unauthenticated, "the token was revoked")
		}
		return d, err
	})
}

// lookUp is the principal of a token that was read a moment ago under key, or that read finds.
func (a *Authority) lookUp(ctx context.Context, key string, now time.Time, read func(*store.Tx) (*store.Doc, error)) (Principal, error) {
	a.mu.RLock()
	t, ok := a.cache[key]
	revoked := a.revoked
	a.mu.RUnlock()
	if ok && !now.Before(t.read) && now.Sub(t.read) < cacheLife {
		return t.principal(now)
	}
	err := a.db.View(ctx, func(tx *store.Tx) error {
		d, err := read(tx)
		if err != nil {
			return err
		}
		t.Token, err = decode(d)
		t.mark, t.read = markOf(d.Hash), now
		return err
	})
	if err != nil {
		return Principal{}, err
	}
	a.mu.Lock()
	if revoked == a.revoked { // else what was read may be what was revoked
		a.cache[key] = t
	}
	a.mu.Unlock()
	return t.principal(now)
}

func (t cached) principal(now time.Time) (Principal, error) {
	if !t.Expires.IsZero() && !now.Before(t.Expires) {
		return Principal{}, berth.Errorf(berth.Unauthenticated, "the token %q expired on %s", t.Name, t.Expires.Format(time.DateTime))
	}
	return Principal{User: t.User, Role: t.Role, Token: t.Name, Expires: t.Expires, mark: t.mark}, nil
}

// AccessToken makes the JWT an Azure client asks for, good for life at most.
func (a *Authority) AccessToken(p Principal, audience string, life time.Duration, now time.Time) (string, time.Time) {
	exp := now.Add(life)
	return a.Keys.jwt(claims{
		Audience: audience, Issuer: "berth", Tenant: TenantID, Object: objectID(p.User), Subject: p.User, Name: p.User,
		Token: p.Token, Mark: p.mark, IssuedAt: now.Unix(), Expires: exp.Unix(),
	}), exp
}

// objectID is a stable GUID-shaped id of a user.
func objectID(user string) string {
	h := hashOf("oid " + user)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:32]
}

// markOf tells the secrets of one name apart without telling them.
func markOf(hash string) string { return hash[:min(len(hash), 16)] }

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
	rand.Read(b[:]) // crypto/rand.Read never fails
	return "berth_" + base64.RawURLEncoding.EncodeToString(b[:])
}

func hashOf(secret string) string {
	h := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(h[:])
}
