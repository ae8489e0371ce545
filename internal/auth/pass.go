package auth

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/berthml/berth/internal/store"
)

// Session is an access token for somebody who was recognised without one, as over the local socket.
func (a *Authority) Session(ctx context.Context, p Principal, life time.Duration, now time.Time) (string, error) {
	err := a.db.View(ctx, func(tx *store.Tx) error {
		d, err := tx.Get("", kindTokens, p.Token, "")
		if err == nil {
			p.mark = markOf(d.Hash)
		}
		return err
	})
	token, _ := a.AccessToken(p, sessionAudience, life, now)
	return token, err
}

// Pass wraps a text so that only this server can read it, for one purpose and until a time. It is
// what a browser holds instead of a token, and what opens an address that passes requests on.
func (k *Keys) Pass(text, purpose string, expiry time.Time) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(expiry.Unix()))
	sealed := k.Seal(append(b, text...), "pass "+purpose)
	raw, err := base64.RawStdEncoding.DecodeString(sealed)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// OpenPass is the inverse of Pass: the text, "" when the pass is for something else, too old
// or not ours.
func (k *Keys) OpenPass(pass, purpose string, now time.Time) string {
	raw, err := base64.RawURLEncoding.DecodeString(pass)
	if err != nil || base64.RawURLEncoding.EncodeToString(raw) != pass { // one spelling: a ticket is good once
		return ""
	}
	b, err := k.Open(base64.RawStdEncoding.EncodeToString(raw), "pass "+purpose)
	if err != nil || len(b) < 8 || now.Unix() > int64(binary.BigEndian.Uint64(b)) {
		return ""
	}
	return string(b[8:])
}
