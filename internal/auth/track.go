package auth

import (
	"context"
	"crypto/hmac"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// trackPrefix is how tokens for tracking begin. Check does not know them: they open the tracking
// server and nothing else.
const trackPrefix = "bm_"

// TrackToken makes the token with which the command of a task logs to its run. It stands in the
// command's environment, so that it is another than the runner's, which may say how the task went.
func (k *Keys) TrackToken(id berth.TaskID, expiry time.Time) string {
	text := b64.EncodeToString([]byte(id)) + "." + strconv.FormatInt(expiry.Unix(), 36)
	return trackPrefix + text + "." + b64.EncodeToString(k.mac("track " + text)[:18])
}

// CheckTrack is the task whose run a token opens; ok is false for a token of another kind. userOf
// is the user of a task that has not ended: the token is good for as long as they are somebody.
func (a *Authority) CheckTrack(ctx context.Context, token string, now time.Time, userOf func(berth.TaskID) (string, error)) (ok bool, err error) {
	id, ok, err := a.Keys.CheckTrack(token, now)
	if !ok || err != nil {
		return ok, err
	}
	user, err := userOf(id)
	if err != nil {
		return true, err
	}
	if err := a.CheckHolder(ctx, UserHolder(user), now); err != nil {
		return true, err
	}
	Known(ctx, user)
	return true, nil
}

// CheckTrack is the task that a token names; ok is false for a token of another kind.
func (k *Keys) CheckTrack(token string, now time.Time) (id berth.TaskID, ok bool, err error) {
	text, ok := strings.CutPrefix(token, trackPrefix)
	if !ok {
		return "", false, nil
	}
	bad := berth.Errorf(berth.Unauthenticated, "the tracking token is not valid")
	i := strings.LastIndexByte(text, '.')
	if i < 0 {
		return "", true, bad
	}
	sig, err := b64.DecodeString(text[i+1:])
	if err != nil || !hmac.Equal(sig, k.mac("track " + text[:i])[:18]) {
		return "", true, bad
	}
	id64, exp, _ := strings.Cut(text[:i], ".")
	raw, err := b64.DecodeString(id64)
	sec, err2 := strconv.ParseInt(exp, 36, 64)
	if err != nil || err2 != nil {
		return "", true, bad
	}
	if now.Unix() >= sec {
		return "", true, berth.Errorf(berth.Unauthenticated, "the tracking token has expired")
	}
	return berth.TaskID(raw), true, nil
}
