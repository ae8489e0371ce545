// Package bucket keeps the contents of a server's blobs in a bucket of S3.
package bucket

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/data"
	"github.com/berthml/berth/internal/storage"
)

// Options say where the bucket is.
type Options struct {
	URI      string // s3://BUCKET/PREFIX
	Endpoint string // empty is Amazon
	Region   string
	KeyID    string
	Secret   string
}

// Bucket keeps contents by their hash. It is a [blob.Remote].
type Bucket struct {
	uri, prefix string
	key         *storage.Key
	client      *data.Client
	at          *data.Outside
	http        http.Client
}

// signed is how long an address is good.
const signed = time.Hour

// Open opens a bucket. It sends no request.
func Open(o Options) (*Bucket, error) {
	key, prefix, err := storage.Bucket(o.URI, o.Endpoint, o.Region, o.KeyID, o.Secret)
	if err != nil {
		return nil, err
	}
	client, err := data.New(data.Options{})
	if err != nil {
		return nil, err
	}
	b := &Bucket{uri: o.URI, prefix: prefix, key: key, client: client, http: http.Client{Timeout: time.Minute}}
	b.at = client.Outside(&berth.Outside{Protocol: berth.OutsideS3, At: o.URI}, b.sign)
	return b, nil
}

// Close lets idle connections go.
func (b *Bucket) Close() error {
	b.client.Close()
	b.http.CloseIdleConnections()
	return nil
}

func (b *Bucket) sign(_ context.Context, _ string, rs []berth.OutsideRequest) ([]string, error) {
	now := time.Now()
	urls := make([]string, len(rs))
	for i, r := range rs {
		var err error
		if urls[i], err = b.key.Sign(b.prefix, r, now, now.Add(signed)); err != nil {
			return nil, err
		}
	}
	return urls, nil
}

// name is that of a content below the prefix.
func name(hash string) string { return "objects/" + hash[:2] + "/" + hash[2:] }

// describe says where an error comes from.
func (b *Bucket) describe(doing string, err error) error {
	switch code := berth.CodeOf(err); {
	case err == nil, code == berth.NotFound:
		return err
	case code == berth.Denied || code == berth.Unauthenticated:
		return berth.Errorf(berth.Internal, "%s: the server's storage %s rejects its credentials (blobs.key): %w", doing, b.uri, err)
	case code == berth.Unavailable:
		return berth.Errorf(berth.Unavailable, "%s: the server's storage %s does not answer: %w", doing, b.uri, err)
	default:
		return fmt.Errorf("%s in the server's storage %s: %w", doing, b.uri, err)
	}
}

// Put keeps the content of a file.
func (b *Bucket) Put(ctx context.Context, hash string, f *os.File) error {
	return b.describe("keeping an upload", b.at.PutObject(ctx, f, name(hash)))
}

// Get brings a content to a path. One that is not there is NotFound.
func (b *Bucket) Get(ctx context.Context, hash, path string) error {
	return b.describe("fetching a blob", b.at.FetchObject(ctx, name(hash), path))
}

// Delete removes a content. One that is not there is no error.
func (b *Bucket) Delete(ctx context.Context, hash string) error { return b.remove(ctx, name(hash)) }

func (b *Bucket) remove(ctx context.Context, name string) error {
	u, err := b.key.SignDelete(b.path(name), time.Now(), time.Now().Add(signed))
	if err != nil {
		return err
	}
	res, err := b.send(ctx, http.MethodDelete, u)
	if err != nil {
		return b.describe("removing a blob", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNotFound && res.StatusCode/100 != 2 {
		return b.describe("removing a blob", berth.Errorf(berth.Unavailable, "%s", res.Status))
	}
	return nil
}

// Modified is when a content was last put. One that is not there is NotFound.
func (b *Bucket) Modified(ctx context.Context, hash string) (time.Time, error) {
	u, err := b.key.Sign(b.prefix, berth.OutsideRequest{Do: berth.OutsideHead, Name: name(hash)}, time.Now(), time.Now().Add(signed))
	if err != nil {
		return time.Time{}, err
	}
	res, err := b.send(ctx, http.MethodHead, u)
	if err != nil {
		return time.Time{}, b.describe("looking at a blob", err)
	}
	res.Body.Close()
	switch {
	case res.StatusCode == http.StatusNotFound:
		return time.Time{}, berth.Errorf(berth.NotFound, "there is no content %s", hash)
	case res.StatusCode/100 != 2:
		return time.Time{}, b.describe("looking at a blob", berth.Errorf(berth.Unavailable, "%s", res.Status))
	}
	return http.ParseTime(res.Header.Get("Last-Modified"))
}

func (b *Bucket) path(name string) string { return strings.Trim(b.prefix+"/"+name, "/") }

func (b *Bucket) send(ctx context.Context, method, u string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, u, nil)
	if err != nil {
		return nil, err
	}
	res, err := b.http.Do(req)
	if err != nil {
		return nil, berth.Errorf(berth.Unavailable, "%s", strings.ReplaceAll(err.Error(), u, berth.CleanURL(u))) // its signature is not for logs
	}
	return res, nil
}

// maxPage bounds a page of a list, in bytes.
const maxPage = 16 << 20

// List calls f for each content whose hash begins with a shard, two hex digits.
func (b *Bucket) List(ctx context.Context, shard string, f func(hash string, size int64, modified time.Time) error) error {
	return b.listFolder(ctx, "objects/"+shard, func(key string, size int64, modified time.Time) error {
		return f(shard+key[strings.LastIndexByte(key, '/')+1:], size, modified)
	})
}

// listFolder calls f for the whole name of each object in a folder below the prefix.
func (b *Bucket) listFolder(ctx context.Context, folder string, f func(key string, size int64, modified time.Time) error) error {
	for marker := ""; ; {
		u, err := b.key.Sign(b.path(folder), berth.OutsideRequest{Do: berth.OutsideList, Marker: marker}, time.Now(), time.Now().Add(signed))
		if err != nil {
			return err
		}
		res, err := b.send(ctx, http.MethodGet, u)
		if err != nil {
			return b.describe("listing", err)
		}
		var page struct {
			Contents []struct {
				Key          string
				Size         int64
				LastModified time.Time
			}
			Truncated bool   `xml:"IsTruncated"`
			Next      string `xml:"NextContinuationToken"`
		}
		err = xml.NewDecoder(io.LimitReader(res.Body, maxPage)).Decode(&page)
		res.Body.Close()
		if res.StatusCode != http.StatusOK || err != nil {
			return b.describe("listing", berth.Errorf(berth.Unavailable, "%s", res.Status))
		}
		for _, c := range page.Contents {
			key, err := url.QueryUnescape(c.Key)
			if err == nil {
				err = f(key, c.Size, c.LastModified)
			}
			if err != nil {
				return err
			}
		}
		if marker = page.Next; !page.Truncated {
			return ctx.Err()
		}
	}
}
