package auth

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// trackHeader is how tokens for tracking begin. They have the form of a JWT, since Azure's plugin
// for MLflow reads when its token expires, but no other header has this type: Check does not know
// them, and they open the tracking server and nothing else.
var trackHeader = b64.EncodeToString([]byte(`{"alg":"HS256","typ":"berth-track"}`)) + "."

// trackClaims are what a token for tracking says.
type trackClaims struct {
	Task    berth.TaskID `json:"sub"`
	Expires int64        `json:"exp"`
}

// TrackToken makes the token with which the command of a task logs to its run. It stands in the
// command's environment, so that it is another than the runner's, which may say how the task went.
func (k *Keys) TrackToken(id berth.TaskID, expiry time.Time) string {
	body, err := json.Marshal(trackClaims{id, expiry.Unix()})
	if err != nil {
		panic(err) // a struct of a string and a number
	}
	text := trackHeader + b64.EncodeToString(body)
	return text + "." + b64.EncodeToString(k.mac("track "+text))
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
	if !strings.HasPrefix(token, trackHeader) {
		return "", false, nil
	}
	bad := berth.Errorf(berth.Unauthenticated, "the tracking token is not valid")
	i := strings.LastIndexByte(token, '.')
	text, sig := token[:i], token[i+1:]
	if !signed(sig, k.mac("track "+text)) {
		return "", true, bad
	}
	body, err := b64.DecodeString(strings.TrimPrefix(text, trackHeader))
	if err != nil {
		return "", true, bad
	}
	var c trackClaims
	if err := json.Unmarshal(body, &c); err != nil {
		return "", true, bad
	}
	if now.Unix() >= c.Expires {
		return "", true, berth.Errorf(berth.Unauthenticated, "the tracking token has expired")
	}
	return c.Task, true, nil
}
