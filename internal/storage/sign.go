package storage

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// Key is what opens a store: it turns requests into addresses that may be used without it, for a
// while.
type Key struct {
	store     *Store
	sign      func(r request, now, until time.Time) (string, error)
	principal *Principal
	header    string // see Authorization
}

// request is one as storage sees it.
type request struct {
	method string
	path   string // of the object, empty for the container
	query  url.Values
	perm   string // what Azure calls it
	whole  bool   // what Azure signs is the whole share, although path is of a folder in it
	folder bool   // the address ends with a slash
}

// Open is the key of a store. credentials is what its document says of them, secrets what is kept
// sealed.
func (s *Store) Open(credentials, secrets map[string]any) (*Key, error) {
	kind := text(credentials, "credentialsType")
	k := &Key{store: s}
	switch {
	case kind == "" || kind == "None":
		k.sign = bare(s)
	case s.azure() && kind == "AccountKey":
		return k, k.byAccountKey(text(secrets, "key"))
	case s.azure() && kind == "Sas":
		token := strings.TrimPrefix(text(secrets, "sasToken"), "?")
		if _, err := url.ParseQuery(token); err != nil || token == "" {
			return nil, berth.Errorf(berth.Invalid, "the sas_token of the datastore is not an Azure SAS token; it must look like sv=…&sig=…")
		}
		k.sign = func(r request, _, _ time.Time) (string, error) { return s.address(r, token), nil }
	case s.Protocol() == berth.OutsideAzure && (kind == "ServicePrincipal" || kind == "Certificate"):
		return k, k.byPrincipal(credentials, secrets)
	case s.Type == S3 && kind == "AccessKey":
		id, secret := text(credentials, "accessKeyId"), text(secrets, "secretAccessKey")
		if id == "" || secret == "" {
			return nil, berth.Errorf(berth.Invalid, "the datastore's credentials must have access_key_id and secret_access_key")
		}
		k.sign = awsSigner(s, id, secret, text(secrets, "sessionToken"))
	case s.Type == Google && kind == "AccessKey":
		id, secret := text(credentials, "accessKeyId"), text(secrets, "secretAccessKey")
		if id == "" || secret == "" {
			return nil, berth.Errorf(berth.Invalid, "the datastore's credentials must have access_key_id and secret_access_key")
		}
		k.sign = googleHMAC(s, id, secret)
	case s.Type == Google && kind == "ServiceAccount":
		return k, k.byServiceAccount(text(secrets, "serviceAccountKey"))
	case s.Type == HTTP && (kind == "UsernamePassword" || kind == "Token"):
		return k, k.byHeader(kind, credentials, secrets)
	default:
		return nil, berth.Errorf(berth.Unsupported, "credentials of type %s cannot be used with a datastore of type %s; %s", kind, s.Type, usable(s))
	}
	return k, nil
}

// bare signs nothing.
func bare(s *Store) func(request, time.Time, time.Time) (string, error) {
	return func(r request, _, _ time.Time) (string, error) { return s.address(r, ""), nil }
}

// usable says which credentials open a store.
func usable(s *Store) string {
	switch s.Type {
	case S3:
		return "set access_key_id and secret_access_key"
	case Google:
		return "set service_account_key, or access_key_id and secret_access_key"
	case AzureFile:
		return "set account_key or sas_token"
	case HTTP:
		return "set username and password, or token"
	}
	return "set account_key or sas_token, or those of a service principal"
}

// Sign is the address that a request to a place goes to, which opens it until a time. Where the
// place is folder, names are below it.
func (k *Key) Sign(place string, r berth.OutsideRequest, now, until time.Time) (string, error) {
	place = strings.Trim(place, "/")
	name := place
	if r.Name != "" {
		if !berth.TreePath(r.Name) {
			return "", berth.Errorf(berth.Invalid, "%q is not a path inside %s", r.Name, k.store.At(place))
		}
		name = strings.Trim(place+"/"+r.Name, "/")
	}
	if name == "" && r.Do != berth.OutsideList {
		return "", berth.Errorf(berth.Invalid, "%s is not a file", k.store.At(""))
	}
	q, err := k.request(name, r)
	if err != nil {
		return "", err
	}
	return k.sign(q, now, until)
}

func (k *Key) request(name string, r berth.OutsideRequest) (request, error) {
	if r.Do == berth.OutsideList || r.Do == berth.OutsideMkdir {
		switch k.store.Protocol() {
		case berth.OutsideShare:
			return k.folder(name, r)
		case berth.OutsideHTTP:
			return k.webFolder(name, r)
		}
	}
	if r.Do == berth.OutsideList {
		prefix := name
		if prefix != "" {
			prefix += "/"
		}
		return k.list(prefix, r.Marker), nil
	}
	q := request{path: name, query: url.Values{}, perm: "r"}
	switch r.Do {
	case berth.OutsideHead:
		q.method = http.MethodHead
	case berth.OutsideGet:
		q.method = http.MethodGet
	case berth.OutsidePut:
		q.method, q.perm = http.MethodPut, "cw"
	case berth.OutsideDelete:
		q.method, q.perm = http.MethodDelete, "d"
	default:
		return q, k.part(&q, r)
	}
	return q, nil
}

// folder is a request about a folder of a share. Azure signs files and shares, but not folders.
func (k *Key) folder(name string, r berth.OutsideRequest) (request, error) {
	if r.Do == berth.OutsideList {
		q := request{
			method: http.MethodGet, path: name, perm: "l", whole: true,
			query: url.Values{"restype": {"directory"}, "comp": {"list"}, "include": {"Etag"}, "maxresults": {pageSize}},
		}
		if r.Marker != "" {
			q.query.Set("marker", r.Marker)
		}
		return q, nil
	}
	above, err := k.above(name, r.Part)
	return request{method: http.MethodPut, path: above, perm: "c", whole: true, query: url.Values{"restype": {"directory"}}}, err
}

// above is the path some levels above another one, in the storage.
func (k *Key) above(name string, levels int) (string, error) {
	parts := strings.Split(name, "/")
	if levels < 0 || levels >= len(parts) {
		return "", berth.Errorf(berth.Invalid, "%s has no folder %d levels above it", k.store.At(name), levels)
	}
	return strings.Join(parts[:len(parts)-levels], "/"), nil
}

// part is a request of an upload in parts, which S3 has signed one by one.
func (k *Key) part(q *request, r berth.OutsideRequest) error {
	if k.store.Protocol() != berth.OutsideS3 || r.Do != berth.OutsideBegin && r.Upload == "" {
		return berth.Errorf(berth.Invalid, "%q is not a request that this storage supports", r.Do)
	}
	switch r.Do {
	case berth.OutsideBegin:
		q.method = http.MethodPost
		q.query.Set("uploads", "")
		return nil
	case berth.OutsidePart:
		if r.Part < 1 || r.Part > 10000 {
			return berth.Errorf(berth.Invalid, "part number %d is out of range; an upload has parts 1 to 10000", r.Part)
		}
		q.method = http.MethodPut
		q.query.Set("partNumber", strconv.Itoa(r.Part))
	case berth.OutsideFinish:
		q.method = http.MethodPost
	case berth.OutsideDrop:
		q.method = http.MethodDelete
	default:
		return berth.Errorf(berth.Invalid, "%q is not a storage request", r.Do)
	}
	q.query.Set("uploadId", r.Upload)
	return nil
}

// pageSize is how many names a list has on a page.
const pageSize = "1000"

func (k *Key) list(prefix, marker string) request {
	q := request{method: http.MethodGet, perm: "l"}
	if k.store.Protocol() == berth.OutsideAzure {
		q.query = url.Values{"restype": {"container"}, "comp": {"list"}, "prefix": {prefix}, "include": {"metadata"}, "maxresults": {pageSize}}
		if marker != "" {
			q.query.Set("marker", marker)
		}
		return q
	}
	q.query = url.Values{"list-type": {"2"}, "prefix": {prefix}, "encoding-type": {"url"}, "max-keys": {pageSize}}
	if marker != "" {
		q.query.Set("continuation-token", marker)
	}
	return q
}

// address is where a request goes; more is a signature.
func (s *Store) address(r request, more string) string {
	u := s.base.Scheme + "://" + s.base.Host + escape(s.path(r), true)
	query := canonical(r.query)
	if query != "" && more != "" {
		query += "&"
	}
	if query += more; query != "" {
		u += "?" + query
	}
	return u
}

// path is that of a request, which is not escaped.
func (s *Store) path(r request) string {
	p := s.base.Path
	if r.path != "" {
		p += "/" + r.path
	}
	if p == "" || r.folder && !strings.HasSuffix(p, "/") {
		p += "/"
	}
	return p
}

// canonical is a query as signatures are made of it: in the order of its names, and with blanks as
// %20.
func canonical(q url.Values) string { return strings.ReplaceAll(q.Encode(), "+", "%20") }

// escape writes everything but letters, digits and -._~ in hex; slashes may stay.
func escape(s string, slashes bool) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 || slashes && c == '/' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
