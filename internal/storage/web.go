package storage

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/berthml/berth"
)

// readHTTP is for what is below a URL of a web server.
func (s *Store) readHTTP(props map[string]any) error {
	raw := text(props, "url")
	u, err := url.Parse(raw)
	if err == nil {
		_, err = address("", u.Scheme+"://"+u.Host)
	}
	switch {
	case err != nil || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.ContainsAny(u.Path, "\\\x00"):
		return berth.Errorf(berth.Invalid, "properties.url must have the form https://HOST[:PORT]/PATH, without a user, a query or a fragment, not %q", berth.CleanURL(raw))
	case path.Clean("/"+u.Path) != "/"+strings.Trim(u.Path, "/"):
		return berth.Errorf(berth.Invalid, "the path of properties.url must have no empty parts, no . and no .., unlike %q", u.Path)
	}
	s.base = url.URL{Scheme: u.Scheme, Host: u.Host}
	if p := strings.Trim(u.Path, "/"); p != "" {
		s.base.Path = "/" + p
	}
	s.name = s.base.Scheme + "://" + s.base.Host + escape(s.base.Path, true)
	return nil
}

// byHeader opens a web server with a header of requests.
func (k *Key) byHeader(kind string, credentials, secrets map[string]any) error {
	if kind == "Token" {
		token := text(secrets, "token")
		if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return berth.Errorf(berth.Invalid, "the datastore's token must be one line of visible ASCII characters")
		}
		k.header = "Bearer " + token
	} else {
		user, password := text(credentials, "username"), text(secrets, "password")
		if user == "" || password == "" || strings.Contains(user, ":") {
			return berth.Errorf(berth.Invalid, "the datastore's credentials must have username, without a colon, and password")
		}
		k.header = "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	k.sign = bare(k.store)
	return nil
}

// Authorization is the header that every request to the storage must have; empty where an address
// is enough. No address can carry it: such requests go through the server.
func (k *Key) Authorization() string { return k.header }

// Host is the server of the storage: HOST or HOST:PORT.
func (k *Key) Host() string { return k.store.base.Host }

// webFolder is a request about a folder of a web server.
func (k *Key) webFolder(name string, r berth.OutsideRequest) (request, error) {
	if r.Do == berth.OutsideList {
		return request{method: "PROPFIND", path: name, folder: true, query: url.Values{}}, nil
	}
	above, err := k.above(name, r.Part)
	return request{method: "MKCOL", path: above, folder: true, query: url.Values{}}, err
}

// WebMethods are the methods by which a request is sent to a web server.
func WebMethods(do berth.OutsideVerb) []string {
	switch do {
	case berth.OutsideList:
		return []string{"PROPFIND", http.MethodGet}
	case berth.OutsideHead:
		return []string{http.MethodHead}
	case berth.OutsideGet:
		return []string{http.MethodGet}
	case berth.OutsidePut:
		return []string{http.MethodPut}
	case berth.OutsideMkdir:
		return []string{"MKCOL"}
	case berth.OutsideDelete:
		return []string{http.MethodDelete}
	}
	return nil
}
