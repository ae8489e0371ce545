package storage

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// Principal is an application of Microsoft's identity service that may open a storage account. It
// signs nothing itself: with a token of the service, the account gives out a key that does for some
// hours (package entra).
type Principal struct {
	Authority    string // of the identity service: https://HOST
	Tenant       string
	Client       string
	Secret       string // or else
	Certificate  string // PEM, with its private key
	Thumbprint   string // of the certificate, in hex
	Resource     string // what the token is for
	Account, URL string // the storage account, and the address of its blob service
}

// UserKey is a user delegation key, as Azure gives it out.
type UserKey struct {
	ObjectID string `xml:"SignedOid"`
	TenantID string `xml:"SignedTid"`
	Start    string `xml:"SignedStart"`
	Expiry   string `xml:"SignedExpiry"`
	Service  string `xml:"SignedService"`
	Version  string `xml:"SignedVersion"`
	Value    string `xml:"Value"`
}

var identifier = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9.-]{0,252}$`) })

// byPrincipal reads the credentials of a service principal. The key signs once it has a user
// delegation key.
func (k *Key) byPrincipal(credentials, secrets map[string]any) error {
	p := &Principal{
		Authority: strings.TrimRight(text(credentials, "authorityUrl"), "/"), Tenant: text(credentials, "tenantId"), Client: text(credentials, "clientId"),
		Secret: text(secrets, "clientSecret"), Certificate: text(secrets, "certificate"), Thumbprint: text(credentials, "thumbprint"),
		Resource: text(credentials, "resourceUrl"), Account: k.store.Account,
	}
	if p.Authority == "" {
		p.Authority = "https://login.microsoftonline.com"
	}
	if p.Resource == "" {
		p.Resource = "https://storage.azure.com"
	}
	if _, err := address("credentials.authority_url", p.Authority); err != nil {
		return err
	}
	if !identifier().MatchString(p.Tenant) || !identifier().MatchString(p.Client) {
		return berth.Errorf(berth.Invalid, "credentials.tenant_id and client_id must be the ids of a service principal, not %q and %q", p.Tenant, p.Client)
	}
	if p.Secret == "" && p.Certificate == "" {
		return berth.Errorf(berth.Invalid, "the credentials of a service principal must have client_secret, or certificate with its private key")
	}
	base := k.store.base
	base.Path = strings.TrimSuffix(base.Path, k.store.Container)
	p.URL = base.String()
	k.principal = p
	k.sign = func(request, time.Time, time.Time) (string, error) {
		return "", berth.Errorf(berth.Internal, "the service principal of storage account %s has no key yet", p.Account)
	}
	return nil
}

// Principal is the one that a user delegation key has to be obtained for; nil where the key signs
// as it is.
func (k *Key) Principal() *Principal { return k.principal }

// Delegate has the key sign with a user delegation key: each signature opens one blob, or lists one
// container.
func (k *Key) Delegate(u UserKey) error {
	secret, err := base64.StdEncoding.DecodeString(u.Value)
	if err != nil || len(secret) == 0 {
		return berth.Errorf(berth.Unavailable, "storage account %s gave out a key that is not base64", k.store.Account)
	}
	s := k.store
	k.sign = func(r request, _, until time.Time) (string, error) {
		end, protocol := until.UTC().Format(azureTime), s.protocol()
		kind, resource := s.resource(r)
		// In the order Azure has it: no beginning; the key; nobody it is delegated to; any address;
		// no snapshot, no encryption scope, no headers of answers.
		lines := []string{
			r.perm, "", end, resource, u.ObjectID, u.TenantID, u.Start, u.Expiry, u.Service, u.Version, "", "", "", "", protocol, azureVersion, kind,
			"", "", "", "", "", "", "",
		}
		return s.address(r, canonical(url.Values{
			"sv": {azureVersion}, "sr": {kind}, "sp": {r.perm}, "se": {end}, "spr": {protocol}, "skoid": {u.ObjectID}, "sktid": {u.TenantID}, "skt": {u.Start},
			"ske": {u.Expiry}, "sks": {u.Service}, "skv": {u.Version}, "sig": {azureMAC(secret, lines)},
		})), nil
	}
	return nil
}
