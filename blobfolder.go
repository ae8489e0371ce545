package berth

import (
	"net/url"
	"strings"
)

// BlobFolder splits the path of the URL of a folder in blob storage after its container:
// https://ACCOUNT.blob.…/CONTAINER/PATH, or with the account in the path,
// https://HOST/ACCOUNT/CONTAINER/PATH, as servers have it that go by an address. The error says
// what else an input can be.
func BlobFolder(u *url.URL) (container, path string, err error) {
	segments := 2
	if strings.Contains(u.Hostname(), ".blob.") {
		segments = 1
	}
	parts := strings.SplitN(strings.TrimPrefix(u.Path, "/"), "/", segments+1)
	if len(parts) < segments || parts[segments-1] == "" {
		shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path} // the rest may be a signature
		return "", "", Errorf(Invalid, "%s is not a folder in blob storage, whose files could be listed: a single public file can be an input of type uri_file, "+
			"and for a folder create a datastore and use azureml://datastores/NAME/paths/PATH", &shown)
	}
	if len(parts) > segments {
		path = parts[segments]
	}
	return strings.Join(parts[:segments], "/"), path, nil
}

// ContentHashHeader is ours: the SHA-256, in hex, of the content. An upload that carries it is
// refused with WireSHA256Mismatch when it has another one; every answer about a blob that is not
// live has it.
const (
	ContentHashHeader  = "x-berth-content-sha256"
	WireSHA256Mismatch = "Sha256Mismatch"
)
