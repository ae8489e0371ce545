package front

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// A Grant is a right to do something with some blobs for some time.
type Grant struct {
	Container string // "*" for all
	// Prefix is a folder, or one blob: a/b grants a/b and a/b/c, not a/bc. "" grants the whole
	// container.
	Prefix string
	// One makes Prefix the name of the only blob that is granted: nothing is below it.
	One bool
	// Perm has letters of "rwldbo": read, write, list, delete, write blocks that somebody else
	// commits, and as an owner, who also writes to what belongs to others. Who may write may write
	// blocks.
	Perm   string
	Expiry time.Time
	// User is whose writes those with the grant are, and Holder what has to be good still when it
	// is used. Of is what has to be there still, for a grant of one blob. None has a zero byte.
	User, Holder, Of string
}

const perms = "rwldbo"

// oneBlob is the letter after the permissions of a grant of one blob. The signature covers it.
const oneBlob = "1"

// Allows says whether the grant, as long as it lasts, covers perm on a blob; for listing, name is
// the prefix asked for. An empty perm asks for the scope only.
func (g Grant) Allows(container, name, perm string) error {
	if g.Container != "*" && g.Container != container || !g.covers(name) {
		return coded(berth.Denied, "AuthorizationFailure", "the signature is for other blobs")
	}
	for _, p := range perm {
		if !strings.ContainsRune(g.Perm, p) && (p != 'b' || !strings.Contains(g.Perm, "w")) {
			return coded(berth.Denied, "AuthorizationPermissionMismatch", "the signature does not permit this operation")
		}
	}
	return nil
}

// covers reports whether a name lies in the grant's folder, or is that of its only blob.
func (g Grant) covers(name string) bool {
	if g.One {
		return name == g.Prefix
	}
	prefix := strings.TrimRight(g.Prefix, "/")
	return prefix == "" || name == prefix || strings.HasPrefix(name, prefix+"/")
}

// A Signer writes grants as query text and reads them back. The text looks like a shared access
// signature, and is opaque to clients. It is safe for concurrent use.
type Signer struct{ key []byte }

// NewSigner makes a Signer; signatures of the same key are good with every one.
func NewSigner(key []byte) *Signer { return &Signer{slices.Clone(key)} }

// Sign is the query text of a grant. All its fields have names that Azure clients know: they drop
// others when they take an address apart, empty ones too.
func (s *Signer) Sign(g Grant) string {
	resource := "c"
	switch {
	case g.Container == "*":
		resource = "s"
	case g.One:
		resource = "b"
	}
	perm := strings.Map(func(r rune) rune {
		if strings.ContainsRune(g.Perm, r) {
			return r
		}
		return -1
	}, perms)
	if g.One {
		perm += oneBlob
	}
	expiry := g.Expiry.UTC().Format(time.RFC3339)
	whose := g.User + "\x00" + g.Holder + "\x00"
	if g.One {
		whose += g.Of + "\x00"
	}
	scope := base64.RawURLEncoding.EncodeToString([]byte(whose + g.Container + "/" + g.Prefix))
	return "sv=" + version + "&sr=" + resource + "&se=" + url.QueryEscape(expiry) + "&sp=" + perm + "&si=" + scope +
		"&sig=" + s.mac(expiry, perm, scope)
}

// Check says whether the query holds a grant of perm on a blob: Unauthenticated when the grant is
// forged or over, Denied when it is for something else.
func (s *Signer) Check(q url.Values, container, name, perm string, now time.Time) error {
	g, err := s.Verify(q, now)
	if err != nil {
		return err
	}
	return g.Allows(container, name, perm)
}

// Verify reads the grant in a query.
func (s *Signer) Verify(q url.Values, now time.Time) (Grant, error) {
	bad := func(msg string) (Grant, error) {
		return Grant{}, coded(berth.Unauthenticated, "AuthenticationFailed", msg)
	}
	expiry, perm, scope := q.Get("se"), q.Get("sp"), q.Get("si")
	if !hmac.Equal([]byte(q.Get("sig")), []byte(s.mac(expiry, perm, scope))) {
		return bad("the signature is not valid")
	}
	at, err := time.Parse(time.RFC3339, expiry)
	where, err2 := base64.RawURLEncoding.DecodeString(scope)
	perm, one := strings.CutSuffix(perm, oneBlob)
	user, holder, of, place := "", "", "", string(where)
	if f := strings.SplitN(place, "\x00", 3); len(f) == 3 { // older ones name a place only
		user, holder, place = f[0], f[1], f[2]
	}
	if one {
		of, place, _ = strings.Cut(place, "\x00")
	}
	container, prefix, ok := strings.Cut(place, "/")
	if err != nil || err2 != nil || !ok {
		return bad("the signature is not valid")
	}
	if !now.Before(at) {
		return bad("the signature expired at " + expiry + "; request a new one from the workspace")
	}
	return Grant{Container: container, Prefix: prefix, One: one, Perm: perm, Expiry: at, User: user, Holder: holder, Of: of}, nil
}

// mac signs the fields. None of those Sign writes holds a line break, so they cannot be split
// otherwise.
func (s *Signer) mac(expiry, perm, scope string) string {
	m := hmac.New(sha256.New, s.key)
	m.Write([]byte("berth blob grant 1\n" + expiry + "\n" + perm + "\n" + scope))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}
