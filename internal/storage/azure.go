package storage

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// azureVersion is that of the signatures.
const azureVersion = "2022-11-02"

// azureTime is how Azure writes times.
const azureTime = "2006-01-02T15:04:05Z"

// byAccountKey signs with the key of a storage account: each signature opens one blob or file, or
// lists one container; of a share, it lists any folder or makes any new one.
func (k *Key) byAccountKey(key string) error {
	secret, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(secret) == 0 {
		return berth.Errorf(berth.Invalid, "the key of storage account %s is not base64, so it cannot sign requests; store the key exactly as Azure shows it", k.store.Account)
	}
	s := k.store
	k.sign = func(r request, _, until time.Time) (string, error) {
		end, protocol := until.UTC().Format(azureTime), s.protocol()
		kind, resource := s.resource(r)
		// In the order Azure has it: no beginning, no stored policy, any address; of blobs also
		// what it is, no snapshot and no encryption scope; no headers of answers.
		lines := []string{r.perm, "", end, resource, "", "", protocol, azureVersion}
		if s.Type != AzureFile {
			lines = append(lines, kind, "", "")
		}
		lines = append(lines, "", "", "", "", "")
		return s.address(r, canonical(url.Values{
			"sv": {azureVersion}, "sr": {kind}, "sp": {r.perm}, "se": {end}, "spr": {protocol}, "sig": {azureMAC(secret, lines)},
		})), nil
	}
	return nil
}

// resource is what a signature of Azure's is for: its kind and its name.
func (s *Store) resource(r request) (kind, name string) {
	whole, single, service := "c", "b", "blob"
	if s.Type == AzureFile {
		whole, single, service = "s", "f", "file"
	}
	name = "/" + service + "/" + s.Account + "/" + s.Container
	if r.path == "" || r.whole {
		return whole, name
	}
	return single, name + "/" + r.path
}

// protocol is over which protocols a signature may be used.
func (s *Store) protocol() string {
	if s.base.Scheme == "http" {
		return "https,http"
	}
	return s.base.Scheme
}

func azureMAC(secret []byte, lines []string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(strings.Join(lines, "\n")))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// AccountSAS is a signature that opens the blobs and files of a storage account in Azure until a
// time, over protocol: https, or https,http.
func AccountSAS(account, key, protocol string, until time.Time) (string, error) {
	const perms, services, kinds = "rwdlcu", "bf", "co"
	secret, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		return "", berth.Errorf(berth.Invalid, "the key of storage account %s is not base64, so it cannot sign requests; store the key exactly as Azure shows it", account)
	}
	end := until.UTC().Format(azureTime)
	// In the order Azure has it: no beginning, any address, no encryption scope.
	lines := []string{account, perms, services, kinds, "", end, "", protocol, azureVersion, "", ""}
	q := url.Values{
		"sv": {azureVersion}, "ss": {services}, "srt": {kinds}, "sp": {perms}, "se": {end}, "spr": {protocol}, "sig": {azureMAC(secret, lines)},
	}
	return "?" + q.Encode(), nil
}
