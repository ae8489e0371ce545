package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// TenantID is the tenant every token names; Azure clients put it into Studio links.
const TenantID = "00000000-0000-0000-0000-00000000be27"

// claims are what our JWTs say. The Azure clients read aud, tid, oid and exp.
type claims struct {
	Audience string `json:"aud"`
	Issuer   string `json:"iss"`
	Tenant   string `json:"tid"`
	Object   string `json:"oid"`
	Subject  string `json:"sub"`
	Name     string `json:"unique_name"`
	Token    string `json:"berth_token"`
	Mark     string `json:"berth_mark"`
	IssuedAt int64  `json:"iat"`
	Expires  int64  `json:"exp"`
}

var b64 = base64.RawURLEncoding

var jwtHeader = b64.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`))

func (k *Keys) mac(text string) []byte {
	m := hmac.New(sha256.New, k.Sign)
	m.Write([]byte(text))
	return m.Sum(nil)
}

// jwt signs c.
func (k *Keys) jwt(c claims) string {
	body, err := json.Marshal(c)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	text := jwtHeader + "." + b64.EncodeToString(body)
	return text + "." + b64.EncodeToString(k.mac(text))
}

// signed says whether sig is the one of text that we would have written, to the character: base64
// has other ways to spell the same bytes.
func signed(sig string, mac []byte) bool {
	return hmac.Equal([]byte(sig), []byte(b64.EncodeToString(mac)))
}

// parseJWT checks signature and expiry. There is one header, and with it one algorithm.
func (k *Keys) parseJWT(token string, now time.Time) (claims, error) {
	bad := berth.Errorf(berth.Unauthenticated, "the token is not valid")
	i := strings.LastIndexByte(token, '.')
	head, body, ok := strings.Cut(token[:max(i, 0)], ".")
	if !ok || head != jwtHeader {
		return claims{}, bad
	}
	if !signed(token[i+1:], k.mac(token[:i])) {
		return claims{}, bad
	}
	raw, err := b64.DecodeString(body)
	var c claims
	if err != nil || json.Unmarshal(raw, &c) != nil {
		return claims{}, bad
	}
	if now.Unix() >= c.Expires {
		return claims{}, berth.Errorf(berth.Unauthenticated, "the token has expired")
	}
	return c, nil
}

const taskPrefix = "bt_"

// TaskToken makes a token that opens one task only, without an entry in the database.
func (k *Keys) TaskToken(id berth.TaskID, expiry time.Time) string {
	text := b64.EncodeToString([]byte(id)) + "." + strconv.FormatInt(expiry.Unix(), 36)
	return taskPrefix + text + "." + b64.EncodeToString(k.mac("task " + text)[:18])
}

// NodeToken is a token that lets one node of a cluster connect, without an entry in the database.
func (k *Keys) NodeToken(workspace, compute, node string) string {
	return nodePrefix + b64.EncodeToString(k.mac("node " + workspace + " " + strings.ToLower(compute) + " " + node)[:24])
}

const nodePrefix = "bn_"

// CheckNode says whether a token is that of a node.
func (k *Keys) CheckNode(token, workspace, compute, node string) bool {
	sent, ok := strings.CutPrefix(token, nodePrefix)
	mac := k.mac("node " + workspace + " " + strings.ToLower(compute) + " " + node)[:24]
	return ok && signed(sent, mac)
}

// GroupSecret is a secret that the tasks of one attempt at a job share.
func (k *Keys) GroupSecret(id string) string { return b64.EncodeToString(k.mac("group " + id)[:24]) }

// CheckTask is the task a token opens.
func (k *Keys) CheckTask(token string, now time.Time) (berth.TaskID, error) {
	id, _, err := k.task(token, now)
	return id, err
}

func (k *Keys) task(token string, now time.Time) (berth.TaskID, time.Time, error) {
	none := time.Time{}
	bad := berth.Errorf(berth.Unauthenticated, "the task token is not valid")
	text, ok := strings.CutPrefix(token, taskPrefix)
	i := strings.LastIndexByte(text, '.')
	if !ok || i < 0 {
		return "", none, bad
	}
	if !signed(text[i+1:], k.mac("task " + text[:i])[:18]) {
		return "", none, bad
	}
	id64, exp, _ := strings.Cut(text[:i], ".")
	id, err := b64.DecodeString(id64)
	sec, err2 := strconv.ParseInt(exp, 36, 64)
	if err != nil || err2 != nil {
		return "", none, bad
	}
	if now.Unix() >= sec {
		return "", none, berth.Errorf(berth.Unauthenticated, "the task token has expired")
	}
	return berth.TaskID(id), time.Unix(sec, 0), nil
}
