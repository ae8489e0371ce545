package storage

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// v4 is how Amazon signs addresses, and Google in the same manner with other words.
type v4 struct {
	algorithm string // AWS4-HMAC-SHA256
	prefix    string // of the parameters: X-Amz-
	id        string // of the key
	scope     string // after the date: REGION/s3/aws4_request
	session   string // a session's token, may be empty
	sum       func(date, text string) (string, error)
}

func (v v4) signer(s *Store) func(r request, now, until time.Time) (string, error) {
	return func(r request, now, until time.Time) (string, error) {
		now = now.UTC()
		stamp, date := now.Format("20060102T150405Z"), now.Format("20060102")
		q := url.Values{}
		for name, x := range r.query {
			q[name] = x
		}
		q.Set(v.prefix+"Algorithm", v.algorithm)
		q.Set(v.prefix+"Credential", v.id+"/"+date+"/"+v.scope)
		q.Set(v.prefix+"Date", stamp)
		q.Set(v.prefix+"Expires", strconv.Itoa(int(until.Sub(now)/time.Second)))
		q.Set(v.prefix+"SignedHeaders", "host")
		if v.session != "" {
			q.Set(v.prefix+"Security-Token", v.session)
		}
		r.query = q
		ask := strings.Join([]string{r.method, escape(s.path(r), true), canonical(q), "host:" + s.base.Host + "\n", "host", "UNSIGNED-PAYLOAD"}, "\n")
		hash := sha256.Sum256([]byte(ask))
		sum, err := v.sum(date, strings.Join([]string{v.algorithm, stamp, date + "/" + v.scope, hex.EncodeToString(hash[:])}, "\n"))
		if err != nil {
			return "", err
		}
		return s.address(r, v.prefix+"Signature="+sum), nil
	}
}

// awsSigner signs with an access key.
func awsSigner(s *Store, id, secret, session string) func(r request, now, until time.Time) (string, error) {
	v := v4{algorithm: "AWS4-HMAC-SHA256", prefix: "X-Amz-", id: id, scope: s.Region + "/s3/aws4_request", session: session}
	v.sum = chain("AWS4"+secret, s.Region, "s3", "aws4_request")
	return v.signer(s)
}

// googleHMAC signs with an HMAC key of a service account.
func googleHMAC(s *Store, id, secret string) func(r request, now, until time.Time) (string, error) {
	v := v4{algorithm: "GOOG4-HMAC-SHA256", prefix: "X-Goog-", id: id, scope: "auto/storage/goog4_request"}
	v.sum = chain("GOOG4"+secret, "auto", "storage", "goog4_request")
	return v.signer(s)
}

// chain derives the key of a day from a secret and signs with it.
func chain(secret string, parts ...string) func(date, text string) (string, error) {
	mac := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	return func(date, text string) (string, error) {
		key := mac([]byte(secret), date)
		for _, p := range parts {
			key = mac(key, p)
		}
		return hex.EncodeToString(mac(key, text)), nil
	}
}

// maxKey is the largest private key in bytes; Google's have 1,200. What a signature costs grows
// with the cube of it.
const maxKey = 5 << 10

// byServiceAccount signs with the private key of a service account, as Google hands it out in a
// file.
func (k *Key) byServiceAccount(file string) error {
	var account struct {
		Email string `json:"client_email"`
		Key   string `json:"private_key"`
	}
	bad := berth.Errorf(berth.Invalid, "the datastore's service_account_key must be the contents of a Google key file, with client_email and private_key")
	if json.Unmarshal([]byte(file), &account) != nil || account.Email == "" {
		return bad
	}
	block, _ := pem.Decode([]byte(account.Key))
	if block == nil || len(block.Bytes) > maxKey {
		return bad
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(*rsa.PrivateKey)
	if err != nil || !ok {
		return bad
	}
	v := v4{algorithm: "GOOG4-RSA-SHA256", prefix: "X-Goog-", id: account.Email, scope: "auto/storage/goog4_request"}
	v.sum = func(_, text string) (string, error) {
		hash := sha256.Sum256([]byte(text))
		sum, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, hash[:])
		return hex.EncodeToString(sum), err
	}
	k.sign = v.signer(k.store)
	return nil
}
