package auth

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"

	"github.com/berthml/berth"
)

// An address of data may bring what opens it along: a signature in its query, or a password. That
// is sealed where it stands, for the user who gave it, and everything else can be read: documents
// may be shown, copied and sent again, and hold no secret. The same address is always sealed to the
// same text, so that documents can be compared.

// sealedPart begins what is sealed in an address.
const sealedPart = "berth-sealed."

// sealedFor says what a part of an address is sealed for: another host cannot have it.
func sealedFor(user, host string) string {
	return "address\x00" + user + "\x00" + strings.ToLower(host)
}

// SealAddress seals what opens an address, on behalf of a user.
func (k *Keys) SealAddress(address, user string) string {
	sealed, _ := eachSecret(address, func(secret, host string) (string, error) {
		if strings.HasPrefix(secret, sealedPart) {
			return secret, nil
		}
		return sealedPart + base64.RawURLEncoding.EncodeToString(k.sealSame([]byte(secret), sealedFor(user, host))), nil
	})
	return sealed
}

// OpenAddress is the inverse of SealAddress. What another user sealed is refused.
func (k *Keys) OpenAddress(address, user string) (string, error) {
	if !strings.Contains(address, sealedPart) {
		return address, nil
	}
	return eachSecret(address, func(secret, host string) (string, error) {
		text, ok := strings.CutPrefix(secret, sealedPart)
		if !ok {
			return secret, nil
		}
		b, err := base64.RawURLEncoding.DecodeString(text)
		if err == nil {
			b, err = k.open(b, sealedFor(user, host))
		}
		if err != nil {
			return "", berth.Errorf(berth.Denied, "the signature in %s is hidden, and only the user who gave it can use it, for the host it was given for: "+
				"write the address with a signature of your own", berth.CleanURL(address))
		}
		return string(b), nil
	})
}

// eachSecret replaces the parts of an address that nobody but its owner may see.
func eachSecret(address string, replace func(secret, host string) (string, error)) (string, error) {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok || scheme == "" || strings.ContainsAny(scheme, "/?#@ ") || strings.EqualFold(scheme, "azureml") || strings.EqualFold(scheme, "file") {
		return address, nil // of the last two, a question mark is part of a name
	}
	rest, fragment, hasFragment := strings.Cut(rest, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	authority, path, hasPath := berth.CutAuthority(scheme, rest)
	at := strings.LastIndexByte(authority, '@')
	host := authority[at+1:]
	var err error
	if at >= 0 {
		name, password, both := strings.Cut(authority[:at], ":")
		web := strings.EqualFold(scheme, "https") || strings.EqualFold(scheme, "http")
		switch {
		case both && password != "":
			password, err = replace(password, host)
		case web && name != "": // a token; of Azure's schemes it is a container
			name, err = replace(name, host)
		}
		if both {
			name += ":" + password
		}
		authority = name + "@" + host
	}
	parameters := func(text string) string {
		parts := strings.Split(text, "&")
		for i, part := range parts {
			name, value, named := strings.Cut(part, "=")
			if !named { // a text alone may be a token
				name, value = "", part
			}
			if err != nil || value == "" || !opens(name, value) {
				continue
			}
			value, err = replace(value, host)
			if parts[i] = value; named {
				parts[i] = name + "=" + value
			}
		}
		return strings.Join(parts, "&")
	}
	if hasQuery {
		query = "?" + parameters(query)
	}
	if hasFragment {
		fragment = parameters(fragment)
	}
	if err != nil {
		return "", err
	}
	out := scheme + "://" + authority
	if hasPath {
		out += "/" + path
	}
	out += query
	if hasFragment {
		out += "#" + fragment
	}
	return out, nil
}

// secretWords are in the names of parameters that open something.
var secretWords = []string{"sig", "token", "key", "secret", "pass", "pwd", "auth", "cred", "code", "jwt", "sas", "hmac", "session"}

// opens says whether a parameter of an address may be what opens it: by its name, or because it is
// longer than what people write, such as a date.
func opens(name, value string) bool {
	if plain, err := url.QueryUnescape(name); err == nil {
		name = plain
	}
	name = strings.ToLower(name)
	if strings.HasSuffix(name, "signedheaders") {
		return false
	}
	if slices.ContainsFunc(secretWords, func(w string) bool { return strings.Contains(name, w) }) {
		return true
	}
	if plain, err := url.QueryUnescape(value); err == nil {
		value = plain
	}
	return len(value) > len("2006-01-02T15:04:05Z")
}
