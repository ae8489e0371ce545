package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// accountSAS is a signature that opens the blobs and files of a storage account in Azure until a time. Its key makes it, and does not leave
// the server.
func accountSAS(account, key string, until time.Time) (string, error) {
	const perms, services, kinds, protocol, version = "rwdlcu", "bf", "co", "https", "2022-11-02"
	secret, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		return "", berth.Errorf(berth.Invalid, "the key of storage account %s is not base64, so nothing can be signed with it; store the key as Azure shows it", account)
	}
	end := until.UTC().Format("2006-01-02T15:04:05Z")
	// In the order Azure has it: no beginning, any address, no encryption scope.
	lines := []string{account, perms, services, kinds, "", end, "", protocol, version, "", ""}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(strings.Join(lines, "\n")))
	q := url.Values{
		"sv": {version}, "ss": {services}, "srt": {kinds}, "sp": {perms}, "se": {end}, "spr": {protocol}, "sig": {base64.StdEncoding.EncodeToString(mac.Sum(nil))},
	}
	return "?" + q.Encode(), nil
}
