package storage

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// Bucket is a bucket of S3 for the server's own use: uri is s3://BUCKET or s3://BUCKET/PREFIX,
// endpoint and region are as in a datastore.
func Bucket(uri, endpoint, region, id, secret string) (key *Key, prefix string, err error) {
	rest, ok := strings.CutPrefix(uri, "s3://")
	bucket, prefix, _ := strings.Cut(rest, "/")
	prefix = strings.Trim(prefix, "/")
	if !ok || prefix != "" && !berth.TreePath(prefix) {
		return nil, "", berth.Errorf(berth.Invalid, "%q is not s3://BUCKET/PREFIX", uri)
	}
	s, err := Read(map[string]any{"datastoreType": S3, "bucket": bucket, "endpoint": endpoint, "region": region})
	if err != nil {
		return nil, "", err
	}
	key, err = s.Open(map[string]any{"credentialsType": "AccessKey", "accessKeyId": id}, map[string]any{"secretAccessKey": secret})
	return key, prefix, err
}

// SignDelete is an address that a DELETE request goes to. No task is ever given one.
func (k *Key) SignDelete(name string, now, until time.Time) (string, error) {
	return k.sign(request{method: http.MethodDelete, path: name, query: url.Values{}}, now, until)
}
