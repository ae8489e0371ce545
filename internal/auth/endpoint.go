package auth

import (
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
)

const endpointPrefix = "be_"

// EndpointToken makes a token that calls one online endpoint, without an entry in the database.
func (k *Keys) EndpointToken(endpoint string, expiry time.Time) string {
	text := strconv.FormatInt(expiry.Unix(), 36)
	return endpointPrefix + text + "." + b64.EncodeToString(k.mac("endpoint " + text + " " + endpoint)[:24])
}

// CheckEndpoint says whether a token calls an endpoint.
func (k *Keys) CheckEndpoint(token, endpoint string, now time.Time) error {
	bad := berth.Errorf(berth.Unauthenticated, "the token does not open this endpoint, or has expired")
	text, ok := strings.CutPrefix(token, endpointPrefix)
	text, sig, found := strings.Cut(text, ".")
	if !ok || !found || !signed(sig, k.mac("endpoint " + text + " " + endpoint)[:24]) {
		return bad
	}
	if at, err := strconv.ParseInt(text, 36, 64); err != nil || !now.Before(time.Unix(at, 0)) {
		return bad
	}
	return nil
}

// ReplicaSecret is what a replica of an online deployment asks of everybody who calls it; job names
// the replica.
func (k *Keys) ReplicaSecret(job string) string {
	return b64.EncodeToString(k.mac("replica " + job)[:24])
}

// ServiceSecret is what a service of a job asks of everybody who calls it; path is its
// berth.ServicePath.
func (k *Keys) ServiceSecret(path string) string {
	return b64.EncodeToString(k.mac("service " + path)[:24])
}
